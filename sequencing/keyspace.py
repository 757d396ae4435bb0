"""A node's keyspace: the state of `sequencing.node`, as hashes and streams of Redis.

All keys of a node are under its hash tag, so that one script may touch them together, in a cluster too. Numbers that
are drawn together are fields of one hash: a script reads and writes them in one call each. The id of a stream's entry
is the number after which a reader continues, so no table of positions is needed.

The machine in memory and the scripts in ``adapters/`` are twins: after the same calls, `keyspace` of the one equals,
byte by byte, what the other has stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from sequencing.frames import NODE, LinkedFrame, StampedFrame
from sequencing.keyed import head_text
from sequencing.node import Node


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """The Redis keys of a node."""

    name: str

    @property
    def node(self) -> str:
        """Hash: epoch, version, retention; the admitted run, where restarts may lose something; ``any``: the epoch in
        which any region may begin; ``pending``: whether writes were ever pending here."""
        return f"gamecast:{{{self.name}}}:node"

    @property
    def steps(self) -> str:
        """Hash: ``epoch region`` → JSON ``[flag, next, atom, …]``; a flag ``W3`` waits for epoch 3 to be closed."""
        return f"gamecast:{{{self.name}}}:steps"

    @property
    def counters(self) -> str:
        """Hash: ``r epoch region``, ``o target``, ``i source``, atoms by their ids, 0 for the node → last number."""
        return f"gamecast:{{{self.name}}}:counters"

    @property
    def publishers(self) -> str:
        """Hash: ``region newline publisher`` → ``incarnation last epoch region_last``; without a publisher: the last
        forgotten incarnation."""
        return f"gamecast:{{{self.name}}}:publishers"

    @property
    def keyed(self) -> str:
        """Hash: region whose events name keys → the epoch that began with a loss of their heads, or 0, and the epoch
        from which on they are kept here."""
        return f"gamecast:{{{self.name}}}:keyed"

    @property
    def outcomes(self) -> str:
        """Hash: ``region newline publisher`` → what became of the last frame of several regions, this one first, that
        was decided here: ``incarnation bytes``, a newline, which one it is in so many bytes, and its answer."""
        return f"gamecast:{{{self.name}}}:outcomes"

    @property
    def undecided(self) -> str:
        """Hash: a frame of several regions that names keys and went on undecided → where; see `Passing`."""
        return f"gamecast:{{{self.name}}}:undecided"

    @property
    def verdicts(self) -> str:
        """Hash: such a frame that came undecided → the link that it came by, a newline, and what became of it."""
        return f"gamecast:{{{self.name}}}:verdicts"

    def pending(self, region: str) -> str:
        """Hash of a region's pending writes: key → see `Write.encode`."""
        return f"gamecast:{{{self.name}}}:pending:{region}"

    def heads(self, region: str) -> str:
        """Hash of a region's heads: key → ``epoch sequence``."""
        return f"gamecast:{{{self.name}}}:heads:{region}"

    def shares(self, region: str) -> str:
        """Hash of what clients of gateways have of a region's keys: ``a`` → ``keys bytes`` of all, ``s`` and a client →
        its own, ``k`` and a key → ``bytes client``.

        No region begins with a newline; under the prefix of heads, the rights that users have cover it.
        """
        return f"gamecast:{{{self.name}}}:heads:\n{region}"

    def values(self, region: str) -> str:
        """Hash of the values of a region's keys: key → ``sent_at_ns binary publisher``, a newline, the payload."""
        return f"gamecast:{{{self.name}}}:values:{region}"

    def egress(self, epoch: int, region: str) -> str:
        """Stream of a region's finished frames of an epoch; entry ids are ``epoch-last``."""
        return f"gamecast:{{{self.name}}}:egress:{epoch}:{region}"

    def updates(self, region: str) -> str:
        """Channel of the updates of a region whose events end here: see `sequencing.updates`."""
        return f"gamecast:{{{self.name}}}:update:{region}"

    def link(self, target: str) -> str:
        """Stream of the frames in flight to the next node; entry ids are ``sequence-0``."""
        return f"gamecast:{{{self.name}}}:link:{target}"


def encode_step(flag: str, following: str | None, atoms: Sequence[int], after: int = 0) -> bytes:
    """Serialise an installed step as the script reads it."""
    return orjson.dumps([f"W{after}" if flag == "W" else flag, following or "-", *map(str, atoms)])


