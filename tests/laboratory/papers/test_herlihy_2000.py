"""Herlihy 2000 (Herlihy, Tirthapura, Wattenhofer, *Ordered Multicast and Distributed Swap*), section by section."""

from __future__ import annotations

from random import Random

import pytest

from classic.protocols.arrow import Arrow, Arrows
from classic.protocols.arrow import Swap as ArrowSwap
from classic.protocols.arrow_combining import ArrowCombining
from classic.protocols.arrow_counting import ArrowCounting
from classic.protocols.arrow_gaps import ArrowGaps
from classic.protocols.arrow_joining import ArrowJoining
from classic.protocols.combining import Combining, Swap
from classic.protocols.combining_counting import CombiningCounting
from classic.protocols.combining_joining import CombiningJoining
from classic.protocols.numbered import Data
from classic.protocols.process import Effect, Gap, Process, Send
from classic.protocols.setup import Setup
from classic.protocols.swap import NOTHING, Chain, Follows
from classic.protocols.tree_members import TreeMembers
from classic.stepping import Stepper

SWAPS: tuple[type[Process], ...] = (Arrow, Combining, ArrowCombining)
COUNTS: tuple[type[Process], ...] = (ArrowCounting, CombiningCounting)


def tree(processes: str, *edges: str) -> Setup:
    """A group of all processes, and edges like ``xv``; the first process is the root, or the first sink."""
    return Setup(tuple(processes), {"all": tuple(processes)}, tree=tuple((edge[0], edge[1]) for edge in edges))


def predecessors(stepper: Stepper) -> dict[str, str]:
    """Message → its predecessor, of all that was multicast so far."""
    packets = [packet.packet for packet in [*stepper.passed, *stepper.transit]]
    return {packet.message.id: packet.predecessor for packet in packets if isinstance(packet, Follows)}


# §3: the reduction.


def test_3_a_message_is_delivered_only_after_its_predecessor_and_the_first_at_once() -> None:
    stepper = Stepper(Arrow, tree("abc", "ab", "ac"))
    first, second = (stepper.publish("a") and stepper.transit[-1].packet for _ in range(2))
    assert isinstance(first, Follows)
    assert isinstance(second, Follows)
    assert (first.predecessor, second.predecessor) == (NOTHING, first.message.id)
    chain = Chain()
    assert list(chain.add(second)) == []
    assert list(chain.add(first)) == [first.message, second.message]


# §4: arrow.


def figures_1_to_5() -> Stepper:
    """Figure 1: u is the sink; v and w are behind x."""
    return Stepper(Arrow, tree("uxvw", "ux", "xv", "xw"))


def arrows(stepper: Stepper) -> dict[str, str]:
    return {name: process.arrow for name, process in stepper.processes.items() if isinstance(process, Arrow)}


def test_4_figures_1_to_5_the_second_message_is_deflected_and_both_find_their_predecessors() -> None:
    stepper = figures_1_to_5()
    assert arrows(stepper) == {"u": "u", "x": "u", "v": "x", "w": "x"}, "Figure 1"

    stepper.publish("v", message_id="m1")
    assert arrows(stepper) == {"u": "u", "x": "u", "v": "v", "w": "x"}, "Figure 2"
    assert [(packet.source, packet.to) for packet in stepper.transit] == [("v", "x")]

    stepper.publish("w", message_id="m2")
    assert arrows(stepper) == {"u": "u", "x": "u", "v": "v", "w": "w"}, "Figure 3"

    stepper.receive("x", "v")
    stepper.receive("x", "w")
    assert arrows(stepper) == {"u": "u", "x": "w", "v": "v", "w": "w"}, "Figure 4"
    swaps = [p for p in stepper.transit if isinstance(p.packet, ArrowSwap)]
    assert [(p.source, p.to, p.packet.message.id) for p in swaps if isinstance(p.packet, ArrowSwap)] == [
        ("x", "u", "m1"),
        ("x", "v", "m2"),
    ], "m2 is deflected towards v"

    stepper.receive("v", "x")
    assert predecessors(stepper) == {"m2": "m1"}, "Figure 5: m2 is multicast before m1 has found its own predecessor"
    stepper.receive("u", "x")
    assert predecessors(stepper) == {"m2": "m1", "m1": NOTHING}
    assert arrows(stepper) == {"u": "x", "x": "w", "v": "x", "w": "w"}, "v and u are no sinks any more"
    stepper.settle()
    assert {process: stepper.delivered(process) for process in "uxvw"} == {p: ["m1", "m2"] for p in "uxvw"}


