"""The logs of Kshemkalyani–Singhal, at each event: what constraints I and II need, and nothing more."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from classic.protocols import kshemkalyani_singhal as ks
from classic.protocols.process import Deliver, Effect, Message, Send
from classic.protocols.setup import Setup

Needed = frozenset[tuple[str, int, str]]
"""Sender and clock of a message, and a destination that must still be remembered."""
Key = tuple[str, int]


def entries(log: ks.Log) -> Needed:
    return frozenset((sender, clock, dest) for (sender, clock), dests in log.items() for dest in dests)


class Oracle:
    """The causal past of each process, whole: the messages that were sent in it, and where they were delivered."""

    def __init__(self) -> None:
        self.to: dict[Key, frozenset[str]] = {}
        self.before: dict[Key, frozenset[Key]] = {}
        """Message → the messages that were sent causally before it."""
        self.carried: dict[Key, frozenset[tuple[Key, str]]] = {}
        """Message → the deliveries that happened before it."""
        self.sent: dict[str, frozenset[Key]] = defaultdict(frozenset)
        self.delivered: dict[str, frozenset[tuple[Key, str]]] = defaultdict(frozenset)

    def send(self, process: str, key: Key, to: frozenset[str]) -> None:
        self.to[key], self.before[key], self.carried[key] = to, self.sent[process], self.delivered[process]
        self.sent[process] |= {key}

    def deliver(self, process: str, key: Key) -> None:
        self.sent[process] |= self.before[key] | {key}
        self.delivered[process] |= self.carried[key] | {(key, process)}

    def needed(self, process: str) -> Needed:
        """Constraint I: not known to be delivered. II: no later message to the same destination is known."""
        sent = self.sent[process]
        return frozenset(
            (*key, dest)
            for key in sent
            for dest in self.to[key]
            if (key, dest) not in self.delivered[process]
            and not any(key in self.before[later] and dest in self.to[later] for later in sent)
        )


def play(random: Random) -> None:
    """Run a drawn execution over links that overtake, and compare every log with the oracle's."""
    names = "abcde"[: random.randint(2, 5)]
    groups = {f"g{i}": random.sample(names, random.randint(1, len(names))) for i in range(random.randint(1, 5))}
    setup = Setup.of(groups, names)
    processes = {name: ks.KshemkalyaniSinghal(name, setup) for name in names}
    oracle = Oracle()
    transit: list[tuple[str, str, ks.Data]] = []
    keys: dict[str, Key] = {}

    def carry_out(name: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                assert isinstance(effect.packet, ks.Data)
                transit.append((name, effect.to, effect.packet))
            elif isinstance(effect, Deliver):
                oracle.deliver(name, keys[effect.message.id])
        assert entries(processes[name].log) == oracle.needed(name)

    for process in processes.values():
        process.start()
    for number in range(random.randint(1, 40)):
        if transit and random.random() < 0.6:
            source, to, packet = transit.pop(random.randrange(len(transit)))
            carry_out(to, processes[to].receive(source, packet))
            continue
        name, group = random.choice(names), random.choice(list(groups))
        to_all = frozenset(setup.members(group))
        before = oracle.needed(name)
        keys[f"m{number}"] = key = (name, processes[name].clock + 1)
        oracle.send(name, key, to_all)
        effects = processes[name].publish(Message(f"m{number}", name, group))
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.packet, ks.Data):
                log = frozenset((s, t, dest) for s, t, dests in effect.packet.log for dest in dests)
                assert log == {entry for entry in before if entry[2] not in to_all - {effect.to}}
        carry_out(name, effects)


@given(st.randoms(use_true_random=False))
def test_a_log_has_exactly_what_constraints_i_and_ii_need_at_every_event(random: Random) -> None:
    play(random)


def merge_keeping_old(log: ks.Log, carried: ks.Log) -> ks.Log:
    """Rule 2d without its half for the entries of this process's log."""
    latest_here = ks._latest(log)
    kept = {key: dests & carried.get(key, dests) for key, dests in log.items()}
    return kept | {k: d for k, d in carried.items() if k not in log and k[1] > latest_here.get(k[0], -1)}


def merge_taking_old(log: ks.Log, carried: ks.Log) -> ks.Log:
    """Rule 2d without its half for the entries of the message's log."""
    latest_there = ks._latest(carried)
    kept = {
        key: dests & carried.get(key, dests)
        for key, dests in log.items()
        if key in carried or key[1] > latest_there.get(key[0], -1)
    }
    return kept | {key: dests for key, dests in carried.items() if key not in log}


@pytest.mark.parametrize("merge", [merge_keeping_old, merge_taking_old])
def test_leaving_out_half_of_rule_2d_is_noticed(merge: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ks, "merge", merge)

    def differs(seed: int) -> bool:
        try:
            play(Random(seed))
        except AssertionError:
            return True
        return False

    assert any(map(differs, range(300)))
