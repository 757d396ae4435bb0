"""The classic protocols live: the same state machines as in the simulator, over mailboxes in Redis or in this process.

    async with classic.connect("redis://…", name="a", protocol="isis", processes=["a", "b", "c"]) as client:
        await client.publish("all", {"type": "spell"})
        async for message in client:
            ...

Every participant passes the same set-up: processes, groups, protocol, network. A set-up that breaks an assumption of
the protocol is refused with `UsageError`. There is no membership service: the members of a group are fixed. The
application reports that a process has crashed (`suspect`), to the protocols that go on after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import orjson

from adapters.mailboxes import Mailbox, MemoryMailbox, Packet, RedisMailbox
from adapters.redis.places import SINGLE_SERVER_SCHEMES
from classic.protocols.catalogue import PROTOCOLS, find_protocol, require_fit
from classic.protocols.process import (
    Alarm,
    Deliver,
    Effect,
    Gap,
    Halt,
    Install,
    Joinable,
    Message,
    Regrouping,
    Scheduled,
    Send,
    Standing,
)
from classic.protocols.setup import Assumption, Setup
from classic.protocols.wire import decode, encode
from gamecast.arguments import pairs_of
from gamecast.client.payloads import NULL, lacks_number, unfit_number
from sequencing.errors import NetworkError, NotConnected, UnknownScheme, UsageError
from sequencing.names import check_connection_name, check_region

_log = logging.getLogger(__name__)

BEAT_S = 1.0
ABSENT_S = 3.0
"""A process that has not been heard of for so long is noted; `Mailbox.beat` says how long that is."""

Handed = Message | Gap | Install | Halt | Scheduled
"""The items that an application receives: messages, and the protocols' own announcements between them."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The application's report that a process has crashed."""

    process: str


def connect(
    url: str,
    *,
    name: str,
    protocol: str,
    processes: Sequence[str],
    groups: Mapping[str, Iterable[str]] | None = None,
    tree: Sequence[tuple[str, str]] = (),
    open_groups: bool = False,
    network: str = "default",
) -> ClassicClient:
    """Return a process of a classic protocol; it opens with ``async with``.

    ``url``: ``redis://``, ``rediss://`` or ``unix://`` for mailboxes there, ``memory://`` for ones in this process.
    ``network``: distinguishes networks that share a server; a network is used once. The others are those of `prepare`.

    Raises `UsageError` if the set-up breaks an assumption of the protocol; does not block.
    """
    setup = prepare(name, protocol, processes, groups, tree=tree, open_groups=open_groups)
    check_network(network)
    return ClassicClient(name, protocol, setup, mailbox_at(url, network, name))


def prepare(
    name: str,
    protocol: str,
    processes: Sequence[str],
    groups: Mapping[str, Iterable[str]] | None,
    *,
    tree: Sequence[tuple[str, str]] = (),
    open_groups: bool = False,
) -> Setup:
    """Return the set-up that all participants use, checked.

    ``protocol``: a name of the catalogue. ``processes``: all of them, in the same order everywhere; if empty, the
    sorted members of the groups. ``groups``: by default one group of all, called ``all``. ``tree``: for the protocols
    that need one, by default a star around the first process.

    Raises `UsageError` if the set-up breaks an assumption of the protocol, naming protocols that would fit.
    """
    check_connection_name(name)
    kind = find_protocol(protocol)
    _check_names(processes, "processes is a list of names")
    if groups is not None and not isinstance(groups, Mapping):
        raise UsageError(f"groups is a mapping, region → its members, not {type(groups).__name__}")
    for group, members in (groups or {}).items():
        check_region(group)
        _check_names(members, f"the members of {group!r} are a list of names")
    if not processes and not groups:
        raise UsageError("who takes part in a classic protocol is fixed: give processes=[…], or groups={…} of them")
    edges = tuple(pairs_of(tree, "tree", "pairs of processes"))
    for edge in edges:
        _check_names(edge, "the edges of a tree are pairs of names")
    made = Setup.of(groups or {"all": processes}, processes)
    if name not in made.processes:
        raise UsageError(f"{name} is none of the processes: {', '.join(made.processes)}")
    star = tuple((made.processes[0], other) for other in made.processes[1:])
    setup = replace(made, tree=edges or star, open_groups=open_groups)
    require_fit(kind, setup)
    return setup


def _check_names(names: Iterable[str], what: str) -> None:
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise UsageError(f"{what}, not {names!r}")
    for name in names:
        check_connection_name(name)


def check_network(network: object) -> None:
    """Raise `UsageError` unless this is a valid name of a network."""
    if not isinstance(network, str):
        raise UsageError(f"network is a name, that of all who take part, not {network!r}")


def mailbox_at(url: str, network: str, name: str) -> Mailbox:
    """Return the mailbox of a process; raises `UnknownScheme`."""
    match urlsplit(url).scheme:
        case "memory":
            return MemoryMailbox(network, name)
        case scheme if scheme in SINGLE_SERVER_SCHEMES:
            return RedisMailbox(url, network, name)
        case scheme:
            raise UnknownScheme(f"mailboxes are in redis://, rediss://, unix:// or memory://, not {scheme}://")


@dataclass(frozen=True, slots=True)
class Change:
    """The application's request to join at a member, or to leave; with groups, to join or leave these."""

    joins: bool
    at: str = ""
    groups: tuple[str, ...] = ()


