"""Kshemkalyani 2008 (chapter 6), section by section: executions and their classes, and the ordering protocols.

The drawings of its figures are lost; the executions here are ones that have everything which the text says of them.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from classic.executions.classes import classify, co_violations, empty_interval_violations, mo_violations
from classic.executions.crowns import find_crown, message_graph, non_separated_extension
from classic.executions.guarantees import violations
from classic.executions.happened_before import HappenedBefore
from classic.executions.record import Event, Kind, Record, Sent
from classic.protocols import kshemkalyani_singhal as ks
from classic.protocols.catalogue import PROTOCOLS, make_processes
from classic.protocols.central import Central
from classic.protocols.kshemkalyani_singhal import KshemkalyaniSinghal
from classic.protocols.metagroups import Forest, Metagroup, build, find_metagroups
from classic.protocols.process import Guarantee, Process
from classic.protocols.propagation_tree import PropagationTree
from classic.protocols.rendezvous import Acknowledge, Data, Permission, Rendezvous, Request
from classic.protocols.setup import Assumption, Setup
from classic.protocols.three_phase import Final, OverlappingThreePhase, Propose, Queued, Revise, ThreePhase
from classic.protocols.token_ring import TokenRing
from classic.stepping import Stepper
from sequencing.errors import UsageError
from tests.laboratory.simulation.test_protocols import PrintedThreePhase


def execution(**lines: str) -> Record:
    """An execution of point-to-point messages, a line of sends and receives for each process: ``p1="s1 r2"``."""
    events: dict[str, list[Event]] = {}
    sender: dict[str, str] = {}
    receiver: dict[str, str] = {}
    for process, line in lines.items():
        events[process] = [
            Event(process, Kind.SEND if word[0] == "s" else Kind.RECEIVE, f"m{word[1:]}") for word in line.split()
        ]
        for word in line.split():
            (sender if word[0] == "s" else receiver)[f"m{word[1:]}"] = process
    return Record.of(events, {m: Sent(p, receiver[m], frozenset({receiver[m]})) for m, p in sender.items()})


FIGURE_6_1 = {"a": execution(p1="s1 s2", p2="r2 r1"), "b": execution(p1="s1 s2", p2="r1 r2")}
FIGURE_6_2 = {
    "a": execution(p1="r3 r1", p2="r2 s3", p3="s1 s2"),
    "b": execution(p1="s1 s2 r3", p2="s3 r1", p3="r2"),
    "c": execution(p1="s1 r2", p2="s2 r1 r3", p3="s3"),
    "d": execution(p1="s2 s1", p2="r2 s3", p3="r3 r1"),
}
FIGURE_6_3 = execution(p1="s1 s4 r5", p2="r1 s3 r6", p3="s2 r3 s5", p4="r2 r4 s6")
FIGURE_6_5 = {
    "a": execution(pi="s1 r2", pj="s2 r1"),
    "b": execution(p1="s1 r2", p2="s2 s3", p3="r3 r1"),
    "c": execution(p1="s1 r3", p2="s3 r2", p3="s2 r1"),
}


def is_crown(record: Record, *messages: str) -> bool:
    """Whether each message's send happens before the receive of the next one, round and round."""
    graph = message_graph(record)
    return all(later in graph[earlier] for earlier, later in pairwise((*messages, messages[0])))


def causal_sends(record: Record) -> set[tuple[str, str]]:
    before = HappenedBefore(record)
    return {(a, b) for a in before.send for b in before.send if before.holds(before.send[a], before.send[b])}


def smallest_classes(figure: dict[str, Record]) -> dict[str, str]:
    return {part: classify(record).smallest for part, record in figure.items()}


def test_6_1_1_and_6_1_2_one_execution_of_figure_6_1_is_fifo_and_the_other_is_not() -> None:
    assert smallest_classes(FIGURE_6_1) == {"a": "A", "b": "RSC"}


def test_6_1_3_the_executions_of_figure_6_2_are_in_the_classes_that_the_text_names() -> None:
    assert smallest_classes(FIGURE_6_2) == {"a": "FIFO", "b": "CO", "c": "CO", "d": "RSC"}


