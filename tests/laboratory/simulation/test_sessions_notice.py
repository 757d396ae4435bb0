"""Worlds of sessions notice what is broken on purpose."""

from __future__ import annotations

import pytest

from gamecast.client import history
from laboratory.simulation.sessions import SessionWorld, run_sessions
from sequencing.replay import Replay
from tests.simulation.test_sessions import WORLDS


def test_a_replay_without_the_order_of_its_node_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Replay.__init__
    monkeypatch.setattr(Replay, "__init__", lambda self, epoch, regions, _=None: original(self, epoch, regions))
    assert any(run_sessions(SessionWorld(seed)).wrong for seed in range(WORLDS))


def test_a_history_that_has_no_order_and_is_given_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "unordered", lambda _: [])
    assert any(run_sessions(SessionWorld(seed, nodes=3)).wrong for seed in range(30))
