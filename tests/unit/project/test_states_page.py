"""`docs/states.md` is what `docs/make_states.py` prints, and the tables and the code have the same states."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sequencing.plan import AtomId
from sequencing.states import IllegalTransition
from sequencing.steps import STEPS, InstalledStep, StepEvent, StepState

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "states.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_script_prints() -> None:
    printed = subprocess.run(
        [sys.executable, "-X", "utf8", str(DOCS / "make_states.py")], capture_output=True, check=True, encoding="utf-8"
    ).stdout
    assert printed == PAGE, "run `.venv/bin/python docs/make_states.py > docs/states.md`"


@pytest.mark.parametrize("state", StepState)
@pytest.mark.parametrize("event", StepEvent)
def test_a_step_moves_as_its_table_says_and_refuses_the_rest(state: StepState, event: StepEvent) -> None:
    step = InstalledStep(state, None, (AtomId(1),))
    to = STEPS.get((state, event))
    if to is None:
        with pytest.raises(IllegalTransition, match=f"StepState: {state.name} does not allow {event.name}"):
            step.move(event)
        assert step.state is state
    else:
        step.move(event)
        assert step.state is to