def test_6_1_3_figure_6_2_relates_the_sends_that_the_text_names() -> None:
    assert ("m1", "m3") in causal_sends(FIGURE_6_2["a"])
    assert causal_sends(FIGURE_6_2["b"]) == {("m1", "m2")}
    assert causal_sends(FIGURE_6_2["c"]) == set()
    assert causal_sends(FIGURE_6_2["d"]) == {("m2", "m1"), ("m2", "m3")}


def test_6_1_3_in_figure_6_2a_a_message_is_overtaken_by_a_chain_of_two_others() -> None:
    before = HappenedBefore(FIGURE_6_2["a"])
    [overtaken] = co_violations(before)
    assert (overtaken.message, overtaken.by, overtaken.process) == ("m1", "m3", "p1")
    for characterisation in (mo_violations, empty_interval_violations):
        assert {violation.message for violation in characterisation(before)} == {"m1"}


def test_6_1_4_figure_6_3_has_the_schedules_that_the_text_lists() -> None:
    assert classify(FIGURE_6_3).smallest == "RSC"
    for schedule, separated in (
        ("s1 r1 s2 r2 s3 r3 s4 r4 s5 r5 s6 r6", False),
        ("s1 s2 r1 r2 s3 s4 r4 r3 s5 s6 r6 r5", True),
    ):
        assert is_linear_extension(FIGURE_6_3, schedule.split())
        assert is_separated(schedule.split()) is separated


def test_6_2_1_figure_6_2d_has_the_non_separated_linear_extension_of_the_text() -> None:
    assert is_linear_extension(FIGURE_6_2["d"], ["s2", "r2", "s3", "r3", "s1", "r1"])
    assert is_linear_extension(FIGURE_6_2["d"], ["s2", "s1", "r2", "s3", "r3", "r1"])
    found = [f"{event.kind[0]}{event.message[1:]}" for event in non_separated_extension(FIGURE_6_2["d"])]
    assert is_linear_extension(FIGURE_6_2["d"], found)
    assert not is_separated(found)


def is_linear_extension(record: Record, schedule: list[str]) -> bool:
    place = {word: i for i, word in enumerate(schedule)}
    before = HappenedBefore(record)
    names = [f"{event.kind[0]}{event.message[1:]}" for event in before.events]
    everything = range(len(names))
    return sorted(names) == sorted(schedule) and all(
        place[names[a]] < place[names[b]] for a in everything for b in everything if before.holds(a, b)
    )


def is_separated(schedule: list[str]) -> bool:
    return any(send[1:] != receive[1:] for send, receive in zip(schedule[::2], schedule[1::2], strict=True))


def test_6_2_1_the_crowns_of_the_text_are_crowns() -> None:
    assert is_crown(FIGURE_6_5["a"], "m1", "m2")
    assert is_crown(FIGURE_6_5["b"], "m1", "m2")
    assert is_crown(FIGURE_6_5["c"], "m1", "m3", "m2")
    assert is_crown(FIGURE_6_2["a"], "m1", "m2", "m3")
    assert is_crown(FIGURE_6_2["b"], "m1", "m2", "m3")


def test_6_2_1_the_crown_test_finds_the_crowns_of_figure_6_5_and_their_sizes() -> None:
    assert {part: len(find_crown(record)) for part, record in FIGURE_6_5.items()} == {"a": 2, "b": 2, "c": 3}


def test_exercise_6_2_only_the_graphs_of_figures_6_2d_and_6_3_are_acyclic() -> None:
    figures = {f"2{part}": record for part, record in FIGURE_6_2.items()}
    figures |= {"3": FIGURE_6_3} | {f"5{part}": record for part, record in FIGURE_6_5.items()}
    assert {name for name, record in figures.items() if not find_crown(record)} == {"2d", "3"}


def test_exercise_6_4_an_execution_that_is_not_causally_ordered_has_a_crown_of_size_two() -> None:
    assert len(find_crown(FIGURE_6_2["a"])) == 2


