"""The errors that gamecast raises: the cause, and what is certain afterwards.

Every error answers two questions that a caller must be able to act on:

- ``definite``: the effect certainly did not happen (the events of a publish that failed so are never delivered);
- ``retriable``: the same call may succeed later without a change of the program.

A class docstring is the default message, so that ``raise NotConnected()`` already says what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import ClassVar, Self


class GamecastError(Exception):
    """Something in gamecast failed."""

    definite: ClassVar[bool] = True
    retriable: ClassVar[bool] = False

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message if message is not None else (type(self).__doc__ or "").strip())


class UsageError(GamecastError):
    """The call cannot be carried out as it was made."""


class InvalidName(UsageError):
    """A region or connection name is empty, too long, or has control characters."""


class InvalidPayload(UsageError):
    """The payload is neither bytes nor anything that JSON can carry."""


class PayloadTooLarge(InvalidPayload):
    """The payload is larger than a frame may be: send less, or a reference to it."""


class NotTogether(UsageError):
    """No event can be in these regions at once, in this network's order. Publish to each."""


class UnknownScheme(UsageError):
    """The URL's scheme is not one that gamecast knows: use redis://, rediss://, unix://, memory:// or embedded://."""


class NotConnected(UsageError):
    """The connection is not open: use `async with gamecast.connect(...)`, or await `open()` first."""


class InvalidInput(UsageError):
    """A file or a line of it cannot be read as what it should be."""


class UnknownPosition(InvalidInput):
    """The network never gave this position: it is from another network, or from before this one was reset."""


class UnorderedHistory(UsageError):
    """No subscriber had these regions together, so their history has no common order: subscribe with order="any"."""

    pairs: tuple[tuple[str, str], ...] = ()
    """The pairs of regions without a common order."""


class ExtraMissing(UsageError):
    """What this needs comes with an extra of gamecast that is not installed."""

    extra: str | None = None
    """The extra that is missing."""

    @classmethod
    def of(cls, module: str, what: str, extra: str) -> Self:
        """Return the error for a missing module. ``what``: the part that needs it, as the message begins."""
        error = cls(f"{what} needs {module}: pip install 'gamecast[{extra}]'")
        error.extra = extra
        return error


class BufferFull(GamecastError):
    """The publish buffer is full: wait for earlier events, or raise its limit."""

    retriable = True


class TooSlow(GamecastError):
    """The application took its events too slowly, and had asked to be disconnected then."""


class OtherSideError(GamecastError):
    """Redis answered, but not as gamecast needs it to."""


class AuthenticationFailed(OtherSideError):
    """Redis refused the user or the password in the URL."""


class NotAllowed(AuthenticationFailed):
    """Redis does not let this user do that: use the URL of one that may."""


class UnsupportedServer(OtherSideError):
    """The server is older than Redis 6.2, which gamecast needs, or no Redis."""


class OutOfMemory(OtherSideError):
    """Redis is full: raise its maxmemory, or keep fewer events."""

    retriable = True


class CannotPersist(OtherSideError):
    """Redis cannot write to its disk, and so refuses what would change its data: give it room there."""

    retriable = True


class Refused(OtherSideError):
    """The sequencing node refused the frame."""


class Conflict(Refused):
    """A condition on a key does not hold: another event came first. Nothing was published."""

    region: str = ""
    key: str = ""
    position: str | None = None
    """Where the key was set last, ``epoch-sequence``; None if it is not set. With the sequence 0: the node lost what it
    knew of keys when that epoch began, and nothing has set this one since."""


class TooManyKeys(Refused):
    """The region has as many keys as it may have: delete some, by publishing None with their keys."""


class Superseded(OtherSideError):
    """Another connection has taken this name over: give each game server a name of its own."""


class SessionExpired(OtherSideError):
    """The network went on without this connection, which it had not heard of for long: open another one of its name,
    which goes on ``since`` the last positions."""


class NetworkRestarted(OtherSideError):
    """The control Redis lost what it knew, and the network begins again: connect and subscribe again, without since."""


class NetworkError(GamecastError):
    """The other side cannot be reached."""

    retriable = True


class Unreachable(NetworkError):
    """Nothing answers at the Redis URL: start a server there, or correct the URL."""


class PublishUncertain(NetworkError):
    """The connection was lost before the ingress answered: the event may or may not have been published."""

    definite = False


class PartlyPublished(GamecastError):
    """Some events of a batch were not published: `outcomes` has the receipt or the error of each."""

    definite = False

    def __init__(self, first: GamecastError, outcomes: Sequence[object]) -> None:
        failed = sum(isinstance(outcome, GamecastError) for outcome in outcomes)
        super().__init__(f"{failed} of {len(outcomes)} events were not published, or may not have been: {first}")
        self.first = first
        self.outcomes = tuple(outcomes)
        """Of each event, in the order of the call: its receipt, or its error."""

    def __reduce__(self) -> tuple[type[PartlyPublished], tuple[GamecastError, Sequence[object]]]:
        return type(self), (self.first, self.outcomes)


class PlanError(GamecastError):
    """The plan of the sequencing network cannot be made, read or installed."""


class NoLeader(PlanError):
    """No leader is running, so no plans are made: run `gamecast manager`, or install `gamecast[planner]`.

    Regions that were subscribed to stay requested, and are joined when a leader runs.
    """

    retriable = True
    definite = False


class EmbeddedServerError(GamecastError):
    """The private redis-server could not be started: install redis-server, or give the URL of a running Redis."""


class ProcessFailed(GamecastError):
    """A process of this machine that was needed has ended, or does not answer."""

    retriable = True


class CannotWrite(GamecastError):
    """A file cannot be written, whatever its name: the disk is full, perhaps."""

    retriable = True


_OF_NAMES = {
    errno.EACCES, errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT,
    errno.ENOTDIR, errno.ENOTEMPTY, errno.EPERM, errno.EROFS,
}  # fmt: skip
"""Errors of the system that another file name can mend."""


def unwritable(said: str, error: OSError) -> GamecastError:
    """Return the error to raise for a file that cannot be written: a `UsageError` if another name may help.

    ``said``: the beginning of the message; the system's reason follows it.
    """
    kind = UsageError if error.errno in _OF_NAMES else CannotWrite
    return kind(f"{said}: {error.strerror or str(error) or type(error).__name__}")


def superseded_message(name: str) -> str:
    """Return the message for a connection whose name a newer connection has."""
    return f"another connection has taken the name {name!r} over: give each game server a name of its own"


def session_expired_message(name: str) -> str:
    """Return the message for a connection that the network has removed."""
    return (
        f"the network went on without {name}, which it had not heard of for long: open another connection under its "
        "name, which goes on since the last positions"
    )


def network_restarted_message(where: str) -> str:
    """Return the message for a control Redis that lost its data: what it means for a connection, and what to do."""
    return (
        f"the control Redis at {where} came back without what it knew: it does not persist, or was emptied. "
        "The network begins again: events that were not delivered yet do not come, and positions from before are "
        "unknown. Connect again and subscribe again, without `since`; to prevent it, set `appendonly yes` and "
        "`appendfsync always` there"
    )


def is_passing(error: Exception) -> bool:
    """Return whether a failed operation may work again by itself, so that it makes sense to wait."""
    return isinstance(error, GamecastError) and error.retriable
