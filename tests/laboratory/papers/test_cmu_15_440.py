"""CMU 15-440 (a lecture's notes on multicast), protocol by protocol."""

from __future__ import annotations

import pytest

from classic.protocols.fifo import Fifo
from classic.protocols.numbered import Data as Numbered
from classic.protocols.process import Deliver, Message
from classic.protocols.setup import Setup
from classic.protocols.two_phase import Commit, TwoPhase
from classic.protocols.vector_clocks import Data, VectorClocks
from classic.stepping import Stepper

ABC = Setup.broadcast("abc")


def message(sender: str, number: int) -> Message:
    return Message(f"{sender}{number}", sender, "all")


def delivered(effects: list[object]) -> list[str]:
    return [effect.message.id for effect in effects if isinstance(effect, Deliver)]


def fifo() -> Fifo:
    process = Fifo("c", ABC)
    process.start()
    return process


def test_fifo_the_expected_number_is_delivered() -> None:
    assert delivered([*fifo().receive("a", Numbered(message("a", 1), 1))]) == ["a1"]


def test_fifo_a_higher_number_waits_until_those_before_it_have_come() -> None:
    process = fifo()
    for number in (3, 2):
        assert delivered([*process.receive("a", Numbered(message("a", number), number))]) == []
    assert delivered([*process.receive("a", Numbered(message("a", 1), 1))]) == ["a1", "a2", "a3"]


def test_fifo_a_lower_number_is_a_duplicate_and_thrown_away() -> None:
    process = fifo()
    process.receive("a", Numbered(message("a", 1), 1))
    assert delivered([*process.receive("a", Numbered(message("a", 1), 1))]) == []
    assert delivered([*process.receive("a", Numbered(message("a", 2), 2))]) == ["a2"]


def test_fifo_different_senders_are_independent() -> None:
    process = fifo()
    process.receive("a", Numbered(message("a", 2), 2))
    assert delivered([*process.receive("b", Numbered(message("b", 1), 1))]) == ["b1"]


def causal() -> VectorClocks:
    process = VectorClocks("c", ABC)
    process.start()
    return process


@pytest.mark.parametrize(
    ("vector", "accepted"),
    [((1, 0, 0), True), ((2, 0, 0), False), ((1, 1, 0), False)],
    ids=["the next of its sender", "one of its sender is missing", "one that its sender had received is missing"],
)
def test_causal_a_message_is_buffered_until_nothing_that_its_sender_knew_is_missing(
    vector: tuple[int, ...], accepted: bool
) -> None:
    assert bool(delivered([*causal().receive("a", Data(message("a", 1), vector))])) is accepted


def test_causal_accepting_a_message_lets_buffered_ones_be_accepted() -> None:
    process = causal()
    process.receive("b", Data(message("b", 1), (1, 1, 0)))
    assert delivered([*process.receive("a", Data(message("a", 1), (1, 0, 0)))]) == ["a1", "b1"]


def test_total_the_commit_time_is_above_all_acknowledgements() -> None:
    stepper = Stepper(TwoPhase, ABC)
    for process, time in (("b", 10), ("c", 20)):
        machine = stepper.processes[process]
        assert isinstance(machine, TwoPhase)
        machine.time = time
    stepper.publish("a")
    for process in "bc":
        stepper.receive(process, "a")
        stepper.receive("a", process)
    commits = [packet.packet for packet in stepper.transit if isinstance(packet.packet, Commit)]
    assert {commit.time for commit in commits} == {22}


def test_total_what_was_acknowledged_before_a_commit_must_be_committed_first() -> None:
    stepper = Stepper(TwoPhase, ABC)
    stepper.publish("a", message_id="m")
    stepper.publish("b", message_id="n")
    for to, source in (("c", "a"), ("c", "b"), ("a", "b"), ("a", "b"), ("b", "a")):
        if any((p.source, p.to) == (source, to) for p in stepper.transit):
            stepper.receive(to, source)
    while any(p.to == "b" for p in stepper.transit):
        stepper.receive("b", next(p.source for p in stepper.transit if p.to == "b"))
    stepper.settle(until=lambda: any(isinstance(p.packet, Commit) and p.to == "c" for p in stepper.transit))
    while not any(isinstance(p.packet, Commit) for p in stepper.passed if p.to == "c"):
        stepper.receive("c", next(p.source for p in stepper.transit if p.to == "c"))
    machine = stepper.processes["c"]
    assert isinstance(machine, TwoPhase)
    first = min(machine.waiting.values(), key=lambda one: one.time, default=None)
    assert first is None or not first.committed, "what is first and committed is delivered at once"
    stepper.settle()
    assert stepper.delivered("a") == stepper.delivered("b") == stepper.delivered("c")
    assert len(stepper.delivered("a")) == 2
