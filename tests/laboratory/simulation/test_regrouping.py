"""Propagation trees while processes join and leave groups: judged message by message, by who was in its epoch."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import suppress
from random import Random

import pytest

from classic.executions.guarantees import violations
from classic.executions.record import Event, Kind, Record, Sent
from classic.protocols.process import Deliver, Effect, Guarantee, Message, Send
from classic.protocols.propagation_regrouping import Closed, PropagationRegrouping
from classic.protocols.setup import Setup

SEEDS = 60


class Careful(PropagationRegrouping):
    """As it is, and says of each message in which epoch it is sent, and who is in the group then."""

    def on_start(self) -> None:
        super().on_start()
        self.sent_to: dict[str, frozenset[str]] = {}

    def on_publish(self, message: Message) -> None:
        if self.next is None:
            self.sent_to[message.id] = frozenset(self.setup.members(message.group))
        super().on_publish(message)


class Hasty(Careful):
    """Goes on without having delivered what was sent."""

    def on_receive(self, source: str, packet: object) -> None:
        super().on_receive(source, Closed(packet.epoch, ()) if isinstance(packet, Closed) else packet)


class Drawn:
    """A run: any link's next packet is received, a member publishes, somebody joins or leaves a group."""

    def __init__(self, protocol: type[Careful], seed: int) -> None:
        self.random = Random(seed)
        names = tuple("abcdef"[: self.random.randint(3, 6)])
        groups = {g: sorted(self.random.sample(names, self.random.randint(1, len(names)))) for g in "ghij"}
        self.processes = {name: protocol(name, Setup.of(groups, names)) for name in names}
        self.links: dict[tuple[str, str], deque[object]] = defaultdict(deque)
        self.events: list[Event] = []
        self.messages: dict[str, Message] = {}
        for name, process in self.processes.items():
            self._carry_out(name, process.start())
        for _ in range(400):
            self._something()
        while self._receive():
            pass

    def record(self) -> Record:
        """What happened; a message is for those that were in its group in the epoch in which it was sent.

        Other members are another group to the checker of FIFO order, which wants all of a group; that of causal order
        looks at all groups, and at each message's own members.
        """
        to = {message: group for process in self.processes.values() for message, group in process.sent_to.items()}
        sent = {
            m.id: Sent(m.sender, f"{m.group} {sorted(to.get(m.id, ()))}", to.get(m.id, frozenset()))
            for m in self.messages.values()
        }
        return Record(tuple(self.events), sent, processes=tuple(self.processes))

    def _something(self) -> None:
        chance = self.random.random()
        name = self.random.choice(list(self.processes))
        process = self.processes[name]
        mine = process.setup.groups_of(name)
        staying = [group for group in mine if not any(group in interest.leaves for interest in process.outstanding)]
        if chance < 0.12 and staying:
            message = Message(f"m{len(self.messages)}", name, self.random.choice(staying))
            self.messages[message.id] = message
            self.events.append(Event(name, Kind.SEND, message.id))
            self._carry_out(name, process.publish(message))
        elif chance < 0.16:
            group = self.random.choice("ghijk")
            joins = {"joins": [group]} if group not in mine else {"leaves": [group]}
            self._carry_out(name, process.regroup(**joins))
        else:
            self._receive()

    def _receive(self) -> bool:
        busy = [link for link, packets in self.links.items() if packets]
        if busy:
            source, to = self.random.choice(busy)
            self._carry_out(to, self.processes[to].receive(source, self.links[source, to].popleft()))
        return bool(busy)

    def _carry_out(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, packet):
                    self.links[name, to].append(packet)
                case Deliver(message):
                    self.events.append(Event(name, Kind.RECEIVE, message.id))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_exercise_6_11_processes_join_and_leave_groups_and_everybody_keeps_one_causal_order(seed: int) -> None:
    run = Drawn(Careful, seed)
    assert [violation.text for violation in violations(run.record(), PropagationRegrouping.guarantees)] == []
    assert {process.epoch for process in run.processes.values()} == {run.processes["a"].epoch}
    assert run.processes["a"].epoch > 1


def test_who_goes_on_before_everything_is_delivered_breaks_promises() -> None:
    found = set()
    for seed in range(SEEDS):
        with suppress(KeyError):  # of a tree that should still have been there
            found |= {v.guarantee for v in violations(Drawn(Hasty, seed).record(), PropagationRegrouping.guarantees)}
    assert found >= {Guarantee.TOTAL, Guarantee.CAUSAL}
