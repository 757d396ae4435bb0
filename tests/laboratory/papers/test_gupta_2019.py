"""Gupta 2019 (a lecture on group communication), definition by definition."""

from __future__ import annotations

from classic.executions.guarantees import violations
from classic.executions.record import Event, Kind, Record, Sent
from classic.protocols.catalogue import PROTOCOLS
from classic.protocols.process import Guarantee
from classic.protocols.resending import Resending
from classic.protocols.sequencer import Sequencer
from classic.protocols.setup import Setup
from classic.protocols.vector_clocks import VectorClocks
from classic.protocols.virtual_synchrony import VirtualSynchrony
from classic.stepping import Stepper

ALL = frozenset({"p1", "p2", "p3"})


def group(**lines: str) -> Record:
    """A multicast execution: ``p1="+M1:1 M3:1"`` is that p1 sends M1:1 and then delivers M3:1; ``x`` is a crash."""

    def event(process: str, word: str) -> Event:
        if word == "x":
            return Event(process, Kind.CRASH)
        return Event(process, Kind.SEND if word[0] == "+" else Kind.RECEIVE, word.removeprefix("+"))

    events = {process: [event(process, word) for word in line.split()] for process, line in lines.items()}
    sends = {e.message: e.process for line in events.values() for e in line if e.kind is Kind.SEND}
    return Record.of(events, {message: Sent(sender, "g", ALL) for message, sender in sends.items()})


def broken(record: Record, *guarantees: Guarantee) -> set[Guarantee]:
    return {violation.guarantee for violation in violations(record, guarantees)}


ORDERS = (Guarantee.FIFO, Guarantee.CAUSAL, Guarantee.TOTAL)


def test_fifo_example_the_order_of_different_senders_may_differ_between_receivers() -> None:
    record = group(p1="+M1:1 +M1:2 M1:1 M1:2 M3:1", p2="M1:1 M3:1 M1:2", p3="+M3:1 M3:1 M1:1 M1:2")
    assert broken(record, *ORDERS) == {Guarantee.TOTAL}


def test_fifo_a_later_message_without_an_earlier_one_breaks_it_even_if_the_earlier_one_never_comes() -> None:
    record = group(p1="+M1:1 +M1:2 M1:1 M1:2", p2="M1:2", p3="")
    assert Guarantee.FIFO in broken(record, *ORDERS)


def test_causal_implies_fifo_and_fifo_does_not_imply_causal() -> None:
    fifo_only = group(p1="+M1:1 M1:1 M2:1", p2="M1:1 +M2:1 M2:1", p3="M2:1 M1:1")
    assert broken(fifo_only, Guarantee.FIFO, Guarantee.CAUSAL) == {Guarantee.CAUSAL}
    not_fifo = group(p1="+M1:1 +M1:2 M1:1 M1:2", p2="M1:2 M1:1", p3="M1:1 M1:2")
    assert broken(not_fifo, Guarantee.FIFO, Guarantee.CAUSAL) == {Guarantee.FIFO, Guarantee.CAUSAL}


def test_total_pays_no_attention_to_the_order_of_sending() -> None:
    record = group(p1="+M1:1 +M1:2 M1:2 M1:1", p2="M1:2 M1:1", p3="M1:2 M1:1")
    assert broken(record, *ORDERS) == {Guarantee.FIFO, Guarantee.CAUSAL}


def test_every_protocol_that_declares_causal_order_declares_fifo_order() -> None:
    for protocol in PROTOCOLS.values():
        assert Guarantee.CAUSAL not in protocol.guarantees or Guarantee.FIFO in protocol.guarantees


def test_exercise_3_the_sequencer_numbers_and_members_deliver_when_they_have_both() -> None:
    stepper = Stepper(Sequencer, Setup.broadcast("sab"))
    stepper.publish("a", message_id="m")
    assert stepper.delivered("a") == [], "its sender too waits for the number"
    stepper.receive("s", "a")
    stepper.receive("b", "s")
    assert stepper.delivered("b") == [], "the number is there, the message is not"
    stepper.receive("b", "a")
    assert stepper.delivered("b") == ["m"]


def test_the_causal_rule_of_the_lecture_delivers_after_both_conditions() -> None:
    stepper = Stepper(VectorClocks, Setup(("a", "b", "c"), {"all": ("a", "b", "c")}, fifo_links=False))
    stepper.publish("a", message_id="m")
    stepper.receive("b", "a")
    stepper.publish("b", message_id="reply")
    stepper.receive("c", "b")
    assert stepper.delivered("c") == []
    stepper.receive("c", "a")
    assert stepper.delivered("c") == ["m", "reply"]


def test_reliable_multicast_a_sender_that_reaches_one_correct_process_reaches_all() -> None:
    stepper = Stepper(Resending, Setup.broadcast("abcd"))
    stepper.publish("a", message_id="m")
    stepper.transit = [packet for packet in stepper.transit if packet.to == "c"]  # a crashed after the first send
    stepper.settle()
    assert {process: stepper.delivered(process) for process in "bcd"} == {p: ["m"] for p in "bcd"}


