"""When to listen to what a node pushes, and what a listening goes through. No input or output.

Reads tell how much they have found (`Worth.note_read`). Where they wait and find little, pushes are cheaper than reads
that wait on many streams; where they find much, one answer of many frames is less work than as many pushes.

The life of a listening is a table of states. What the table does not have is a defect of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

LONE_READS = 8
"""After this many reads in a row that waited and found little, listening is cheaper."""

LITTLE_FRAMES = 4
MUCH_FRAMES = 32
BUSY_READS = 8
"""After this many reads in a row that found much, reading is cheaper: many frames are less work in one answer."""

TURNS = 3
"""After this many joins or leaves, too: each time, reading names all streams again."""

MANY_CHANNELS = 32
"""A reader of so many streams listens when it is quiet: to name all of them in each wait costs more."""

QUIET_WAITS = 5
"""After this many waits in a row without a push, the connection is not worth its cost."""


class Life(StrEnum):
    """What a listening is in."""

    OFF = "it does not listen"
    REFUSED = "it may not listen, or what is pushed cannot be relied on: it never listens again"
    ASKING = "the server was asked for something, and answers at once: what was pushed before comes before the answer"
    ASKING_IN_VAIN = "the server was asked, and the read that asks is to end once it has answered"
    LISTENING = "it listens, and no read waits for what is pushed"
    WAITING = "a read waits for what is pushed"
    BROKEN_OFF = "the read that waits is to end"


class Turn(StrEnum):
    """What happens to a listening."""

    ASK = "a read asks the server, to listen to other channels than before or for a sign that it is there"
    ANSWERED = "the server has answered"
    WAIT = "a read begins to wait"
    OVER = "the read waits no longer"
    BREAK_OFF = "the read is to end, for something else is to be read"
    END = "it ends, until it is time again: something has failed, it is not worth its cost, or it pauses"
    REFUSE = "it ends for good"


_AT_WORK = Life.ASKING, Life.ASKING_IN_VAIN, Life.LISTENING, Life.WAITING, Life.BROKEN_OFF

LIVES: Mapping[tuple[Life, Turn], Life] = MappingProxyType(
    {
        (Life.OFF, Turn.ASK): Life.ASKING,
        (Life.LISTENING, Turn.ASK): Life.ASKING,
        (Life.ASKING, Turn.ANSWERED): Life.LISTENING,
        (Life.ASKING, Turn.BREAK_OFF): Life.ASKING_IN_VAIN,
        (Life.ASKING_IN_VAIN, Turn.BREAK_OFF): Life.ASKING_IN_VAIN,
        (Life.ASKING_IN_VAIN, Turn.ANSWERED): Life.LISTENING,
        (Life.LISTENING, Turn.WAIT): Life.WAITING,
        (Life.WAITING, Turn.OVER): Life.LISTENING,
        (Life.WAITING, Turn.BREAK_OFF): Life.BROKEN_OFF,
        (Life.BROKEN_OFF, Turn.BREAK_OFF): Life.BROKEN_OFF,
        (Life.BROKEN_OFF, Turn.OVER): Life.LISTENING,
        **{(life, Turn.END): Life.OFF for life in (Life.OFF, *_AT_WORK)},
        **{(life, Turn.REFUSE): Life.REFUSED for life in Life},
        (Life.REFUSED, Turn.END): Life.REFUSED,
    }
)

IS_ON = frozenset(_AT_WORK)
HAS_READ_UNDER_WAY = frozenset({Life.ASKING, Life.ASKING_IN_VAIN, Life.WAITING, Life.BROKEN_OFF})


class Worth:
    """Whether it is worth it to listen, by what reads have found lately."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin to count again: listening has ended."""
        self.lone = self.busy = self.quiet = self.turns = self.idle = 0

    def note_read(self, frames: int, *, waited: bool) -> None:
        """Note how much a read has found that did not listen."""
        if waited:
            self.lone = self.lone + 1 if 0 < frames <= LITTLE_FRAMES else 0
            self.idle = self.idle + 1 if not frames else 0
            if frames >= MUCH_FRAMES:
                self.turns = 0

    def is_due(self, channels: int) -> bool:
        """Return whether it is time to listen to so many channels."""
        is_idle = self.idle > 0 and channels >= MANY_CHANNELS
        return is_idle or self.lone >= LONE_READS or self.turns >= TURNS

    def pushed(self, frames: int) -> bool:
        """Note how much was pushed at once; return whether to read instead from now on."""
        self.busy = self.busy + 1 if frames >= MUCH_FRAMES else 0
        return self.busy >= BUSY_READS

    def waited(self, channels: int, *, in_vain: bool) -> bool:
        """Note that a wait for pushes is over; return whether that was one too many in vain."""
        self.quiet = self.quiet + 1 if in_vain else 0
        return self.quiet >= QUIET_WAITS and channels < MANY_CHANNELS
