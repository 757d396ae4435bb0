"""The short way of a lone event is the general way: from equal states, the same deliveries and equal states."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import pytest

from laboratory.exploration.explorer import frozen
from laboratory.simulation.faultrun import Scenario, run_faults
from sequencing.cut import ReadResult, Streams
from sequencing.frames import StampedFrame
from sequencing.ready import Ready
from sequencing.session import Session

WORLDS = 1500


def test_what_comes_alone_is_taken_as_the_general_way_would(monkeypatch: pytest.MonkeyPatch) -> None:
    short, taken = Session.read_next, [0]

    def both(session: Session[Any], frame: StampedFrame, whole: Mapping[str, int] | None) -> Ready | None:
        general = deepcopy(session)
        before = frozen(session)
        ready = short(session, frame, whole)
        if ready is None:
            assert frozen(session) == before
            return None
        effects = general.read(ReadResult([frame], whole or {}))
        assert [*effects.deliver] == [ready]
        assert effects.is_plain
        assert not effects.publish
        assert frozen(session) == frozen(general)
        taken[0] += 1
        return ready

    # Not changed any more, and compared by identity.
    monkeypatch.setattr(Streams, "__deepcopy__", lambda streams, _: streams, raising=False)
    monkeypatch.setattr(Session, "read_next", both)
    for seed in range(WORLDS):
        assert run_faults(Scenario.of(seed)).violations == ()
    assert taken[0] > WORLDS / 2