def drawn_tree(random: Random, size: int) -> Setup:
    names = [f"p{i}" for i in range(size)]
    edges = tuple((random.choice(names[:i]), names[i]) for i in range(1, size))
    return Setup(tuple(names), {"all": tuple(names)}, tree=edges)


def distances(setup: Setup, start: str) -> dict[str, int]:
    found = {start: 0}
    frontier = [start]
    for process in frontier:
        for edge in setup.tree:
            if process in edge:
                other = edge[0] if edge[1] == process else edge[1]
                if other not in found:
                    found[other] = found[process] + 1
                    frontier.append(other)
    return found


def diameter(setup: Setup) -> int:
    return max(max(distances(setup, process).values()) for process in setup.processes)


def burst(protocol: type[Process], setup: Setup, random: Random, *, messages: int) -> Stepper:
    """Messages published at random places while packets move in a random order, FIFO on each link."""
    stepper = Stepper(protocol, setup)
    left = messages
    while left or stepper.transit or stepper.alarms:
        choice = random.random()
        if left and choice < 0.4:
            left -= 1
            stepper.publish(random.choice(setup.processes))
        elif stepper.transit and (choice < 0.9 or not stepper.alarms):
            packet = random.choice(stepper.transit)
            stepper.receive(packet.to, packet.source)
        elif stepper.alarms:
            stepper.ring(random.choice(stepper.alarms)[0])
    return stepper


@pytest.mark.parametrize("seed", range(25))
def test_4_a_swap_crosses_at_most_as_many_links_as_the_trees_diameter(seed: int) -> None:
    random = Random(seed)
    setup = drawn_tree(random, random.randint(2, 12))
    stepper = burst(Arrow, setup, random, messages=25)
    links: dict[str, int] = {}
    for packet in stepper.passed:
        if isinstance(packet.packet, ArrowSwap):
            links[packet.packet.message.id] = links.get(packet.packet.message.id, 0) + 1
    assert max(links.values(), default=0) <= diameter(setup)
    assert all(len(stepper.delivered(process)) == 25 for process in setup.processes), "every message finds a sink"


@pytest.mark.parametrize("seed", range(10))
def test_4_a_link_never_has_two_swaps_on_it_so_that_links_need_not_be_fifo(seed: int) -> None:
    random = Random(seed)
    setup = drawn_tree(random, 8)
    stepper = Stepper(Arrow, setup)
    for _ in range(300):
        if random.random() < 0.2:
            stepper.publish(random.choice(setup.processes))
        elif stepper.transit:
            packet = random.choice(stepper.transit)
            stepper.receive(packet.to, packet.source)
        links = [frozenset((p.source, p.to)) for p in stepper.transit if isinstance(p.packet, ArrowSwap)]
        assert len(links) == len(set(links))


def test_4_a_message_is_multicast_once_it_finds_a_sink_and_counting_waits_for_all_before_it() -> None:
    """m1 from v and m2 from w meet at x: see the figures; only m2's swap goes on."""
    ready = {}
    for protocol in (Arrow, ArrowCounting):
        stepper = Stepper(protocol, tree("uxvw", "ux", "xv", "xw"))
        stepper.publish("v", message_id="m1")
        stepper.publish("w", message_id="m2")
        for to, source in (("x", "v"), ("x", "w"), ("v", "x")):
            stepper.receive(to, source)
        multicast = {getattr(p.packet, "message", None) for p in stepper.transit if hasattr(p.packet, "message")}
        swaps = {"m1"}
        ready[protocol] = {message.id for message in multicast if message} - swaps
    assert ready == {Arrow: {"m2"}, ArrowCounting: set()}


