"""Events of several regions that enter the network at several nodes: what travels with them until they are decided.

Such an event enters at one node, and gets its number in each of its regions where it passes that region's ingress (C5
in `sequencing.conditions`). As long as a region is ahead that has not numbered it, it is *undecided*: it is one entry
of a link, with all its copies, and nobody has read it. So each ingress may still refuse it. Then it goes on *void*
(`FrameKind.VOID`): it takes the numbers that it has, and delivers nothing. Its last ingress, the *decider*, keeps its
outcome, and its publisher asks for that (`FrameKind.ASK`).

A copy that has no number yet has 0 for it, in the link as in ``meta``, and instead of a stamp the name of the node that
is to number it. That is said by the publisher, who knows the plan: a node may have steps of a plan that was prepared,
and never announced.
"""

from __future__ import annotations

from collections.abc import Mapping

from sequencing.frames import FrameKind, PublishedFrame, StampedFrame, joint_parts
from sequencing.keyed import Extras, Part


def frame_of(copy: StampedFrame) -> PublishedFrame:
    """Return the frame that a copy of one of several regions was published as, but for what it says of keys."""
    head = copy.meta.partition(b"\n")[0]
    _, count, incarnation, first, publisher = head.split(b" ", 4)
    lead, *also = joint_parts(copy.meta)
    of_publisher = publisher.decode(), int(incarnation), int(first), int(count)
    further = tuple(Part(each.region, each.first) for each in also)
    return PublishedFrame(lead.region, copy.epoch, *of_publisher, copy.body, FrameKind.JOINT, Extras(also=further))


def with_lasts(meta: bytes, lasts: Mapping[str, int]) -> bytes:
    """Return the ``meta`` of a frame of several regions with the numbers that some of these have drawn."""
    head, *lines = meta.split(b"\n")
    for at in range(0, len(lines), 3):
        if (last := lasts.get(lines[at].decode())) is not None:
            lines[at + 1] = b"%d" % last
    return b"\n".join([head, *lines])


def void(meta: bytes) -> bytes:
    """Return the ``meta`` of the same frame, refused."""
    return b"%d%b" % (FrameKind.VOID, meta[meta.index(b" ") :])


def lasts_in(meta: bytes) -> tuple[int, ...]:
    """Return the number in each of a frame's regions, 0 where it has none."""
    return tuple(part.last for part in joint_parts(meta))


def name_of(frame: PublishedFrame) -> str:
    """Return what a frame of several regions that names keys is known by."""
    return f"{frame.publisher}\n{frame.incarnation}\n{which(frame).decode()}"


def which(frame: PublishedFrame) -> bytes:
    """Return what tells a frame from others of an incarnation: a line for each region, with the publisher's own number.

    One that was refused on its way goes out again with new numbers where it had been numbered only.
    """
    return b"\n".join(b"%d %b" % (first, region.encode()) for region, first in frame.parts)


def asking(frame: PublishedFrame) -> PublishedFrame:
    """Return the question for the outcome of a frame."""
    of_publisher = frame.publisher, frame.incarnation, frame.first, frame.count
    return PublishedFrame(frame.region, frame.epoch, *of_publisher, which(frame), FrameKind.ASK)
