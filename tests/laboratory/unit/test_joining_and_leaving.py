"""Joining and leaving, packet by packet: who is asked, who answers, and what a joiner that cannot enter does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from classic.executions.guarantees import violations
from classic.executions.record import Event, Kind, Record, Sent
from classic.executions.stays import owed, stays
from classic.protocols.arrow_joining import ArrowJoining
from classic.protocols.combining_joining import CombiningJoining
from classic.protocols.process import Guarantee, Joinable, Process
from classic.protocols.setup import Setup
from classic.protocols.virtual_synchrony import VirtualSynchrony
from classic.stepping import InTransit, Stepper
from sequencing.errors import UsageError

TREES = [ArrowJoining, CombiningJoining]


def stepper_of(protocol: type[Process], founders: str, joiners: str) -> Stepper:
    crashes = protocol is VirtualSynchrony
    names = (*founders, *joiners)
    return Stepper(protocol, Setup(names, {"all": tuple(founders)}, open_groups=True, crashes=crashes))


def join(stepper: Stepper, process: str, at: str = "") -> None:
    machine = stepper.processes[process]
    assert isinstance(machine, Joinable)
    stepper.carry_out(process, machine.join(at))


def leave(stepper: Stepper, process: str) -> None:
    machine = stepper.processes[process]
    assert isinstance(machine, Joinable)
    stepper.carry_out(process, machine.leave())


def publish(stepper: Stepper, process: str, message: str) -> None:
    stepper.publish(process, message_id=message)
    stepper.settle(alarms=True)


@pytest.mark.parametrize("protocol", TREES)
@pytest.mark.parametrize("at", ["", "a", "b", "d"])
def test_a_join_reaches_a_member_though_the_founders_have_left(protocol: type[Process], at: str) -> None:
    stepper = stepper_of(protocol, "abc", "de")
    for process in "ab":
        leave(stepper, process)
        stepper.settle()
    join(stepper, "d", at)
    stepper.settle()
    publish(stepper, "d", "m")
    assert stepper.delivered("d") == stepper.delivered("c") == ["m"]


@pytest.mark.parametrize("protocol", TREES)
def test_a_process_that_has_left_comes_back_and_publishes_what_waited(protocol: type[Process]) -> None:
    stepper = stepper_of(protocol, "abc", "")
    publish(stepper, "a", "first")
    leave(stepper, "a")
    stepper.settle()
    publish(stepper, "a", "waits")
    publish(stepper, "b", "missed")
    join(stepper, "a")
    stepper.settle(alarms=True)
    assert stepper.delivered("a") == ["first", "waits"]
    assert stepper.delivered("b") == stepper.delivered("c") == ["first", "missed", "waits"]


@pytest.mark.parametrize("protocol", TREES)
def test_who_asks_to_leave_and_then_to_join_comes_back_when_it_has_left(protocol: type[Process]) -> None:
    stepper = stepper_of(protocol, "abc", "")
    leave(stepper, "b")
    join(stepper, "b")
    stepper.settle()
    kinds = [event.kind for event in stepper.record.events if event.process == "b"]
    assert kinds == [Kind.LEAVE, Kind.ENTER]


@pytest.mark.parametrize("protocol", TREES)
def test_leaving_outside_takes_effect_at_once_and_an_unknown_member_cannot_be_asked(protocol: type[Process]) -> None:
    stepper = stepper_of(protocol, "ab", "c")
    leave(stepper, "c")
    assert [event.kind for event in stepper.record.events] == [Kind.LEAVE]
    with pytest.raises(UsageError, match="cannot join at 'x': the processes are a, b, c"):
        join(stepper, "c", "x")


@pytest.mark.parametrize("protocol", TREES)
def test_the_last_member_stays_and_continues_to_publish(protocol: type[Process]) -> None:
    stepper = stepper_of(protocol, "ab", "")
    for process in "ab":
        leave(stepper, process)
    stepper.settle()
    publish(stepper, "b", "m")
    assert stepper.delivered("b") == ["m"]
    assert stepper.delivered("a") == []


def pass_on(stepper: Stepper, *, but: Callable[[InTransit], bool]) -> None:
    while packet := next((packet for packet in stepper.transit if not but(packet)), None):
        stepper.receive(packet.to, packet.source)


def test_views_a_joiner_that_the_crash_reports_reach_first_gives_up_and_the_other_goes_on() -> None:
    """c and d join in one view. c installs it; to d the reports of both founders' crashes overtake it."""
    stepper = stepper_of(VirtualSynchrony, "ab", "cd")
    for process in "cd":
        join(stepper, process)
    pass_on(stepper, but=lambda packet: packet.to == "d" and packet.source in "ab")
    for founder in "ab":
        stepper.suspect("d", founder)
    pass_on(stepper, but=lambda packet: packet.source == "d")
    for founder in "ab":
        stepper.crash(founder)
        stepper.suspect("c", founder)
    publish(stepper, "c", "m")
    views = [event.members for event in stepper.record.events if (event.process, event.kind) == ("c", Kind.VIEW)]
    assert views == [("a", "b", "c", "d"), ("c",)]
    assert stepper.delivered("c") == ["m"]
    assert stepper.record.faulty == {"a", "b", "d"}