def multicast(to: str, **lines: str) -> Record:
    """The updates of Figure 6.11: m1 and m2 go to all replicas, m from one of their senders to the other."""
    events = {
        process: [Event(process, Kind.SEND if word[0] == "s" else Kind.RECEIVE, word[1:]) for word in line.split()]
        for process, line in lines.items()
    }
    everyone = frozenset(to.split())
    messages = {"m1": Sent("p1", "replicas", everyone), "m2": Sent("p2", "replicas", everyone)}
    if "sm" in lines["p1"].split():
        messages["m"] = Sent("p1", "p2", frozenset({"p2"}))
    return Record.of(events, messages)


def broken(record: Record, *guarantees: Guarantee) -> set[Guarantee]:
    return {violation.guarantee for violation in violations(record, guarantees)}


def test_6_5_and_6_6_causal_and_total_order_of_figure_6_11_are_independent_of_each_other() -> None:
    both = (Guarantee.CAUSAL, Guarantee.TOTAL)
    to = "r1 r2 r3"
    b = multicast(to, p1="sm1 sm", p2="rm sm2", r1="rm2 rm1", r2="rm1 rm2", r3="rm1 rm2")
    c = multicast(to, p1="sm1 sm", p2="rm sm2", r1="rm2 rm1", r2="rm2 rm1", r3="rm2 rm1")
    b_without_m = multicast(to, p1="sm1", p2="sm2", r1="rm2 rm1", r2="rm1 rm2", r3="rm1 rm2")
    c_without_m = multicast(to, p1="sm1", p2="sm2", r1="rm2 rm1", r2="rm2 rm1", r3="rm2 rm1")
    assert broken(b, *both) == {Guarantee.CAUSAL, Guarantee.TOTAL}
    assert broken(c, *both) == {Guarantee.CAUSAL}, "exercise 6.8.2: total, not causal"
    assert broken(b_without_m, *both) == {Guarantee.TOTAL}, "exercise 6.8.1: causal, not total"
    assert broken(c_without_m, *both) == set()


# §6.3: rendezvous.


def rendezvous() -> Stepper:
    processes = ("i", "j", "k")
    return Stepper(Rendezvous, Setup(processes, {f"to {p}": (p,) for p in processes}))


def kinds(stepper: Stepper) -> list[type]:
    return [type(packet.packet) for packet in stepper.passed]


def test_6_3_2_sending_to_a_lower_priority_takes_the_message_and_an_acknowledgement() -> None:
    stepper = rendezvous()
    stepper.publish("i", group="to j")
    stepper.settle()
    assert kinds(stepper) == [Data, Acknowledge]


def test_6_3_2_sending_to_a_higher_priority_takes_a_request_a_permission_and_the_message() -> None:
    stepper = rendezvous()
    stepper.publish("j", group="to i")
    stepper.settle()
    assert kinds(stepper) == [Request, Permission, Data]


def test_figure_6_10_a_circle_of_three_sends_is_broken_up_into_an_execution_without_a_crown() -> None:
    stepper = rendezvous()
    for sender, group in (("i", "to j"), ("j", "to k"), ("k", "to i")):
        stepper.publish(sender, group=group)
    stepper.settle()
    assert len(stepper.deliveries) == 3
    assert find_crown(stepper.record) == []


def test_figure_6_4_two_processes_that_send_to_each_other_do_not_deadlock() -> None:
    stepper = rendezvous()
    stepper.publish("i", group="to j")
    stepper.publish("j", group="to i")
    stepper.settle()
    assert {d.process for d in stepper.deliveries} == {"i", "j"}
    assert classify(stepper.record).smallest == "RSC"


# §6.5.2: Kshemkalyani and Singhal's example, Figure 6.13.


FIGURE_6_13 = {
    "M51": "p4 p6",
    "M42": "p2 p3",
    "M43": "p3 p6",
    "M22": "p1",
    "M23": "p1",
    "M33": "p2",
    "M62": "p1",
    "M52": "p6",
}
"""Message → its destinations."""


