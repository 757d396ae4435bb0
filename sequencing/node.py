"""A sequencing node: the state machine that numbers frames.

Whatever passes through a node is totally ordered by it: each call of `publish` or `transfer` is one atomic step. A step

1. refuses what does not belong: frames of another epoch, of a superseded publisher, and what was accepted before;
2. at a region's ingress, draws the region sequence (one number per event);
3. draws the next number of each atom that stamps the region here (one number per frame);
4. appends the frame to the link towards the next node of the region's path, or, at the last, to the region's egress
   stream, where its subscribers read it.

Exactly once comes from two kinds of high-water mark, kept in the same atomic step: the last event accepted of each
publisher in each region, and the last link sequence accepted from each neighbouring node. So publishers and relays may
repeat themselves freely, and a relay that dies between reading and acknowledging loses and repeats nothing.

This machine and ``adapters/step.lua`` do the same, byte by byte: `Node.keyspace` is the Redis keyspace that the script
would have left behind. The in-memory transport, the simulator and the model checks run this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import orjson

from sequencing.frames import PublishedFrame, StampedFrame
from sequencing.plan import AtomId, Step

TRIM_EVERY_EVENTS = 1024
"""Egress streams are trimmed once in so many events of a region: trimming each time would cost more than it frees."""


class Verdict(StrEnum):
    """What became of a published frame."""

    OK = "ok"
    """Accepted now: (epoch, region sequence of its last event)."""
    SEEN = "seen"
    """Accepted before, being this publisher's latest in the region: the numbers that it got then."""
    PAST = "past"
    """Wholly or partly accepted earlier than this publisher's latest: (last accepted,)."""
    GAP = "gap"
    """An earlier frame of this publisher is missing: (last accepted,)."""
    FENCED = "fenced"
    """A newer incarnation of this publisher exists: (incarnation,)."""
    STALE = "stale"
    """This node is not the region's open ingress in that epoch: (the node's epoch,)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A node's answer to one published frame."""

    verdict: Verdict
    numbers: tuple[int, ...]

    def encode(self) -> bytes:
        """Write the answer as the script does: ``ok 1 42``."""
        return " ".join([self.verdict, *map(str, self.numbers)]).encode()

    @classmethod
    def decode(cls, answer: bytes) -> Answer:
        """Read what `encode`, or the script, wrote."""
        verdict, *numbers = answer.decode().split(" ")
        return cls(Verdict(verdict), tuple(map(int, numbers)))


class TransferVerdict(StrEnum):
    """Why a transfer ended where it did."""

    OK = "ok"
    """All frames are accepted, now or before."""
    GAP = "gap"
    """A frame before these is missing: send again from the number after the last accepted."""
    UNKNOWN = "unknown"
    """This node has no step for the frame after the last accepted: its plan is not installed here yet.

    Frames of epochs that are forgotten here, or that a later epoch has overtaken on the way out, are accepted and
    dropped: an epoch begins when nobody is left to read the one before."""


@dataclass(frozen=True, slots=True)
class TransferAnswer:
    """A node's answer to a list of linked frames: the last link sequence that it has accepted, and why no more."""

    verdict: TransferVerdict
    accepted: int


@dataclass(frozen=True, slots=True)
class LinkedFrame:
    """A frame with its place in a link."""

    sequence: int
    frame: StampedFrame


@dataclass(frozen=True, slots=True)
class _Accepted:
    incarnation: int
    last: int
    epoch: int
    region_last: int


@dataclass(slots=True)
class _InstalledStep:
    flag: str
    """``I``: open ingress; ``T``: transit, or an ingress that takes no more."""
    next: str | None
    atoms: tuple[AtomId, ...]