def test_4_where_requests_are_sequential_swapping_and_counting_take_the_same_hops() -> None:
    hops = {}
    for protocol in (Arrow, ArrowCounting):
        stepper = Stepper(protocol, tree("uxvw", "ux", "xv", "xw"))
        for process in "vwuvx":
            stepper.publish(process)
            stepper.settle()
        hops[protocol] = [(d.process, d.message.id, d.hops) for d in stepper.deliveries]
    assert hops[Arrow] == hops[ArrowCounting]


# §5: combining.


def test_5_figures_6_to_9_what_combines_where_and_what_reaches_the_root() -> None:
    stepper = Stepper(Combining, tree("ryzabc", "ry", "yz", "yc", "za", "zb"))
    for process, message in (("a", "m1"), ("b", "m2"), ("c", "m3")):
        stepper.publish(process, message_id=message)
        stepper.ring(process)
    assert [(p.source, p.to) for p in stepper.transit] == [("a", "z"), ("b", "z"), ("c", "y")], "Figure 6"

    stepper.receive("z", "a")
    stepper.receive("z", "b")
    assert predecessors(stepper) == {"m2": "m1"}, "Figure 7"
    stepper.ring("z")

    stepper.receive("y", "c")
    for _ in ("the multicast of m2", "the run m1 m2"):
        stepper.receive("y", "z")
    assert predecessors(stepper) == {"m2": "m1", "m1": "m3"}, "Figure 8"
    stepper.ring("y")
    [run] = [p.packet for p in stepper.transit if isinstance(p.packet, Swap)]
    assert (run.first.id, run.last) == ("m3", "m2"), "m3 m1 m2 continues towards the root"

    for _ in ("the multicast of m1", "the run m3 m1 m2"):
        stepper.receive("r", "y")
    assert predecessors(stepper) == {"m2": "m1", "m1": "m3", "m3": NOTHING}, "Figure 9"
    root = stepper.processes["r"]
    assert isinstance(root, Combining)
    assert root.value == "m2"
    stepper.settle()
    assert stepper.delivered("a") == ["m3", "m1", "m2"]


def test_5_counting_multicasts_only_after_the_round_trip_to_the_root() -> None:
    hops = {}
    for protocol in (Combining, CombiningCounting):
        stepper = Stepper(protocol, tree("ryza", "ry", "yz", "za"))
        for _ in range(2):
            stepper.publish("a")
        stepper.settle(alarms=True)
        hops[protocol] = max(p.hops for p in stepper.passed if type(p.packet).__name__ in ("Follows", "Data"))
    # Alarms begin anew, so hops are counted from the last wait: one up and one out, or one up, three down and one out.
    assert hops == {Combining: 2, CombiningCounting: 5}


# §6: discussion.


def swap_packets(stepper: Stepper) -> int:
    return sum(isinstance(p.packet, ArrowSwap | Swap) for p in stepper.passed)


def test_6_1_a_lone_publisher_causes_no_swap_traffic_with_arrows_and_always_some_at_the_root_of_a_combining_tree() -> (
    None
):
    traffic = {}
    for protocol in (Arrow, Combining, ArrowCombining):
        stepper = Stepper(protocol, tree("rxyz", "rx", "xy", "yz"))
        stepper.publish("z")
        stepper.settle(alarms=True)
        before = swap_packets(stepper)
        for _ in range(5):
            stepper.publish("z")
            stepper.settle(alarms=True)
        traffic[protocol] = swap_packets(stepper) - before
    assert traffic == {Arrow: 0, Combining: 15, ArrowCombining: 10}, "per message: none; to the root; to the core"


def test_6_1_the_process_between_two_halves_that_take_turns_is_passed_by_every_arrow() -> None:
    stepper = Stepper(Arrow, tree("uvw", "uv", "uw"))
    for process in "vwvwvw":
        stepper.publish(process)
        stepper.settle()
    assert sum(p.to == "u" and isinstance(p.packet, ArrowSwap) for p in stepper.passed) == 6