def test_reliable_multicast_the_first_cut_without_re_sending_does_not_agree() -> None:
    record = group(p1="+M x", p2="M", p3="")
    assert broken(record, Guarantee.AGREEMENT, Guarantee.VALIDITY) == {Guarantee.AGREEMENT}


def test_virtual_synchrony_views_are_the_same_sequence_from_the_first_that_a_process_is_in() -> None:
    def views(process: str, *installed: tuple[int, str]) -> list[Event]:
        return [Event(process, Kind.VIEW, view=n, members=tuple(m.split())) for n, m in installed]

    p1 = views("p1", (1, "p1"), (2, "p1 p2 p3"), (3, "p1 p2"), (4, "p1 p2 p4"))
    right = Record.of({"p1": p1, "p2": views("p2", (2, "p1 p2 p3"), (3, "p1 p2"), (4, "p1 p2 p4"))}, {})
    assert broken(right, Guarantee.VIEWS) == set()
    for wrong in (((2, "p1 p2 p3"), (3, "p1 p2 p3"), (4, "p1 p2 p4")), ((2, "p1 p2 p3"), (4, "p1 p2 p4"))):
        assert broken(Record.of({"p1": p1, "p2": views("p2", *wrong)}, {}), Guarantee.VIEWS) == {Guarantee.VIEWS}


def synchronised(*, crash_before_anyone_has_it: bool) -> Stepper:
    """A view of three; a multicasts m, reaches b or nobody, and crashes."""
    stepper = Stepper(VirtualSynchrony, Setup(("a", "b", "c"), {"all": ("a", "b", "c")}, crashes=True))
    stepper.publish("a", message_id="m")
    if not crash_before_anyone_has_it:
        stepper.receive("b", "a")
    stepper.transit = []
    for process in "bc":
        stepper.suspect(process, "a")
    stepper.settle()
    return stepper


def members_now(stepper: Stepper, process: str) -> tuple[str, ...]:
    machine = stepper.processes[process]
    assert isinstance(machine, VirtualSynchrony)
    return machine.members_now


def test_virtual_synchrony_what_one_delivered_in_a_view_all_that_stay_deliver_in_it() -> None:
    stepper = synchronised(crash_before_anyone_has_it=False)
    assert stepper.delivered("b") == stepper.delivered("c") == ["m"]
    lines = [(e.process, e.kind, e.view) for e in stepper.record.events if e.process == "c" and e.kind is not Kind.SEND]
    assert lines == [("c", Kind.VIEW, 1), ("c", Kind.RECEIVE, 0), ("c", Kind.VIEW, 2)], "before the next view"


def test_virtual_synchrony_what_nobody_that_stays_received_is_delivered_by_none_of_them() -> None:
    stepper = synchronised(crash_before_anyone_has_it=True)
    assert stepper.delivered("b") == stepper.delivered("c") == []
    assert members_now(stepper, "b") == ("b", "c")


def test_virtual_synchrony_a_process_that_was_only_slow_is_forcibly_removed() -> None:
    stepper = Stepper(VirtualSynchrony, Setup(("a", "b", "c"), {"all": ("a", "b", "c")}, crashes=True))
    stepper.suspect("b", "a")
    stepper.settle()
    assert stepper.record.faulty == {"a"}
    stepper.publish("b", message_id="m")
    stepper.settle()
    assert stepper.delivered("c") == ["m"]
    assert stepper.delivered("a") == []


def test_virtual_synchrony_who_joins_delivers_what_is_sent_from_its_first_view_on() -> None:
    stepper = Stepper(VirtualSynchrony, Setup(("a", "b", "n"), {"all": ("a", "b")}, open_groups=True, crashes=True))
    joining = stepper.processes["n"]
    assert isinstance(joining, VirtualSynchrony)
    stepper.publish("a", message_id="before")
    stepper.settle()
    stepper.carry_out("n", joining.join(), hops=0)
    stepper.settle()
    stepper.publish("b", message_id="after")
    stepper.settle()
    assert stepper.delivered("n") == ["after"]
    assert joining.members_now == ("a", "b", "n")


def test_virtual_synchrony_who_leaves_is_gone_from_the_next_view_and_its_messages_are_not_lost() -> None:
    stepper = Stepper(VirtualSynchrony, Setup(("a", "b", "c"), {"all": ("a", "b", "c")}, crashes=True))
    stepper.publish("a", message_id="goodbye")
    leaving = stepper.processes["a"]
    assert isinstance(leaving, VirtualSynchrony)
    stepper.carry_out("a", leaving.leave())
    stepper.settle()
    assert stepper.delivered("b") == stepper.delivered("c") == ["goodbye"]
    assert members_now(stepper, "b") == ("b", "c")


def test_hybrids_fifo_total_and_causal_total_are_there() -> None:
    assert {Guarantee.FIFO, Guarantee.TOTAL} <= PROTOCOLS["fifo-total"].guarantees
    assert {Guarantee.CAUSAL, Guarantee.TOTAL} <= PROTOCOLS["causal-total"].guarantees