class Figure613:
    """The messages of the figure, moved one by one; M(i,a) is named Mia after the numbers of the figure."""

    def __init__(self) -> None:
        processes = tuple(f"p{i}" for i in range(1, 7))
        groups = {message: tuple(to.split()) for message, to in FIGURE_6_13.items()}
        self.stepper = Stepper(KshemkalyaniSinghal, Setup(processes, groups, open_groups=True, fifo_links=False))

    def send(self, message: str) -> dict[str, set[str]]:
        """Send a message; return what each copy says of M51's destinations, by receiver."""
        sender = f"p{message[1]}"
        self.stepper.publish(sender, group=message, message_id=message)
        copies = [packet for packet in self.stepper.transit if self.named(packet.packet) == message]
        return {copy.to: self.carried(copy.packet) for copy in copies}

    @staticmethod
    def named(packet: object) -> str:
        assert isinstance(packet, ks.Data)
        return packet.message.id

    @staticmethod
    def carried(packet: object) -> set[str]:
        assert isinstance(packet, ks.Data)
        return next(({*dests} for sender, clock, dests in packet.log if (sender, clock) == ("p5", 1)), {"nothing"})

    def deliver(self, message: str, at: str) -> None:
        link = [p for p in self.stepper.transit if p.to == at and p.source == f"p{message[1]}"]
        ids = [self.named(p.packet) for p in link]
        self.stepper.receive(at, f"p{message[1]}", number=ids.index(message) + 1)

    def log(self, process: str) -> set[str] | None:
        """What a process' log says of M51's destinations; None: no entry."""
        machine = self.stepper.processes[process]
        assert isinstance(machine, KshemkalyaniSinghal)
        dests = machine.log.get(("p5", 1))
        return None if dests is None else set(dests)


def test_6_5_2_figure_6_13_the_logs_and_what_is_piggybacked_at_each_event() -> None:
    figure = Figure613()

    figure.send("M51")
    assert figure.log("p5") == {"p4", "p6"}
    figure.deliver("M51", at="p6")
    assert figure.log("p6") == {"p4"}, "constraint I: it is delivered to P6"
    figure.deliver("M51", at="p4")
    assert figure.log("p4") == {"p6"}

    assert figure.send("M42") == {"p2": {"p6"}, "p3": {"p6"}}
    assert figure.send("M43") == {"p3": set(), "p6": {"p6"}}, "constraint II, but for the Delivery Condition at P6"
    assert figure.log("p4") == set(), "remembered as delivered, or sure to be"

    figure.deliver("M42", at="p2")
    figure.deliver("M42", at="p3")
    assert figure.log("p2") == figure.log("p3") == {"p6"}
    assert figure.send("M22") == {"p1": {"p6"}}
    assert figure.send("M23") == {"p1": {"p6"}}
    figure.deliver("M43", at="p3")
    assert figure.log("p3") == set(), "learnt from M43 by what it does not say"
    assert figure.send("M33") == {"p2": set()}
    figure.deliver("M33", at="p2")
    assert figure.log("p2") == set(), "learnt from M33"

    assert figure.send("M62") == {"p1": {"p4"}}
    figure.deliver("M43", at="p6")
    assert figure.log("p6") == set()
    assert figure.send("M52") == {"p6": {"p4", "p6"}}
    assert figure.log("p5") == {"p4"}
    figure.deliver("M52", at="p6")
    assert not figure.log("p6"), "P5's own later message implies it; nothing is inserted again"

    figure.deliver("M22", at="p1")
    assert figure.log("p1") == {"p6"}
    figure.deliver("M62", at="p1")
    assert figure.log("p1") == set(), "P6 had it, and P4 had it: each side knew what the other lacked"
    figure.deliver("M23", at="p1")
    assert figure.log("p1") == set(), "what M23 carries is out of date"


def test_6_5_2_the_delivery_condition_holds_back_what_overtakes_its_past() -> None:
    figure = Figure613()
    figure.send("M51")
    figure.deliver("M51", at="p4")
    figure.send("M43")
    figure.deliver("M43", at="p6")
    assert figure.stepper.delivered("p6") == []
    figure.deliver("M51", at="p6")
    assert figure.stepper.delivered("p6") == ["M51", "M43"]