def keyspace(node: Node) -> dict[bytes, dict[bytes, bytes] | list[tuple[bytes, list[bytes]]]]:
    """Return the keys under a node's hash tag as the script would have left them: hashes and streams."""
    keys = NodeKeys(node.name)
    hashes: dict[str, dict[str, str | bytes]] = {
        keys.node: dict(_node_fields(node)),
        keys.steps: {
            f"{epoch} {region}": encode_step(step.state, step.next, step.atoms, step.after)
            for (epoch, region), step in node.steps.items()
        },
        keys.counters: dict(_counter_fields(node)),
        keys.publishers: {
            f"{region}\n{publisher}": f"{seen.incarnation} {seen.last} {seen.epoch} {seen.region_last}"
            for (region, publisher), seen in node.accepted_of.items()
        },
        keys.outcomes: {
            f"{region}\n{publisher}": outcome.encode() for (region, publisher), outcome in node.outcomes.items()
        },
        keys.undecided: {of: passing.encode() for of, passing in node.pending.passing.items()},
        keys.verdicts: {of: f"{source}\n{judgement}" for of, (source, judgement) in node.pending.verdicts.items()},
        **{keys.pending(region): dict(writes) for region, writes in node.pending.by_region().items()},
        keys.keyed: {region: f"{heads.lost} {heads.began}" for region, heads in node.heads.items()},
        **{
            keys.heads(region): {key: head_text(head) for key, head in heads.known.items()}
            for region, heads in node.heads.items()
        },
        **{keys.shares(region): heads.shares().fields() for region, heads in node.heads.items()},
        **{keys.values(region): dict(heads.values) for region, heads in node.heads.items()},
    }
    stored: dict[bytes, dict[bytes, bytes] | list[tuple[bytes, list[bytes]]]] = {
        key.encode(): {
            name.encode(): value if isinstance(value, bytes) else value.encode() for name, value in fields.items()
        }
        for key, fields in hashes.items()
        if fields
    }
    for (epoch, region), frames in node.egress.items():
        stored[keys.egress(epoch, region).encode()] = [
            (b"%d-%d" % (f.epoch, f.last), [b"m", f.meta, b"s", f.stamp, b"b", f.body]) for f in frames
        ]
    for target, linked in node.links.items():
        stored[keys.link(target).encode()] = [
            (
                b"%d-0" % each.sequence,
                [text for field, value in link_words(each).items() for text in (field.encode(), value)],
            )
            for each in linked
        ]
    return stored


def _node_fields(node: Node) -> Iterator[tuple[str, str]]:
    if node.run:
        yield "run", node.run
    if node.epoch:
        yield from (("epoch", str(node.epoch)), ("version", str(node.version)))
        yield "retention", str(node.retention_events)
    if node.any_epoch:
        yield "any", str(node.any_epoch)
    if node.has_pending:
        yield "pending", "1"


def _counter_fields(node: Node) -> Iterator[tuple[str, str]]:
    for (epoch, region), last in node.region_last.items():
        yield f"r {epoch} {region}", str(last)
    for atom, last in node.atom_last.items():
        yield str(atom), str(last)
    if node.ended_last:
        yield str(NODE), str(node.ended_last)
    for target, last in node.link_last.items():
        yield f"o {target}", str(last)
    for source, last in node.accepted_from.items():
        yield f"i {source}", str(last)


def link_words(linked: LinkedFrame) -> dict[str, bytes]:
    """Return an entry of a link: field → text, in the order of the script's words.

    Copies that go the same way have a line each of regions, numbers and stamps. ``x``: see
    `LinkedFrame.said`.
    """
    frame = linked.frame
    said = {"x": linked.said} if linked.said else {}
    return {
        "r": b"\n".join([copy.region.encode() for copy in linked.copies]),
        "e": b"%d" % frame.epoch,
        "n": b"\n".join([b"%d" % copy.last for copy in linked.copies]),
        "m": frame.meta,
        "s": b"\n".join([copy.stamp for copy in linked.copies]),
        "b": frame.body,
        **said,
    }


def linked_of(
    sequence: int,
    regions: bytes,
    epoch: bytes,
    lasts: bytes,
    meta: bytes,
    stamps: bytes,
    body: bytes,
    said: bytes = b"",
) -> LinkedFrame:
    """Return what an entry of a link says, as `link_words` writes it."""
    if b"\n" not in regions:
        return LinkedFrame(sequence, StampedFrame(regions.decode(), int(epoch), int(lasts), meta, stamps, body))
    lines = zip(regions.decode().split("\n"), lasts.split(b"\n"), stamps.split(b"\n"), strict=True)
    first, *others = [StampedFrame(region, int(epoch), int(last), meta, stamp, body) for region, last, stamp in lines]
    return LinkedFrame(sequence, first, tuple(others), said)
