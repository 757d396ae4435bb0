"""The class of `docs/prediction.md`: whatever the order is, the predicted world becomes that of the order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

PAGE = (Path(__file__).parents[2] / "docs" / "prediction.md").read_text(encoding="utf-8")
[CODE] = re.findall(r"```python\n(# prediction\.py\n.*?)```", PAGE, flags=re.DOTALL)
MODULE: dict[str, Any] = {}
exec(compile(CODE, "prediction.py", "exec"), MODULE)
Prediction = MODULE["Prediction"]

World = dict[str, list[str]]


def write(world: World, event: str) -> None:
    world["log"].append(event)


def folded(events: list[str]) -> World:
    world: World = {"log": []}
    for event in events:
        write(world, event)
    return world


STEPS = st.lists(st.sampled_from(("act", "foreign", "own", "own newest", "refuse", "deliver")), max_size=60)


@given(STEPS, st.randoms(use_true_random=False))
def test_after_all_events_the_predicted_world_is_that_of_the_order(steps: list[str], random: Any) -> None:
    seen = Prediction({"log": []}, write)
    order: list[tuple[str, str | None]] = []
    under_way: list[str] = []
    delivered = acted = expected = 0

    def deliver() -> int:
        event, mark = order[delivered]
        is_foreign_to_the_guess = bool(seen.pending) and mark != next(iter(seen.pending))
        before = seen.rollbacks
        seen.take(event, mark)
        assert seen.rollbacks - before == is_foreign_to_the_guess
        return int(is_foreign_to_the_guess)

    for step in steps:
        if step == "act":
            acted += 1
            under_way.append(f"own {acted}")
            seen.act(f"own {acted}", f"own {acted}")
            assert seen.world["log"][-1] == f"own {acted}"  # at once
        elif step == "foreign":
            order.append((f"foreign {len(order)}", None))
        elif step in ("own", "own newest") and under_way:
            # Not always the first: one before may be refused, and that be known later.
            event = under_way.pop(0 if step == "own" else -1)
            order.append((event, event))
        elif step == "refuse" and under_way:
            seen.refuse(under_way.pop(random.randrange(len(under_way))))
            expected += 1
        elif step == "deliver" and delivered < len(order):
            expected += deliver()
            delivered += 1
        assert seen.world["log"] == [event for event, _ in order[:delivered]] + [*seen.pending.values()]
    order += [(event, event) for event in under_way]
    while delivered < len(order):
        expected += deliver()
        delivered += 1
    assert seen.world == seen.confirmed == folded([event for event, _ in order])
    assert (seen.pending, seen.rollbacks) == ({}, expected)


@given(st.integers(0, 20))
def test_who_acts_alone_never_rolls_back(count: int) -> None:
    seen = Prediction({"log": []}, write)
    for number in range(count):
        seen.act(str(number), str(number))
    for number in range(count):
        seen.take(str(number), str(number))
    assert (seen.rollbacks, seen.world) == (0, folded([str(number) for number in range(count)]))