# §6.6: total order.


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_6_6_1_the_centralised_algorithm_takes_two_hops_and_n_messages(n: int) -> None:
    stepper = Stepper(Central, Setup.broadcast(f"p{i}" for i in range(n)))
    stepper.publish("p1")
    stepper.settle()
    assert stepper.packets == n
    assert max(delivery.hops for delivery in stepper.deliveries) == 2
    assert len(stepper.deliveries) == n


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_6_6_2_the_three_phase_algorithm_takes_three_hops_and_3_n_minus_1_messages(n: int) -> None:
    stepper = Stepper(ThreePhase, Setup.broadcast(f"p{i}" for i in range(n)))
    stepper.publish("p1")
    stepper.settle()
    assert stepper.packets == 3 * (n - 1)
    assert max(delivery.hops for delivery in stepper.deliveries) == 3
    assert len(stepper.deliveries) == n


def figure_6_14() -> Stepper:
    """A and B multicast to C and D; their clocks are such that the timestamps are the figure's."""
    groups = {"of A": ("C", "D"), "of B": ("C", "D")}
    stepper = Stepper(OverlappingThreePhase, Setup(("A", "B", "C", "D"), groups, open_groups=True, fifo_links=False))
    for sender, clock in (("A", 6), ("B", 8)):
        machine = stepper.processes[sender]
        assert isinstance(machine, ThreePhase)
        machine.clock = clock
    stepper.publish("A", group="of A", message_id="a")
    stepper.publish("B", group="of B", message_id="b")
    return stepper


def machine(stepper: Stepper, name: str) -> ThreePhase:
    found = stepper.processes[name]
    assert isinstance(found, ThreePhase)
    return found


def in_transit(stepper: Stepper, source: str) -> list[object]:
    return [packet.packet for packet in stepper.transit if packet.source == source]


def test_6_6_2_figure_6_14_the_timestamps_of_the_three_phase_example() -> None:
    stepper = figure_6_14()
    assert [packet.timestamp for packet in in_transit(stepper, "A") if isinstance(packet, Revise)] == [7, 7]
    assert [packet.timestamp for packet in in_transit(stepper, "B") if isinstance(packet, Revise)] == [9, 9]
    for receiver, source, proposed, priority in (
        ("C", "A", 7, 7),
        ("D", "B", 9, 9),
        ("C", "B", 9, 9),
        ("D", "A", 10, 10),
    ):
        stepper.receive(receiver, source)
        assert in_transit(stepper, receiver)[-1] == Propose(source.lower(), proposed)
        assert machine(stepper, receiver).priority == priority
    for sender, final in (("A", 10), ("B", 9)):
        stepper.receive(sender, "C")
        stepper.receive(sender, "D")
        assert in_transit(stepper, sender) == [Final(sender.lower(), final)] * 2

    stepper.receive("C", "A")
    assert stepper.delivered("C") == [], "step 8: b, ahead of it, is not deliverable yet"
    assert machine(stepper, "C").queue["a"].deliverable
    stepper.receive("D", "B")
    assert stepper.delivered("D") == ["b"], "step 9"
    stepper.receive("C", "B")
    assert stepper.delivered("C") == ["b", "a"], "step 10"
    stepper.receive("D", "A")
    assert stepper.delivered("D") == ["b", "a"], "step 11"


def crossing(protocol: type[Process]) -> Stepper:
    """D has proposed for B's message before A's; C delivers A's before it has heard of B's."""
    stepper = Stepper(protocol, Setup.broadcast("ABCD"))
    machine(stepper, "D").priority = 8
    stepper.publish("B", message_id="b")
    stepper.receive("D", "B")
    stepper.publish("A", message_id="a")
    stepper.receive("A", "B")
    for receiver in "BCD":
        stepper.receive(receiver, "A")
        stepper.receive("A", receiver)
    stepper.receive("C", "A")
    assert stepper.delivered("C") == ["a"]
    stepper.settle()
    return stepper


