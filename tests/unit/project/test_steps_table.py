"""The steps of a node move as the table says from which `docs/states.md` is drawn."""

from __future__ import annotations

import pytest

from sequencing.plan import AtomId
from sequencing.states import IllegalTransition
from sequencing.steps import STEPS, InstalledStep, StepEvent, StepState


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
