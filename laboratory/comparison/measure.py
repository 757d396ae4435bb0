"""Run a protocol on a workload, and measure its costs."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from typing import Any

from classic.executions.guarantees import violations
from classic.executions.journal import Journal
from classic.protocols.catalogue import make_processes, require_fit
from classic.protocols.process import Alarm, Deliver, Effect, Message, Process, Send
from classic.protocols.wire import messages_in, metadata_bytes
from laboratory.comparison.atoms import Atoms
from laboratory.comparison.workload import PAYLOAD, Workload

GRACE_MS = 600_000.0
"""How long after the last publication deliveries are waited for: counting one by one can fall minutes behind."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a protocol on a workload. Latencies are of deliveries to others than the sender.

    ``stretch``: time to deliver over direct delay, as a ratio of sums; ``stretch_p50``, ``stretch_max``: the same by
    destination, the median and the worst one's; ``metadata_bytes``: a packet that carries a message, beyond its
    payload, on average; ``control_bytes``: all that is not payload, for each multicast; ``busiest``: packets in and out
    of the busiest process, for each multicast; ``held_max``: messages that a process has received and not delivered, at
    the worst moment; ``undelivered``: deliveries that are missing at the end.
    """

    multicasts: int
    deliveries: int
    packets: float
    metadata_bytes: float
    control_bytes: float
    busiest: float
    busiest_process: str
    mean_ms: float
    p50_ms: float
    p90_ms: float
    max_ms: float
    stretch: float
    stretch_p50: float
    stretch_max: float
    held_max: int
    undelivered: int
    broken: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by name, rounded for people."""
        return {key: round(value, 3) if isinstance(value, float) else value for key, value in asdict(self).items()}


def measure(protocol: type[Process], workload: Workload) -> Costs:
    """Run a protocol on a workload; raises `UsageError` where it does not fit the protocol's assumptions."""
    run = _Run(protocol, workload)
    run.go()
    return run.costs()


class _Run:
    def __init__(self, protocol: type[Process], workload: Workload) -> None:
        self.protocol = protocol
        self.workload = workload
        self.processes: Mapping[str, Process]
        if issubclass(protocol, Atoms):
            require_fit(protocol, workload.setup)
            self.processes = {
                name: protocol(name, workload.setup, workload.placed) for name in workload.setup.processes
            }
        else:
            self.processes = make_processes(protocol, workload.setup)
        self.journal = Journal(protocol, workload.setup)
        self.now = 0.0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self._published_ms: dict[str, float] = {}
        self._due = 0
        self._latencies: list[float] = []
        self._taken_ms: dict[str, float] = defaultdict(float)
        self._direct_ms: dict[str, float] = defaultdict(float)
        """By destination, for its deliveries from others."""
        self._load: Counter[str] = Counter()
        self._packets = self._carriers = 0
        self._carried_bytes = self._all_bytes = 0
        self._weighed: dict[int, _Weighed] = {}
        self._held: dict[str, set[str]] = defaultdict(set)
        self._delivered: dict[str, set[str]] = defaultdict(set)
        self._held_max = self._deliveries = 0

    def go(self) -> None:
        for name, process in self.processes.items():
            self._carry_out(name, process.start())
        for number, (at_ms, sender, group) in enumerate(self.workload.publications, start=1):
            message = Message(f"m{number}", sender, group, PAYLOAD)
            self._at(at_ms, partial(self._publish, message))
            self._due += len(self.workload.setup.members(group))
        end = max((at_ms for at_ms, _, _ in self.workload.publications), default=0.0) + GRACE_MS
        while self._agenda and self._agenda[0][0] <= end and self._deliveries < self._due:
            self.now, _, action = heapq.heappop(self._agenda)
            action()

    def costs(self) -> Costs:
        multicasts = max(1, len(self._published_ms))
        ordered = sorted(self._latencies) or [0.0]
        stretches = sorted(self._taken_ms[name] / ms for name, ms in self._direct_ms.items() if ms) or [0.0]
        broken = {v.guarantee.value for v in violations(self.journal.record(), self.protocol.guarantees)}
        busiest, load = max(self._load.items(), key=lambda item: item[1], default=("", 0))
        return Costs(
            multicasts=len(self._published_ms),
            deliveries=self._deliveries,
            packets=self._packets / multicasts,
            metadata_bytes=self._carried_bytes / max(1, self._carriers),
            control_bytes=self._all_bytes / multicasts,
            busiest=load / multicasts,
            busiest_process=busiest,
            mean_ms=sum(ordered) / len(ordered),
            p50_ms=ordered[len(ordered) // 2],
            p90_ms=ordered[len(ordered) * 9 // 10],
            max_ms=ordered[-1],
            stretch=sum(ordered) / max(sum(self._direct_ms.values()), 1e-9),
            stretch_p50=stretches[len(stretches) // 2],
            stretch_max=stretches[-1],
            held_max=self._held_max,
            undelivered=self._due - self._deliveries,
            broken=tuple(sorted(broken)),
        )

    def _at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time, next(self._serial), action))

    def _publish(self, message: Message) -> None:
        self._published_ms[message.id] = self.now
        self.journal.published(message)
        self._carry_out(message.sender, self.processes[message.sender].publish(message))

    def _carry_out(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            self.journal.carried_out(name, effect)
            match effect:
                case Send(to, packet):
                    self._weigh(name, to, packet)
                    self._at(self.now + self.workload.delay_ms[name, to], partial(self._receive, to, name, packet))
                case Alarm(alarm, after_ms):
                    self._at(self.now + after_ms, partial(self._ring, name, alarm))
                case Deliver(message):
                    self._deliver(name, message)

    def _ring(self, name: str, alarm: str) -> None:
        self._carry_out(name, self.processes[name].ring(alarm))

    def _receive(self, name: str, source: str, packet: object) -> None:
        for message in self._weighed[id(packet)].messages:
            if name in self.workload.setup.members(message.group) and message.id not in self._delivered[name]:
                self._held[name].add(message.id)
        self._carry_out(name, self.processes[name].receive(source, packet))
        self._held_max = max(self._held_max, len(self._held[name]))

    def _deliver(self, name: str, message: Message) -> None:
        self._deliveries += 1
        self._held[name].discard(message.id)
        self._delivered[name].add(message.id)
        if name != message.sender:
            self._latencies.append(self.now - self._published_ms[message.id])
            self._taken_ms[name] += self.now - self._published_ms[message.id]
            self._direct_ms[name] += self.workload.delay_ms[message.sender, name]

    def _weigh(self, source: str, to: str, packet: object) -> None:
        self._packets += 1
        self._load[source] += 1
        self._load[to] += 1
        weighed = self._weighed.get(id(packet))
        if weighed is None:
            weight = getattr(packet, "metadata_bytes", None)
            weight = metadata_bytes(packet) if weight is None else weight
            weighed = self._weighed[id(packet)] = _Weighed(packet, tuple(messages_in(packet)), weight)
        self._all_bytes += weighed.metadata_bytes
        if weighed.messages:
            self._carriers += 1
            self._carried_bytes += weighed.metadata_bytes


@dataclass(frozen=True, slots=True)
class _Weighed:
    """The content and weight of a packet, which goes to many. The packet is kept, so that no other one has its id."""

    packet: object
    messages: tuple[Message, ...]
    metadata_bytes: int
