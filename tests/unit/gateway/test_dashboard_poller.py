"""How often the dashboard's poller looks at a network, and what it says while that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

pytest.importorskip("aiohttp", reason="the gateway's libraries are not installed (the gateway extra)")

from adapters.redis.networkstate import NetworkState
from gateway.dashboard.poller import Poller
from sequencing.errors import Unreachable
from tests.patience import patience
from tests.unit.gateway.test_dashboard_snapshot import network, node, silent

INTERVAL_S, LOOK_S = 0.05, 0.2


@asynccontextmanager
async def polling(look: Callable[[], Awaitable[NetworkState]]) -> AsyncIterator[Poller]:
    """A poller that is watched, and has looked three times."""
    poller = Poller(look, interval_s=INTERVAL_S)
    poller.watched()
    task = asyncio.create_task(poller.run())
    try:
        async with patience(10):
            for turn in range(3):
                await poller.next_turn(turn)
        yield poller
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_looks_that_work_for_long_are_made_less_often() -> None:
    async def look() -> NetworkState:
        await asyncio.sleep(LOOK_S)
        return network()

    async with polling(look) as poller:
        assert poller.document()["interval_s"] >= 4 * LOOK_S - 0.05


async def test_looks_that_wait_for_a_node_that_hangs_go_on_at_the_usual_pace() -> None:
    async def look() -> NetworkState:
        await asyncio.sleep(LOOK_S)
        return replace(network(nodes=(node("n1"), silent("n2"))), waited_s=LOOK_S)

    async with polling(look) as poller:
        assert poller.document()["interval_s"] <= 2 * LOOK_S
        assert poller.document()["network"]["totals"]["nodes_silent"] == ["n2"]


async def test_looks_that_fail_go_on_at_the_usual_pace() -> None:
    async def look() -> NetworkState:
        await asyncio.sleep(LOOK_S)
        raise Unreachable("nothing answers at redis://gone")

    async with polling(look) as poller:
        assert poller.document()["interval_s"] <= 2 * LOOK_S
        assert poller.trouble == "nothing answers at redis://gone"


async def test_a_node_that_fell_silent_is_unknown_since_it_last_answered() -> None:
    looks = iter((network(), network(), network(nodes=(node("n1"), silent("n2")))))
    states = [network()]

    async def look() -> NetworkState:
        states.append(next(looks, states[-1]))
        return states[-1]

    async with polling(look) as poller:
        assert poller.snapshot is not None
        answered_ms = poller.snapshot.answered_ms
        assert answered_ms["n2"] < answered_ms["n1"]
        assert poller.document()["network"]["totals"]["silent_since_ms"] == answered_ms["n2"]


async def test_a_look_that_fails_for_a_reason_that_nobody_foresaw_is_reported_and_not_the_last() -> None:
    looks = 0

    async def look() -> NetworkState:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise OverflowError("cannot convert float infinity to integer")
        return network()

    async with polling(look) as poller:
        assert poller.trouble is None
        texts = [note["text"] for note in poller.document()["notes"]]
        assert texts[-2:] == [
            "surveys of the network work again",
            "cannot survey the network: OverflowError: cannot convert float infinity to integer",
        ]


async def test_alerts_of_a_network_whose_control_redis_was_emptied_are_not_called_solved() -> None:
    down = network(nodes=(node("n1"), silent("n2")))
    emptied = replace(network(), plan=None, leader="", nodes=(node("control"),), connections=(), regions=())
    looks = iter((down, replace(down), emptied))
    states = [down]

    async def look() -> NetworkState:
        states.append(next(looks, states[-1]))
        return states[-1]

    async with polling(look) as poller:
        notes = poller.document()["notes"]
    assert [note["text"] for note in notes if note["text"].startswith("n2: ")]
    assert not [note["text"] for note in notes if note["text"].endswith("solved")]
    assert "the control Redis has lost its data" in " ".join(note["text"] for note in notes if note["bad"])


async def test_figures_that_cannot_be_made_are_reported_as_a_look_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0

    def rates(*_: object) -> dict[tuple[str, int], float]:
        nonlocal looks
        looks += 1
        if looks == 2:
            raise OverflowError("int too large to convert to float")
        return {}

    monkeypatch.setattr("gateway.dashboard.poller.delivered_rates", rates)

    async def look() -> NetworkState:
        return network()

    async with polling(look) as poller:
        assert looks > 2
        assert poller.trouble is None
        texts = [note["text"] for note in poller.document()["notes"]]
        assert "cannot survey the network: OverflowError: int too large to convert to float" in texts