@pytest.mark.parametrize("protocol", [*SWAPS, *COUNTS])
@pytest.mark.parametrize("seed", range(8))
def test_6_1_every_protocol_makes_one_chain_of_a_burst(protocol: type[Process], seed: int) -> None:
    random = Random(seed)
    setup = drawn_tree(random, random.randint(2, 9))
    stepper = burst(protocol, setup, random, messages=20)
    orders = {tuple(stepper.delivered(process)) for process in setup.processes}
    assert len(orders) == 1
    assert len(orders.pop()) == 20


def quiet(random: Random) -> Arrows:
    """A directory at rest: one sink, all arrows lead to it."""
    setup = drawn_tree(random, random.randint(2, 9))
    stepper = burst(Arrow, setup, random, messages=5)
    machines = {name: p for name, p in stepper.processes.items() if isinstance(p, Arrow)}
    return Arrows(setup.tree, {n: p.arrow for n, p in machines.items()}, {n: p.value for n, p in machines.items()})


@pytest.mark.parametrize("seed", range(30))
def test_6_2_joining_and_leaving_keep_the_sink_and_its_value_and_touch_neighbours_only(seed: int) -> None:
    random = Random(seed)
    directory = quiet(random)
    for step in range(10):
        sink = directory.end_of(next(iter(directory.arrow)))
        last = directory.value[sink]
        before = directory
        if len(directory.arrow) > 2 and random.random() < 0.5:
            process = random.choice(sorted(directory.arrow))
            touched = {process, *before.neighbours(process)}
            directory = directory.leaving(process)
        else:
            at = random.choice(sorted(directory.arrow))
            process, touched = f"new{step}", {at, f"new{step}"}
            directory = directory.joining(process, at=at)
        ends = {directory.end_of(process) for process in directory.arrow}
        assert len(ends) == 1
        assert directory.value[ends.pop()] == last
        changed = {p for p in before.arrow if directory.arrow.get(p, "gone") != before.arrow[p]}
        assert changed <= touched


@pytest.mark.parametrize("protocol", [ArrowJoining, CombiningJoining])
def test_6_2_who_joins_and_leaves_a_live_tree_exchanges_packets_with_neighbours_only(
    protocol: type[TreeMembers],
) -> None:
    """c, between b and d, leaves a line of five, and f joins it at e."""
    tree = (("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"))
    setup = Setup(tuple("abcdef"), {"all": tuple("abcde")}, tree=tree)
    machines = {name: protocol(name, setup) for name in setup.processes}
    for machine in machines.values():
        machine.start()

    def carry_out(name: str, effects: list[Effect]) -> set[tuple[str, str]]:
        links = {(name, effect.to) for effect in effects if isinstance(effect, Send)}
        for effect in effects:
            if isinstance(effect, Send):
                links |= carry_out(effect.to, machines[effect.to].receive(name, effect.packet))
        return links

    assert carry_out("c", machines["c"].leave()) == {("c", "b"), ("b", "c"), ("c", "d"), ("d", "c")}
    assert carry_out("f", machines["f"].join("e")) == {("f", "e"), ("e", "f")}
    assert {name: sorted(machines[name].neighbours) for name in "abdef"} == {
        "a": ["b"],
        "b": ["a", "d"],
        "d": ["b", "e"],
        "e": ["d", "f"],
        "f": ["e"],
    }


def test_6_3_total_order_with_gaps_tells_where_something_is_missing() -> None:
    stepper = Stepper(ArrowGaps, Setup(("u", "v"), {"all": ("u", "v")}, tree=(("u", "v"),), lossy_links=True))
    for message in ("m0", "m1", "m2"):
        stepper.publish("u", message_id=message)
    [lost] = [each for each in stepper.transit if isinstance(each.packet, Data) and each.packet.message.id == "m1"]
    stepper.transit.remove(lost)
    stepper.settle()
    assert stepper.delivered("u") == ["m0", "m1", "m2"]
    assert stepper.delivered("v") == ["m0"]
    assert [type(effect).__name__ for effect in stepper.ring("v")] == [Gap.__name__, "Deliver"]
    assert stepper.delivered("v") == ["m0", "m2"]
