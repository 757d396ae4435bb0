"""The demo over a classic protocol is judged by what that claims."""

from __future__ import annotations

import json

import pytest

from classic.protocols.two_phase import TwoPhase
from laboratory.protocols.demo import EVENTS_MAX
from tests.commands import call, gamecast_command


@pytest.mark.parametrize(("name", "total"), [("isis-overlapping", True), ("propagation-tree", True), ("fifo", False)])
def test_a_classic_protocol_replays_a_part_of_the_match_and_is_judged_by_what_it_claims(name: str, total: bool) -> None:
    done = call("demo", "--protocol", name, "--servers", "5", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.output)
    assert (report["published"], report["lost"], report["duplicated"]) == (EVENTS_MAX, 0, 0)
    assert report["events"] > EVENTS_MAX
    assert ("total" in report["guarantees"], set(report["guarantees"].values())) == (total, {0})
    assert (report["inversions"] == 0) is total
    assert report["plain"]["deliveries"] == report["deliveries"]


def test_a_classic_protocol_that_breaks_its_promise_makes_the_demo_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TwoPhase, "_deliver_what_is_certain", _deliver_what_is_committed)
    done = call("demo", "--protocol", "two-phase", "--servers", "5")
    assert done.exit_code == 1
    assert "broke its promise of" in done.output


def _deliver_what_is_committed(self: TwoPhase) -> None:
    for waiting in [waiting for waiting in self.waiting.values() if waiting.committed]:
        self.deliver(self.waiting.pop(waiting.message.id).message)


def test_a_classic_protocol_for_one_group_is_refused_and_others_are_named() -> None:
    done = gamecast_command("demo", "--protocol", "isis", "--json")
    assert done.returncode == 2
    assert "there is one group" in done.stderr
    assert "isis-overlapping" in done.stderr