@dataclass(slots=True)
class Node:
    """One sequencing node. ``retention_events``: how many events of each region its egress stream keeps at least."""

    name: str
    retention_events: int = 1_000_000
    epoch: int = 0
    version: int = 0
    egress: dict[str, list[StampedFrame]] = field(default_factory=dict)
    links: dict[str, list[LinkedFrame]] = field(default_factory=dict)
    _steps: dict[tuple[int, str], _InstalledStep] = field(default_factory=dict)
    _region_last: dict[tuple[int, str], int] = field(default_factory=dict)
    _atom_last: dict[AtomId, int] = field(default_factory=dict)
    _link_last: dict[str, int] = field(default_factory=dict)
    _accepted_from: dict[str, int] = field(default_factory=dict)
    _accepted_of: dict[tuple[str, str], _Accepted] = field(default_factory=dict)

    def publish(self, frames: Iterable[PublishedFrame]) -> list[Answer]:
        """Accept or refuse each frame, in order."""
        return [self._publish(frame) for frame in frames]

    def transfer(self, source: str, frames: Sequence[LinkedFrame]) -> TransferAnswer:
        """Accept frames from the link of node ``source``, each once and in order, as far as possible."""
        verdict = TransferVerdict.OK
        accepted = self._accepted_from.get(source, 0)
        for linked in frames:
            if linked.sequence <= accepted:
                continue
            if linked.sequence != accepted + 1:
                verdict = TransferVerdict.GAP
                break
            step = self._steps.get((linked.frame.epoch, linked.frame.region))
            if step is None and linked.frame.epoch >= self.epoch - 1:
                verdict = TransferVerdict.UNKNOWN
                break
            if step is not None and not self._overtaken(step, linked.frame):
                self._pass_on(step, linked.frame)
            accepted = linked.sequence
            self._accepted_from[source] = accepted
        return TransferAnswer(verdict, accepted)

    def acknowledge(self, target: str, accepted: int) -> None:
        """Drop from the link to ``target`` what it has accepted."""
        link = self.links.get(target, [])
        link[:] = [linked for linked in link if linked.sequence > accepted]

    def install(self, epoch: int, version: int, steps: Iterable[Step]) -> bool:
        """Install the steps of a plan; False (and nothing done) when a later plan is installed already.

        A new epoch closes the ingresses of earlier ones, keeps the steps of the one before for what is still under
        way, and forgets what is older.
        """
        if (epoch, version) < (self.epoch, self.version):
            return False
        if epoch > self.epoch:
            for key, step in list(self._steps.items()):
                if key[0] >= epoch - 1:
                    step.flag = "T"
                    continue
                del self._steps[key]
                self._region_last.pop(key, None)
                for atom in step.atoms:
                    self._atom_last.pop(atom, None)
        self.epoch, self.version = epoch, version
        for installed in steps:
            flag = "I" if installed.ingress else "T"
            self._steps[epoch, installed.region] = _InstalledStep(flag, installed.next, installed.atoms)
        return True

    def _publish(self, frame: PublishedFrame) -> Answer:
        step = self._steps.get((frame.epoch, frame.region))
        if step is None or step.flag != "I":
            return Answer(Verdict.STALE, (self.epoch,))
        before = self._accepted_of.get((frame.region, frame.publisher))
        if before is not None and frame.incarnation < before.incarnation:
            return Answer(Verdict.FENCED, (before.incarnation,))
        last = before.last if before is not None and before.incarnation == frame.incarnation else 0
        frame_last = frame.first + frame.count - 1
        if before is not None and last and frame_last == last:
            return Answer(Verdict.SEEN, (before.epoch, before.region_last))
        if frame.first <= last:
            return Answer(Verdict.PAST, (last,))
        if frame.first > last + 1:
            return Answer(Verdict.GAP, (last,))
        region_last = self._region_last.get((frame.epoch, frame.region), 0) + frame.count
        self._region_last[frame.epoch, frame.region] = region_last
        self._accepted_of[frame.region, frame.publisher] = _Accepted(
            frame.incarnation, frame_last, frame.epoch, region_last
        )
        self._pass_on(step, StampedFrame(frame.region, frame.epoch, region_last, frame.meta, b"", frame.body))
        return Answer(Verdict.OK, (frame.epoch, region_last))

    def _overtaken(self, step: _InstalledStep, frame: StampedFrame) -> bool:
        """Return whether the region's egress has frames of a later epoch already."""
        if step.next is not None or frame.epoch >= self.epoch:
            return False
        stream = self.egress.get(frame.region, [])
        return len(stream) > 0 and stream[-1].epoch > frame.epoch

    def _pass_on(self, step: _InstalledStep, frame: StampedFrame) -> None:
        stamp = [frame.stamp] if frame.stamp else []
        for atom in step.atoms:
            number = self._atom_last.get(atom, 0) + 1
            self._atom_last[atom] = number
            stamp.append(b"%d,%d" % (atom, number))
        frame = StampedFrame(frame.region, frame.epoch, frame.last, frame.meta, b",".join(stamp), frame.body)
        if step.next is None:
            self.egress.setdefault(frame.region, []).append(frame)
            self._trim(frame)
        else:
            sequence = self._link_last.get(step.next, 0) + 1
            self._link_last[step.next] = sequence
            self.links.setdefault(step.next, []).append(LinkedFrame(sequence, frame))

    def _trim(self, frame: StampedFrame) -> None:
        count = int(frame.meta.split(b" ", 2)[1])
        crossed = frame.last // TRIM_EVERY_EVENTS > (frame.last - count) // TRIM_EVERY_EVENTS
        if crossed and frame.last > self.retention_events:
            oldest = (frame.epoch, frame.last - self.retention_events + 1)
            stream = self.egress[frame.region]
            stream[:] = [kept for kept in stream if (kept.epoch, kept.last) >= oldest]

    def keyspace(self) -> dict[bytes, dict[bytes, bytes] | list[tuple[bytes, list[bytes]]]]:
        """Return the keys under this node's hash tag as the script would have left them: hashes and streams."""
        keys = NodeKeys(self.name)
        hashes: dict[str, dict[str, str | bytes]] = {
            keys.node: {
                "epoch": str(self.epoch),
                "version": str(self.version),
                "retention": str(self.retention_events),
            }
            if self.epoch
            else {},
            keys.steps: {
                f"{epoch} {region}": encode_step(step.flag, step.next, step.atoms)
                for (epoch, region), step in self._steps.items()
            },
            keys.counters: dict(self._counter_fields()),
            keys.publishers: {
                f"{region}\n{publisher}": f"{seen.incarnation} {seen.last} {seen.epoch} {seen.region_last}"
                for (region, publisher), seen in self._accepted_of.items()
            },
        }
        found: dict[bytes, dict[bytes, bytes] | list[tuple[bytes, list[bytes]]]] = {
            key.encode(): {
                name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in fields.items()
            }
            for key, fields in hashes.items()
            if fields
        }
        for region, frames in self.egress.items():
            found[keys.egress(region).encode()] = [
                (b"%d-%d" % (f.epoch, f.last), [b"m", f.meta, b"s", f.stamp, b"b", f.body]) for f in frames
            ]
        for target, linked in self.links.items():
            found[keys.link(target).encode()] = [(b"%d-0" % each.sequence, _link_fields(each.frame)) for each in linked]
        return found

    def _counter_fields(self) -> Iterator[tuple[str, str]]:
        for (epoch, region), last in self._region_last.items():
            yield f"r {epoch} {region}", str(last)
        for atom, last in self._atom_last.items():
            yield str(atom), str(last)
        for target, last in self._link_last.items():
            yield f"o {target}", str(last)
        for source, last in self._accepted_from.items():
            yield f"i {source}", str(last)


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """The Redis keys of a node, all under its hash tag, so that one script may touch them together."""

    name: str

    @property
    def node(self) -> str:
        """Hash: epoch, version, retention."""
        return f"gamecast:{{{self.name}}}:node"

    @property
    def steps(self) -> str:
        """Hash: ``epoch region`` → JSON ``[flag, next, atom, …]``."""
        return f"gamecast:{{{self.name}}}:steps"

    @property
    def counters(self) -> str:
        """Hash: ``r epoch region``, ``o target``, ``i source``, and atoms by their ids → last number."""
        return f"gamecast:{{{self.name}}}:counters"

    @property
    def publishers(self) -> str:
        """Hash: ``region newline publisher`` → ``incarnation last epoch region_last``."""
        return f"gamecast:{{{self.name}}}:publishers"

    def egress(self, region: str) -> str:
        """Stream of a region's finished frames; entry ids are ``epoch-last``."""
        return f"gamecast:{{{self.name}}}:egress:{region}"

    def link(self, target: str) -> str:
        """Stream of the frames on their way to the next node; entry ids are ``sequence-0``."""
        return f"gamecast:{{{self.name}}}:link:{target}"


def encode_step(flag: str, following: str | None, atoms: Sequence[int]) -> bytes:
    """Write an installed step as the script reads it."""
    return orjson.dumps([flag, following or "-", *map(str, atoms)])


def _link_fields(frame: StampedFrame) -> list[bytes]:
    return [
        *(b"r", frame.region.encode(), b"e", b"%d" % frame.epoch, b"n", b"%d" % frame.last),
        *(b"m", frame.meta, b"s", frame.stamp, b"b", frame.body),
    ]