def test_6_6_2_algorithm_6_5_as_printed_does_not_give_total_order() -> None:
    as_printed, mended = crossing(PrintedThreePhase), crossing(ThreePhase)
    assert (as_printed.delivered("C"), as_printed.delivered("D")) == (["a", "b"], ["b", "a"])
    assert (mended.delivered("C"), mended.delivered("D")) == (["a", "b"], ["a", "b"])
    assert broken(as_printed.record, Guarantee.TOTAL)
    assert not broken(mended.record, Guarantee.TOTAL)


def test_6_6_2_the_queue_orders_equal_timestamps_by_sender() -> None:
    stepper = figure_6_14()
    stepper.settle()
    assert {len(machine(stepper, process).queue) for process in "CD"} == {0}
    one, other = (Queued(d.message, 5) for d in stepper.deliveries[:2])
    assert (one.place < other.place) == (one.message.sender < other.message.sender)


# §6.8: metagroups and propagation trees.

NAMED = ["ABC", "AB", "AC", "BC", "BCD", "BD", "CD", "DE", "CE", "EF", "A", "B", "C", "D", "E", "F"]
"""The metagroups that the text on Figure 6.16 names, and those without which they would not be the figure's shape."""


def metagroup(name: str) -> Metagroup:
    return frozenset(name)


def groups_of_figure_6_16() -> dict[str, list[str]]:
    """A process in each metagroup, called after it."""
    return {group: [f"p{name}" for name in NAMED if group in name] for group in "ABCDEF"}


def tree_of_figure_6_16(*, first: str = "ABC BCD DE EF") -> Forest:
    considered = [*first.split(), *(name for name in NAMED if name not in first.split())]
    return build(find_metagroups(groups_of_figure_6_16()), [metagroup(name) for name in considered])


def test_6_8_figure_6_16_the_metagroups() -> None:
    found = find_metagroups(groups_of_figure_6_16())
    assert set(found) == {metagroup(name) for name in NAMED}
    assert {"ABC", "AB", "AC", "A"} <= {"".join(sorted(m)) for m in found if "A" in m}


def test_6_8_figure_6_16_the_primary_metagroups() -> None:
    tree = tree_of_figure_6_16()
    assert {group: "".join(sorted(tree.primary[group])) for group in "ABCDEF"} == {
        **dict.fromkeys("ABC", "ABC"),
        "D": "BCD",
        "E": "DE",
        "F": "EF",
    }
    assert tree.above(metagroup("CE")) == [metagroup(name) for name in ("CE", "DE", "BCD", "ABC")]


def test_exercise_6_13_the_tree_when_ce_is_considered_before_bcd() -> None:
    tree = tree_of_figure_6_16(first="ABC CE BCD DE EF")
    assert {group: "".join(sorted(tree.primary[group])) for group in "ABCDEF"} == {
        **dict.fromkeys("ABC", "ABC"),
        "D": "BCD",
        "E": "CE",
        "F": "EF",
    }
    assert tree.parent[metagroup("CE")] == metagroup("ABC")
    assert tree.parent[metagroup("BCD")] == metagroup("CE")
    assert tree.parent[metagroup("DE")] == metagroup("BCD")
    assert tree.parent[metagroup("EF")] == metagroup("CE")


def test_6_8_subsumed_metagroups_are_below_those_that_subsume_them_or_beside() -> None:
    tree = tree_of_figure_6_16()
    for child, parent in tree.parent.items():
        assert parent is None or child & parent, "a metagroup hangs where it has a group in common"


def drawn_groups(random: Random) -> dict[str, list[str]]:
    processes = [f"p{i}" for i in range(random.randint(3, 14))]
    return {f"G{i}": random.sample(processes, random.randint(2, len(processes))) for i in range(random.randint(2, 7))}


def check_properties(tree: Forest) -> None:
    """The four properties that §6.8 lists."""
    for m in tree.members:
        for group in m:
            assert tree.primary[group] in tree.above(m), "1 and 3: above all metagroups of its group, on one path"
    for one, top in tree.primary.items():
        for other, other_top in tree.primary.items():
            if any({one, other} <= m for m in tree.members):
                assert top in tree.above(other_top) or other_top in tree.above(top), "4: on one branch"


