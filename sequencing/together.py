"""Events of several regions at their publisher: one frame that waits in the outboxes of all of them.

It goes when it is the next in each, so it keeps the publisher's order everywhere; and as it enters all outboxes at
once, no two such frames wait for each other. What becomes of it becomes of it in all of its regions. Where their
ingresses are at several nodes, it is *landing* from its first answer on, until the last node on its way has decided it
(`sequencing.landing`); its outboxes wait for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sequencing.errors import GamecastError, NotTogether
from sequencing.frames import PublishedFrame
from sequencing.keyed import Part
from sequencing.outbox import FATES, Fate, OpenFrame, Outbox, Token, Turn
from sequencing.states import after


def is_next(frame: OpenFrame[Token], outboxes: Sequence[Outbox[Token]]) -> bool:
    """Return whether a frame is what each of its outboxes sends next."""
    return all(
        (each.refused is not None and each.taken is frame)
        or (each.taken is None and bool(each.frames) and each.frames[0] is frame)
        for each in outboxes
    )


def send(outboxes: Sequence[Outbox[Token]], publisher: str, way: tuple[str, ...]) -> PublishedFrame:
    """Return the frame to send now: the same again that was refused, or the next one.

    ``way``: the nodes that it visits until it is decided.
    """
    lead, incarnation = outboxes[0], max(each.incarnation for each in outboxes)
    away = ((place, each.node) for place, each in enumerate(outboxes) if each.node and each.node != way[0])
    elsewhere = tuple(sorted(away, key=lambda each: (way.index(each[1]), each[0])))
    further = way if elsewhere else ()
    if lead.refused is not None:
        extras = replace(lead.refused.extras, elsewhere=elsewhere, way=further)
        frame = replace(lead.refused, epoch=lead.epoch, incarnation=incarnation, extras=extras)
    else:
        taken = lead.frames[0]
        also = tuple(Part(each.name, each.next) for each in outboxes[1:])
        of_publisher = publisher, incarnation, lead.next, len(taken.tokens)
        body = taken.body()
        frame = PublishedFrame(
            lead.name, lead.epoch, *of_publisher, body, taken.kind, taken.extras(body, also, elsewhere, further)
        )
        for each in outboxes:
            each.taken = each.frames.pop(0)
    assert lead.taken is not None
    lead.taken.way = way
    for each in outboxes:
        each.fate = after(FATES, each.fate, Turn.SEND)
        each.sent, each.refused, each.incarnation = frame, None, incarnation
    return frame


def refuse(outboxes: Sequence[Outbox[Token]], frame: PublishedFrame) -> bool:
    """As `Outbox.refuse`, for all outboxes of a frame."""
    if any(each.fate is Fate.LOST_TRACK for each in outboxes):
        return False
    for each in outboxes:
        each.refuse(frame)
    return True


def fail(outboxes: Sequence[Outbox[Token]], error: GamecastError) -> tuple[OpenFrame[Token], GamecastError]:
    """As `Outbox.fail`: it is uncertain in all regions if it is in any."""
    taken = outboxes[0].taken
    assert taken is not None
    errors = [each.fail(error)[1] for each in outboxes]
    return taken, next((each for each in errors if not each.definite), errors[0])


def not_together(regions: Sequence[str]) -> NotTogether:
    """Return the error for regions of a network that orders double overlaps only."""
    named = ", ".join(repr(region) for region in regions)
    return NotTogether(
        f"no event can be in {named} at once: with ordering='overlap' that takes a network of one node, which has kept "
        "all since it began. Publish to each"
    )


def land(outboxes: Sequence[Outbox[Token]]) -> bool:
    """Note that a frame was accepted where it entered, and waits for other nodes; return False if one was reset."""
    if any((each.fate, Turn.LAND) not in FATES for each in outboxes):
        return False
    for each in outboxes:
        each.fate = after(FATES, each.fate, Turn.LAND)
    return True


def refused_on_its_way(outboxes: Sequence[Outbox[Token]], frame: PublishedFrame, drawn: Sequence[int]) -> None:
    """Take what was decided of a landing frame that was refused; ``drawn``: its number in each region, 0 for none.

    Where it has one, its own numbers there are used up.
    """
    for each, part, last in zip(outboxes, frame.parts, drawn, strict=True):
        each.fate = after(FATES, each.fate, Turn.DECIDE)
        if last:
            each.next = part.first + frame.count


def put_back(outboxes: Sequence[Outbox[Token]]) -> None:
    """Have a frame that was refused on its way go out again, as a new one."""
    for each in outboxes:
        each.frames.insert(0, each.settle())