class ClassicClient:
    """One process: an owner task that steps the machine, and one that reads the mailbox."""

    def __init__(self, name: str, protocol: str, setup: Setup, mailbox: Mailbox) -> None:
        self.name = name
        self.setup = setup
        self._protocol = find_protocol(protocol)
        self._machine = self._protocol(name, setup)
        self._mailbox = mailbox
        self._published = 0
        self._inbox: asyncio.Queue[Packet | Alarm | Message | Suspicion | Change] = asyncio.Queue()
        self._out: deque[Handed] = deque()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped: Halt | None = None
        """Why this process is a member no longer, and cannot be one again."""
        self._changes = 0
        """Requests to join and to leave that the machine has not been given yet."""
        self.absent: dict[str, float] = {}
        """Processes of groups of this one that have not been heard of for `ABSENT_S`: for how many seconds by now."""

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(work()) for work in (self._step, self._read, self._watch)]
        for task in self._tasks:
            task.add_done_callback(lambda _: self._changed.set())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._changed.set()
        await self._mailbox.close()

    @property
    def waiting(self) -> int:
        """The number of items that wait to be taken."""
        return len(self._out)

    async def publish(self, group: str, payload: Any) -> Message:
        """Pass a payload (any value that orjson takes) to the protocol, and return its message.

        Raises `UsageError` for an unknown group or, where groups are closed, a group that this process is not in.
        """
        return self.publish_now(group, payload)

    def publish_now(self, group: str, payload: Any) -> Message:
        """Publish without waiting; arguments and errors as `publish`."""
        if not self._tasks:
            raise NotConnected("the process is not open: use `async with classic.connect(...)`")
        if self._stopped is not None:
            raise NotConnected(f"{self.name} takes part no longer: {self._stopped.reason}")
        setup = self._machine.setup  # its groups may have changed
        members = setup.members(group)
        if not (setup.open_groups or self.name in members or isinstance(self._machine, Joinable)):
            raise UsageError(f"{self.name} is no member of {group}, and groups are closed here: say open_groups=True")
        text = orjson.dumps(payload)
        if NULL in text and lacks_number(payload):
            raise unfit_number(group)
        self._published += 1
        message = Message(f"{self.name}-{self._published}", self.name, group, text.decode())
        self._inbox.put_nowait(message)
        return message

    def suspect(self, process: str) -> None:
        """Report to the protocol that another process has crashed.

        Raises `UsageError` if it is no other process, or if the protocol takes no such reports.
        """
        if Assumption.CRASHES_REPORTED not in self._protocol.assumes:
            able = ", ".join(n for n, kind in PROTOCOLS.items() if Assumption.CRASHES_REPORTED in kind.assumes)
            raise UsageError(f"{self._protocol.title} takes no reports of crashes; these do: {able}")
        if process == self.name or process not in self.setup.processes:
            raise UsageError(f"suspect() names another one of {', '.join(self.setup.processes)}, not {process!r}")
        self._inbox.put_nowait(Suspicion(process))

    def join(self, at: str = "") -> None:
        """Become a member after the beginning; ``at``: a member, in trees the one to link to.

        Messages published meanwhile wait. Raises `UsageError` if the protocol's groups are fixed, or if ``at`` is no
        other process.
        """
        self._require_joinable()
        if self._stopped is not None:
            raise NotConnected(
                f"{self.name} takes part no longer ({self._stopped.reason}), and cannot come back under this name with "
                f"{self._protocol.title}"
            )
        if at and (at == self.name or at not in self.setup.processes):
            raise UsageError(
                f"{self.name} cannot join at {at!r}: name another one of {', '.join(self.setup.processes)}"
            )
        self._ask(Change(joins=True, at=at))

    async def joined(self, group: str = "") -> None:
        """Wait until this process is a member, after `join` or `regroup`; returns at once if it is.

        ``group``: with a protocol for several groups. Raises `NotConnected` if the process ends first, and `UsageError`
        if it was asked to leave meanwhile.
        """
        while self._changes or (standing := self._standing(group)) is Standing.JOINING:
            self._require_running()
            self._changed.clear()
            await self._changed.wait()
        self._require_running()
        if standing is Standing.OUT:
            raise UsageError(f"{self.name} was asked to leave {group or 'the group'} before it was in")

    def _standing(self, group: str) -> Standing:
        if isinstance(self._machine, Regrouping):
            return self._machine.standing(group)
        assert isinstance(self._machine, Joinable), "checked when it was asked for"
        return self._machine.standing

    def _require_running(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()
        if self._stopped is not None or not self._tasks:
            why = "it was closed" if self._stopped is None else self._stopped.reason
            raise NotConnected(f"{self.name} takes part no longer: {why}")

    def _ask(self, change: Change) -> None:
        self._changes += 1
        self._inbox.put_nowait(change)

    def leave(self) -> None:
        """Leave in good order; `Halt` is delivered when it has taken effect. Raises as `join` does."""
        self._require_joinable()
        self._ask(Change(joins=False))

    def regroup(self, *, joins: Iterable[str] = (), leaves: Iterable[str] = ()) -> None:
        """Ask to join and leave groups, with a protocol for several groups that change; raises `UsageError` if not."""
        if not isinstance(self._machine, Regrouping):
            several, one = (
                ", ".join(name for name, kind in PROTOCOLS.items() if issubclass(kind, changing))
                for changing in (Regrouping, Joinable)
            )
            raise UsageError(
                f"the groups of {self._protocol.title} are fixed; processes join and leave groups with {several}, and "
                f"one group of all with {one}"
            )
        for groups, joining in ((tuple(joins), True), (tuple(leaves), False)):
            if groups:
                self._ask(Change(joins=joining, groups=groups))

    def _require_joinable(self) -> None:
        if not isinstance(self._machine, Joinable):
            able = ", ".join(name for name, kind in PROTOCOLS.items() if issubclass(kind, Joinable))
            raise UsageError(
                f"the groups of {self._protocol.title} are fixed; processes may join and leave with {able}"
            )

    async def __aiter__(self) -> AsyncIterator[Handed]:
        """Yield deliveries in order, for ever; raises the error that ended the process, if any."""
        while (item := await self.take()) is not None:
            yield item

    async def take(self) -> Handed | None:
        """Return the next delivery, None when the process is closed. A cancelled call takes nothing."""
        while not self._out:
            if self._stopped is not None:
                return None
            for task in self._tasks:
                if task.done() and not task.cancelled():
                    task.result()
            if not self._tasks or any(task.done() for task in self._tasks):
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._out.popleft()

    async def _watch(self) -> None:
        """Say now and then that this process is here, and note which others are not."""
        begun = time.monotonic()
        while True:
            with suppress(NetworkError):
                heard = await self._mailbox.beat()
                since_begun = time.monotonic() - begun
                setup = self._machine.setup
                mine = [set(setup.members(group)) for group in setup.groups]
                others = set().union(*(group for group in mine if self.name in group)) - {self.name}
                ages = {name: heard.get(name, since_begun) for name in sorted(others)}
                self._note_absent({name: age for name, age in ages.items() if age >= ABSENT_S})
            await asyncio.sleep(BEAT_S)

    def _note_absent(self, absent: dict[str, float]) -> None:
        for name in absent.keys() - self.absent.keys():
            _log.warning(
                "%s: %s has not been heard of for %.0f s: %s",
                self.name,
                name,
                absent[name],
                f"report it by suspect({name!r}) if it has crashed"
                if Assumption.CRASHES_REPORTED in self._protocol.assumes
                else f"{self._protocol.title} may wait for it for good",
            )
        for name in self.absent.keys() - absent.keys():
            _log.info("%s: %s is heard of again", self.name, name)
        self.absent = absent

    async def _read(self) -> None:
        while True:
            for packet in await self._mailbox.receive():
                self._inbox.put_nowait(packet)

    async def _step(self) -> None:
        """The only task that touches the machine: one thing after another, its packets sent before the next."""
        await self._carry_out(self._machine.start())
        while True:
            item = await self._inbox.get()
            effects = self._take(item)
            self._changes -= isinstance(item, Change)
            await self._carry_out(effects)

    def _take(self, item: Packet | Alarm | Message | Suspicion | Change) -> list[Effect]:
        match item:
            case Message():
                return self._machine.publish(item)
            case Change(joins, at) if isinstance(self._machine, Joinable):
                return self._machine.join(at) if joins else self._machine.leave()
            case Change(joins, groups=groups) if isinstance(self._machine, Regrouping):
                return self._machine.regroup(joins=groups) if joins else self._machine.regroup(leaves=groups)
            case Suspicion(process):
                return self._machine.suspect(process)
            case Alarm(alarm):
                return self._machine.ring(alarm)
            case Change():
                raise AssertionError("checked when it was asked for")
            case source, data:
                return self._machine.receive(source, decode(self._protocol, data))

    async def _carry_out(self, effects: list[Effect]) -> None:
        packets: list[Packet] = []
        for effect in effects:
            match effect:
                case Send(to, packet):
                    packets.append((to, encode(packet)))
                case Alarm(_, after_ms):
                    asyncio.get_running_loop().call_later(after_ms / 1000, self._inbox.put_nowait, effect)
                case Deliver(message):
                    self._out.append(message)
                case Gap() | Install() | Halt() | Scheduled():
                    self._out.append(effect)
                    if isinstance(effect, Halt) and not effect.left:
                        self._stopped = effect
        self._changed.set()
        if packets:
            await self._mailbox.send(packets)