def test_views_a_joiner_that_leaves_before_its_first_view_is_not_waited_for() -> None:
    stepper = stepper_of(VirtualSynchrony, "ab", "c")
    join(stepper, "c")
    leave(stepper, "c")
    publish(stepper, "a", "m")
    assert stepper.delivered("a") == stepper.delivered("b") == ["m"]


def record_of(*words: str, late: str = "", wishes: dict[str, bool] | None = None) -> Record:
    """An execution: ``a+m`` is that a sends m, ``a-m`` that it delivers m, ``a>`` that it enters, ``a<`` leaves."""
    kinds = {"+": Kind.SEND, "-": Kind.RECEIVE, ">": Kind.ENTER, "<": Kind.LEAVE}
    events = [Event(word[0], kinds[word[1]], word[2:]) for word in words]
    sent = {e.message: Sent(e.process, "all", frozenset("ab")) for e in events if e.kind is Kind.SEND}
    return Record(tuple(events), sent, late=frozenset(late), processes=("a", "b", *late), wishes=wishes or {})


ALL = (Guarantee.VALIDITY, Guarantee.AGREEMENT, Guarantee.INTEGRITY, Guarantee.FIFO, Guarantee.CAUSAL)


@pytest.mark.parametrize(
    ("words", "broken"),
    [
        ("a+m c> b-m a-m c-m", set()),
        ("a+m a-m b-m c> a+n a-n b-n c-n", set()),
        ("c> c+m a-m b-m", {Guarantee.VALIDITY, Guarantee.AGREEMENT}),
        ("c+m c> a-m b-m", {Guarantee.VALIDITY, Guarantee.AGREEMENT}),
        ("c> a+m a+n a-m a-n b-m b-n c-m", {Guarantee.VALIDITY, Guarantee.AGREEMENT}),
        ("c> c+m c-m a-m b-m a+n a-n b-n", {Guarantee.VALIDITY, Guarantee.AGREEMENT}),
        ("c> c+m c-m a-m b-m c<", set()),
        ("c> c< a+m a-m b-m c-m", {Guarantee.INTEGRITY}),
        ("a+m a-m b-m c-m c>", {Guarantee.INTEGRITY}),
        ("c> a+m a+n a+o a-m a-n a-o b-m b-n b-o c-m c-o c<", {Guarantee.FIFO, Guarantee.CAUSAL}),
        ("c> c< c> a+m a-m b-m a+n a-n b-n c-n", set()),
    ],
)
def test_a_joiner_is_judged_from_its_entry_on(words: str, broken: set[Guarantee]) -> None:
    record = record_of(*words.split(), late="c")
    assert {violation.guarantee for violation in violations(record, ALL)} == broken


@pytest.mark.parametrize(
    ("words", "joins", "texts"),
    [
        ("c>", True, []),
        ("", True, ["c asks to join and never does"]),
        ("c>", False, ["c asks to leave and never does"]),
        ("c> c<", False, []),
        ("a< b< c>", False, []),
    ],
)
def test_a_request_to_join_or_leave_is_met_unless_no_other_member_stays(
    words: str, joins: bool, texts: list[str]
) -> None:
    record = record_of(*words.split(), late="c", wishes={"c": joins})
    assert [violation.text for violation in violations(record, [Guarantee.VALIDITY])] == texts


def test_stays_are_from_entry_to_leaving_and_a_founder_owes_everything() -> None:
    record = record_of("c>", "a+m", "c<", "c>", late="c")
    found = {name: [(stay.start, stay.end) for stay in of_one] for name, of_one in stays(record).items()}
    assert found == {"a": [(-1, None)], "b": [(-1, None)], "c": [(0, 2), (3, None)]}
    assert {stay.process for stay, messages in owed(record).items() if messages} == {"a", "b"}
