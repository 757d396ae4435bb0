"""The control store: who counts as gone, and who has the lease. For its answers see test_store_twin.py."""

from __future__ import annotations

from sequencing.record import Request
from sequencing.store import ControlStore, Fence, Heard, Known

LEASE_MS = 100.0


def test_who_is_not_heard_of_is_gone_and_is_back_when_heard_of_again() -> None:
    store = ControlStore({"n1": ""}, ttl_ms=50)
    silent, there = store.introduce("silent", 0), store.introduce("there", 0)
    assert store.join("silent", Request(silent, 1, {"forest": 1}), 0) is Heard.PLAN
    assert store.beat("there", there, 0, 40) is Heard.BACK, "it has said nothing"
    seen = store.look("me", LEASE_MS, 60, Known())
    assert seen is not None
    assert (seen.connections, dict(seen.interests)) == (1, {})
    assert store.join("silent", Request(silent, 2, {"river": 2}), 61) is Heard.BACK, "the rest is forgotten"
    assert store.join("silent", Request(silent, 2, {"forest": 1, "river": 2}, whole=True), 62) is Heard.PLAN
    assert store.interests["silent"].since == {"forest": 1, "river": 2}
    newer = store.introduce("silent", 70)
    assert store.beat("silent", silent, 2, 71) is Heard.SUPERSEDED
    assert newer > there > silent


def test_who_could_not_be_heard_is_not_gone() -> None:
    store = ControlStore({"n1": ""}, ttl_ms=50, blind_ms=200)
    store.introduce("there", 0)
    store.look("me", LEASE_MS, 1, Known())
    seen = store.look("me", LEASE_MS, 300, store.known)
    assert seen is not None
    assert seen.connections == 1
    seen = store.look("me", LEASE_MS, 360, store.known)
    assert seen is not None
    assert seen.connections == 0
    assert seen.touched == frozenset({"there"})


def test_a_lease_that_ran_out_is_kept_unless_another_candidate_led() -> None:
    store = ControlStore({"n1": ""})
    assert store.look("one", LEASE_MS, 0, Known()) is not None
    assert store.look("other", LEASE_MS, 99, Known()) is None
    assert store.keep("one", LEASE_MS, 150)
    assert store.look("other", LEASE_MS, 260, Known()) is not None
    assert not store.keep("one", LEASE_MS, 400)
    assert store.note_runs(Fence("other", 0), {"n1": "1"}, 300)
    assert not store.note_runs(Fence("other", 0), {"n1": "2"}, 301), "it was written since"
    assert store.runs == {"n1": "1"}


def test_what_a_lost_answer_told_is_told_again() -> None:
    store = ControlStore({"n1": ""})
    known = Known()
    assert store.look("me", LEASE_MS, 0, known) is not None
    known = store.known
    connection = store.introduce("s", 1)
    store.join("s", Request(connection, 1, {"forest": 1}), 1)
    for now in (2, 3):
        seen = store.look("me", LEASE_MS, now, known)
        assert seen is not None
        assert seen.touched == frozenset({"s"})
