"""The faults of a network and their times: a list that is drawn from a seed and nothing else.

Faults come in rounds, alone or several that overlap. A quiet time follows each round, in which everything has to
recover. Kinds are dealt like cards, so that each comes up before one comes up again as often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import NamedTuple


class Kind(StrEnum):
    """The kinds of faults."""

    REDIS_KILLED = "redis_killed"
    RELAY_KILLED = "relay_killed"
    MANAGER_KILLED = "manager_killed"
    SERVER_KILLED = "server_killed"
    REDIS_STOPPED = "redis_stopped"
    RELAY_STOPPED = "relay_stopped"
    MANAGER_STOPPED = "manager_stopped"
    SERVER_STOPPED = "server_stopped"
    LEADER_STOPPED = "leader_stopped"
    SERVER_AWAY = "server_away"
    CONNECTIONS_CUT = "connections_cut"
    CONNECTIONS_STALLED = "connections_stalled"
    MEMORY_FULL = "memory_full"
    DISK_FULL = "disk_full"
    CLOCK_JUMPED = "clock_jumped"
    MASTER_KILLED = "master_killed"
    MASTER_STOPPED = "master_stopped"
    MASTER_PARTED = "master_parted"
    MASTER_REPLACED = "master_replaced"
    REPLICA_KILLED = "replica_killed"
    REPLICA_STOPPED = "replica_stopped"


BACK_S = 1.5
"""A process that was struck is left alone for this long, because it takes time to start."""

WHOLE_S = 12.0
"""A master that was struck is left alone for this long: Sentinel has it follow the new one after 8 s."""


class Dealt(NamedTuple):
    """How a kind is dealt: ``cards`` in the pack, whom it befalls, for how many seconds, and for how many it is left
    alone after that."""

    cards: int
    befalls: str
    shortest_s: float
    longest_s: float
    back_s: float = BACK_S


LEADER = "leader"
"""Befalls the leader of that moment."""

DEALT = {
    Kind.REDIS_KILLED: Dealt(2, "node", 0.1, 1.5),
    Kind.RELAY_KILLED: Dealt(1, "relay", 0.0, 1.5),
    Kind.MANAGER_KILLED: Dealt(1, "manager", 0.0, 1.5),
    Kind.SERVER_KILLED: Dealt(2, "server", 0.0, 1.5),
    Kind.REDIS_STOPPED: Dealt(2, "node", 0.3, 3.0),
    Kind.RELAY_STOPPED: Dealt(1, "relay", 0.3, 4.0),
    Kind.MANAGER_STOPPED: Dealt(1, "manager", 0.3, 4.0),
    Kind.SERVER_STOPPED: Dealt(2, "server", 0.3, 4.0),
    Kind.LEADER_STOPPED: Dealt(2, LEADER, 2.6, 4.0),
    Kind.SERVER_AWAY: Dealt(1, "server", 11.0, 12.5),
    Kind.CONNECTIONS_CUT: Dealt(3, "node", 0.1, 0.3),
    Kind.CONNECTIONS_STALLED: Dealt(2, "node", 0.3, 3.0),
    Kind.MEMORY_FULL: Dealt(2, "node", 0.5, 2.5),
    Kind.DISK_FULL: Dealt(1, "node", 0.3, 1.5),
    Kind.CLOCK_JUMPED: Dealt(2, "node", 2.0, 5.0),
}
"""A leader's lease is 2 s long, and a silent connection is removed after 10 s: faults that outlast them last longer."""

DEALT_WITH_REPLICAS = {
    **{kind: dealt for kind, dealt in DEALT.items() if dealt.befalls != "node"},
    Kind.MASTER_KILLED: Dealt(4, "node", 0.0, 0.0, WHOLE_S),
    Kind.MASTER_STOPPED: Dealt(4, "node", 0.3, 6.0, WHOLE_S),
    Kind.MASTER_PARTED: Dealt(4, "node", 1.0, 12.0, WHOLE_S),
    Kind.MASTER_REPLACED: Dealt(2, "node", 0.0, 0.0, WHOLE_S),
    Kind.REPLICA_KILLED: Dealt(1, "node", 0.0, 1.5),
    Kind.REPLICA_STOPPED: Dealt(2, "node", 0.3, 3.0),
}
"""Where each node is a master and its replicas."""

OF_GROUPS = frozenset(DEALT_WITH_REPLICAS) - frozenset(DEALT)
"""The kinds that a master or a replica suffers."""

JUMPS_S = 5, 120
"""How far a clock jumps, ahead or back; when the fault ends, it jumps back to where it should be."""

ROUNDS = (1, 1, 3, 5)
"""The numbers of faults in a round: half of the rounds are single faults, whose cost can be measured."""

APART_S = 0.1, 0.8
"""Between the beginnings of two faults of one round."""

QUIET_S = 1.0, 2.2
"""Between the end of a round and the next one."""

FIRST_S = 2.0
"""Until then, servers find each other."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``target``: the name of a node (``n1``) or of a process (``server-3``), or `LEADER`; ``jump_s``: how far a clock
    jumps. Times are in seconds."""

    at_s: float
    kind: Kind
    target: str
    duration_s: float
    jump_s: int = 0

    @property
    def end_s(self) -> float:
        """When it is over."""
        return self.at_s + self.duration_s


def make_schedule(
    seed: int,
    seconds: float,
    *,
    nodes: Sequence[str],
    relays: Sequence[str],
    managers: Sequence[str],
    servers: Sequence[str],
    without: Sequence[Kind] = (),
    deal: Mapping[Kind, Dealt] = DEALT,
) -> list[Fault]:
    """Return the faults of a run in the order of their beginnings; all are over within ``seconds``.

    ``without``: kinds that this machine cannot do; ``deal``: the pack.
    """
    random = Random(f"faults {seed}")
    targets = {"node": nodes, "relay": relays, "manager": managers, "server": servers, LEADER: (LEADER,)}
    pack = [kind for kind, dealt in deal.items() for _ in range(dealt.cards) if kind not in without]
    cards: list[Kind] = []
    free_at: dict[str, float] = {}
    faults: list[Fault] = []
    begin = FIRST_S
    while begin < seconds:
        at = end = begin
        for _ in range(random.choice(ROUNDS)):
            cards = cards or random.sample(pack, len(pack))
            kind = cards.pop()
            dealt = deal[kind]
            duration = random.uniform(dealt.shortest_s, dealt.longest_s)
            candidates = [target for target in targets[dealt.befalls] if free_at.get(target, 0.0) <= at]
            if candidates and at + duration <= seconds:
                target = random.choice(candidates)
                jump = random.choice((-1, 1)) * random.randint(*JUMPS_S) if kind is Kind.CLOCK_JUMPED else 0
                fault = Fault(at, kind, target, duration, jump)
                faults.append(fault)
                free_at[fault.target] = fault.end_s + dealt.back_s
                if kind is not Kind.SERVER_AWAY:  # no process waits for a server that stays away
                    end = max(end, fault.end_s + dealt.back_s - BACK_S)
            at += random.uniform(*APART_S)
        begin = end + random.uniform(*QUIET_S)
    return faults