@pytest.mark.parametrize("seed", range(60))
def test_exercises_6_10_and_6_15_any_groups_have_a_tree_with_the_four_properties(seed: int) -> None:
    check_properties(build(find_metagroups(drawn_groups(Random(seed)))))


def test_exercise_6_16_the_tree_of_given_groups_is_not_unique() -> None:
    assert tree_of_figure_6_16().parent != tree_of_figure_6_16(first="ABC CE BCD DE EF").parent


@pytest.mark.parametrize("seed", range(60))
def test_6_8_a_path_is_on_average_no_longer_than_the_number_of_groups(seed: int) -> None:
    groups = drawn_groups(Random(seed))
    tree = build(find_metagroups(groups))
    lengths = [tree.path_length(m, group) for m in tree.members for group in m]
    assert sum(lengths) / len(lengths) <= len(groups)
    assert max(lengths) < len(groups), "and none is: each step down settles a group"


@pytest.mark.parametrize("seed", range(40))
def test_exercise_6_11_3_trees_keep_their_properties_when_processes_join_and_leave_groups(seed: int) -> None:
    random = Random(seed)
    groups = {group: set(members) for group, members in drawn_groups(random).items()}
    tree = build(find_metagroups(groups))
    kept = 0
    for _ in range(12):
        process, group = f"p{random.randrange(14)}", random.choice(list(groups))
        (groups[group].discard if process in groups[group] and len(groups[group]) > 1 else groups[group].add)(process)
        before = tree.parent
        tree, same = tree.changed(groups)
        check_properties(tree)
        assert set(tree.members) == set(find_metagroups(groups))
        if same:
            kept += 1
            assert all(before[m] == tree.parent[m] for m in before.keys() & tree.parent.keys()), "only leaves changed"
    assert kept, "some changes are local"


def test_6_8_a_multicast_starts_at_the_manager_of_the_primary_metagroup() -> None:
    stepper = Stepper(PropagationTree, Setup.of(groups_of_figure_6_16()))
    stepper.publish("pE", group="E")
    process = stepper.processes["pE"]
    assert isinstance(process, PropagationTree)
    tree = process.forest
    [first] = stepper.transit
    assert first.to == tree.manager(tree.primary["E"])
    stepper.settle()
    assert {d.process for d in stepper.deliveries} == {"pDE", "pCE", "pEF", "pE"}


# §6.9: classes of algorithms.


def test_exercise_6_12_1_privilege_based_algorithms_are_causal_and_total_in_closed_groups() -> None:
    for name in ("token-ring", "token-on-demand"):
        assert {Guarantee.CAUSAL, Guarantee.TOTAL} <= PROTOCOLS[name].guarantees
        assert Assumption.CLOSED_GROUPS in PROTOCOLS[name].assumes
        assert Assumption.FIFO_LINKS not in PROTOCOLS[name].assumes


def test_exercise_6_12_2_and_3_moving_and_fixed_sequencers_are_total_with_open_groups() -> None:
    for name in ("chang-maxemchuk", "sequencer"):
        assert Guarantee.TOTAL in PROTOCOLS[name].guarantees
        assert Assumption.CLOSED_GROUPS not in PROTOCOLS[name].assumes


@pytest.mark.parametrize("name", ["token-ring", "token-on-demand", "chang-maxemchuk"])
def test_6_9_the_text_has_no_recovery_of_lost_tokens_so_a_world_with_crashes_is_refused(name: str) -> None:
    crashing = Setup(tuple("abc"), {"all": tuple("abc")}, crashes=True)
    with pytest.raises(UsageError, match=r"no process crashes.* viewstamped promises as much and would fit"):
        make_processes(PROTOCOLS[name], crashing)


def test_6_9_only_the_holder_of_the_token_sends() -> None:
    stepper = Stepper(TokenRing, Setup.broadcast("abc"))
    stepper.publish("b")
    assert stepper.transit == []
    stepper.ring("a")
    stepper.receive("b", "a")
    assert [packet.to for packet in stepper.transit] == ["a", "c", "c"], "its message to all, and the token on"
