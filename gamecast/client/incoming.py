"""The subscribing half of a connection: a thin shell around `sequencing.subscriber`.

What `NodeReaders` reads at the nodes feeds one `Subscriber`, which says what to read, what to mark, and what the
application gets and when; that waits in the `Inbox` until the application takes it, as `EventDecoder` makes it of
frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from adapters.backoff import Backoff
from adapters.network import Network
from adapters.places import Position
from gamecast.arguments import checked_regions
from gamecast.client.configuration import Configuration
from gamecast.client.decoding import EventDecoder, Place
from gamecast.client.history import History, Recall, ReplayOrder, Since, checked_order, parse_since
from gamecast.client.inbox import Arrivals, Inbox, InboxItem
from gamecast.client.outgoing import Outgoing
from gamecast.client.reading import NodeReaders, OnRead
from gamecast.client.receipts import Token
from gamecast.client.replays import HOLD_S_MAX as REPLAY_HOLD_S_MAX
from gamecast.client.replays import Replays
from gamecast.client.states import States, cuts_in
from gamecast.client.watching import Health
from gamecast.event import Gap, Item
from gamecast.holding import Holding
from sequencing.cut import ReadResult
from sequencing.errors import (
    BufferFull,
    GamecastError,
    NotConnected,
    Superseded,
    TooSlow,
    Unreachable,
    UsageError,
    is_passing,
    superseded_message,
)
from sequencing.frames import StampedFrame
from sequencing.keyed import Snapshot
from sequencing.plan import Plan
from sequencing.ready import Missing, Ready
from sequencing.record import Record, Request
from sequencing.session import Effects, Session

if TYPE_CHECKING:
    from gamecast.recording.tap import Tap

BATCH_BYTES = 262_144
"""Or so many bytes: what is parsed takes a multiple of that."""
BATCH_EVENTS = 32
"""A batch is delivered when it has so many events. With `FRAME_EVENTS_MAX` it keeps what is alive at a time, the
batch before included, below the 700 objects at which Python's garbage collector starts: batches of 256 events took
twice the CPU."""

LIVE_BATCHES_MAX = 4
"""After so many batches of live events in a row comes one of a replay; otherwise live events come first."""

STATE_MARKER = b"state"
"""The body of a marker that shows where a state has its place; see `gamecast.client.states`."""

HOLD_S_MAX = 5.0
"""How long events may be held back for a state that is not known."""

LED_AFTER_S = 5.0
UNLED_LOOKS = 2
"""Who waits for a join looks that often, so far apart, whether anybody leads at all: after a leader that died there is
another one in less than `LED_AFTER_S`."""


class Incoming:
    """Delivers for one connection, once it is open."""

    def __init__(
        self,
        network: Network,
        configuration: Configuration,
        session: Session[Token],
        outgoing: Outgoing,
        health: Health,
        tap: Tap | None = None,
    ) -> None:
        self._network = network
        self._health = health
        self._limits, self._is_guest = configuration.limits, configuration.is_guest
        self._tap = tap
        self._session = session
        self._outgoing = outgoing
        self._record: Record | None = None
        """What was announced last."""
        self.on_interest: Callable[[], None] = _no_listener
        self.on_decoded: Callable[[], None] | None = None
        """Called after more was decoded for the application."""
        self.on_end: Callable[[], None] = _no_listener
        """Called when nothing more will come."""
        self.on_caught_up: Callable[[frozenset[str]], None] = _no_listener_of
        """Called with regions when their history has no more, before anything after it is delivered."""
        self._readings = NodeReaders(network, session, self._limits, self, health)
        self._decoder = EventDecoder(tap, session.name)
        self._inbox = Inbox()
        self._replays = Replays(self.wake_application, lambda region: region in session.joined)
        self._states = States()
        self._with_state: set[str] = set()
        """The regions that were subscribed to with their state: the application has nothing of them before that."""
        self._hold_timer: asyncio.TimerHandle | None = None
        self._replay_timer: asyncio.TimerHandle | None = None
        self._given_up: dict[object, set[str]] = {}
        """Call of `subscribe` → the regions whose state was given up."""
        self._caught_up: list[frozenset[str]] = []
        """The regions of replays whose last events were returned, and that are not reported yet."""
        self._live_batches = 0
        """Since the last one of a replay."""
        self.holding = Holding()
        self._when_behind = configuration.when_behind
        self._recalls: list[Recall] = []
        self._begins: dict[str, Position] = {}
        """Region that is joined → the position after which its events are delivered."""
        self._arrived = Arrivals()
        self._taken = asyncio.Event()
        self._changed = asyncio.Event()
        self._stopping = False
        self._joining = 0
        self._failure: Exception | None = None
        self.received_frames = 0

    @property
    def held_frames(self) -> int:
        """Frames that are received and wait for others."""
        return self._session.held_frames

    @property
    def inbox_events(self) -> int:
        """Events that the application has not taken."""
        return self._untaken()[0]

    @property
    def has_next(self) -> bool:
        """Whether `next_batch` has something to return without a wait."""
        return bool(self._inbox or self._caught_up) or (bool(self._replays) and self._replays.is_ready)

    @property
    def delivered_events(self) -> int:
        """Events that were delivered."""
        return self._decoder.delivered_events

    @property
    def own_events(self) -> tuple[int, int]:
        """Own events that came back, and how many of them behind others that had come since they were published."""
        return self._decoder.own_events, self._decoder.overtaken_events

    @property
    def gaps(self) -> int:
        """Gaps that were delivered."""
        return self._decoder.gaps

    @property
    def reconnects(self) -> int:
        """How often reading had to be begun again."""
        return self._readings.reconnects

    def require_name(self, record: Record) -> None:
        """Raise `Superseded` if a newer connection has this one's name: sooner than the next heartbeat says so."""
        name, incarnation = self._session.name, self._session.incarnation
        heard = record.heard.get(name)
        if heard is not None and heard.incarnation > incarnation:
            raise Superseded(superseded_message(name))

    def has_passed(self, region: str, position: Position) -> bool:
        """Return whether the application was given all of a region up to a position, as far as it is to have it.

        Raises `UsageError` for a region that is not subscribed to, and the error that ended the connection.
        """
        if self._failure is not None:
            raise self._failure
        if self._stopping:
            raise NotConnected
        if region not in self._session.wanted:
            raise UsageError(f"{region!r} is not subscribed to, so nothing of it is delivered")
        if not position[1]:  # of a loss, with which an epoch began: there is no such event
            plan = self._record.plan if self._record is not None else None
            is_known = plan is not None and region in plan.paths and plan.epoch_of(region) >= position[0]
            return is_known and not self._inbox
        begun = self._begins.get(region)
        return self._decoder.has_passed(region, position) or (begun is not None and begun >= position)

    def watch_presence(self, regions: Iterable[str], *, partly: bool = False) -> None:
        """Deliver who arrives in some regions, and who leaves; before they are subscribed to, else raises
        `UsageError`.

        ``partly``: who is there already is known elsewhere, as of where the regions are resumed.
        """
        watched = checked_regions(regions, "subscribe")
        if not partly and (known := watched & self._session.wanted):
            raise UsageError(f"{min(known)!r} is subscribed to already: unsubscribe first to hear who is there")
        self._decoder.watch(watched, partly=partly)

    def unwatch_presence(self, regions: Iterable[str]) -> None:
        """Take `watch_presence` back where regions are not subscribed to after all."""
        self._decoder.unwatch(region for region in regions if region not in self._session.wanted)

    def roster(self, region: str) -> dict[str, Any]:
        """Return who is in a region, as of what was decoded; raises `UsageError` where that is not known."""
        roster = self._decoder.roster(region)
        if roster is None:
            raise UsageError(f"{region!r} is not subscribed to with presence, so who is there is not known")
        return roster

    def follows(self, region: str) -> bool:
        """Return whether a region is subscribed to, joined or not yet."""
        return region in self._session.wanted

    def has_had(self, region: str, position: Position) -> bool:
        """Return whether the application was given all of a region up to an event, or began to follow it later."""
        if region not in self._session.joined:
            return False
        if position > (0, 0) and self._decoder.has_passed(region, position):
            return True
        begins = self._begins.get(region)
        if begins is None or any(region in recall.since for recall in self._recalls):
            return False
        if region in self._with_state and not self._decoder.passed(region)[0]:
            return False
        return position <= begins or (not position[1] and self._has_begun(region, position[0]))

    def _has_begun(self, region: str, epoch: int) -> bool:
        """Return whether all of a region before an epoch was decoded."""
        if self._inbox or self._states.is_holding or self._replays.is_holding or region in self._replays:
            return False
        return self._session.epoch(region) >= epoch

    def passed(self, region: str) -> Position:
        """Return up to where the application was given a region, or where it began; (0, 0) if it is not subscribed to.

        What was decoded counts as given.
        """
        return max(self._decoder.passed(region), self._begins.get(region, (0, 0)))

    def keep_places(self) -> None:
        """See `EventDecoder.keep_places`."""
        self._decoder.keep_places()

    def last_event(self, region: str, before: Position | None = None) -> Position:
        """See `EventDecoder.last_event`."""
        return self._decoder.last_event(region, before)

    def tell_reads(self, on_read: OnRead) -> None:
        """Report where regions are read, see `NodeReaders.tell_reads`."""
        self._readings.tell_reads(on_read)

    def request(self, *, whole: bool) -> Request | None:
        """Return what to ask the control store for; see `Session.request`."""
        return self._session.request(whole=whole)

    def noted(self, request: Request) -> None:
        """Take that the network knows a request, which a plan is to grant."""
        self._session.noted(request)

    def granted(self, request: Request) -> None:
        """Take that a request was granted."""
        self.carry_out(self._session.granted(request))

    async def subscribe(
        self, regions: Iterable[str], since: Since | None, order: ReplayOrder = "common", *, state: bool = False
    ) -> dict[str, Position]:
        """See `Client.subscribe`; after `UnknownPosition` or `UnorderedHistory` the regions stay subscribed."""
        wanted = checked_regions(regions, "subscribe")
        checked_order(order)
        recall: Recall | None = None
        call = object()
        if state:
            if since is not None:
                raise UsageError("subscribe with state=True, which says how the regions are now, or with since")
            if known := wanted & self._session.wanted:
                raise UsageError(f"{min(known)!r} is subscribed to already: unsubscribe first to begin with its state")
            self._states.begin(wanted, call)
            self._with_state |= wanted
        if since is not None:
            positions = parse_since(since, wanted)
            if known := wanted & self._session.wanted:
                raise UsageError(f"{min(known)!r} is subscribed to already: what came before it is not replayed")
            recall = Recall(positions, order)
            self._recalls.append(recall)
            self._replays.await_history(positions)
        if self._tap is not None:
            self._tap.asked(wanted - self._session.wanted, recall.since if recall is not None else None)
        floor = max((epoch for epoch, sequence in recall.since.values() if sequence), default=0) if recall else 0
        returns = self._is_guest or recall is not None
        self.carry_out(self._session.subscribe(wanted, floor, returns=returns))
        self._joining += 1
        self._taken.set()
        try:
            async with asyncio.timeout(self._limits.subscribe_timeout_s):
                if state:  # what is joined waits for its state, so it is asked for at once
                    asking = asyncio.create_task(self._ask_for_state(call), name="gamecast state")
                    try:
                        await self._joined(wanted)
                        await asking
                    finally:
                        asking.cancel()
                        await asyncio.wait((asking,))
                else:
                    await self._joined(wanted)
            if recall is not None and recall.history is not None:
                with suppress(TimeoutError):  # what cannot be looked at now is looked at when it is taken
                    async with asyncio.timeout(self._limits.subscribe_timeout_s):
                        await recall.history.admit()
            if self._tap is not None and self._record is not None:
                plan = self._record.plan
                epochs = {region: plan.epoch_of(region) for region in wanted & self._session.joined}
                self._tap.joined(epochs, self._begins)
        except TimeoutError:
            if state and wanted & self._session.wanted <= self._session.joined:
                raise self._no_state(wanted) from None
            missing = sorted(wanted & self._session.wanted - self._session.joined)
            raise Unreachable(
                f"{len(missing)} region(s), {', '.join(missing[:3])}, are not joined after "
                f"{self._limits.subscribe_timeout_s:g} s: no manager leads, or a node cannot be reached; they stay "
                "asked for, and `gamecast doctor` may tell why"
            ) from None
        finally:
            self._joining -= 1
            if recall is not None:
                recall.is_answered.set()
            if state:
                self._put(self._states.drop(self._states.asked_by(call)))
                self._given_up.pop(call, None)
        return {region: self._begins[region] for region in wanted if region in self._begins}

    async def _ask_for_state(self, call: object) -> None:
        """Ask the ingresses of a call's regions for their keys, as soon as they are joined, as long as it takes."""
        backoff = Backoff()
        while asked := self._states.asked_by(call) & self._session.wanted:
            if self._failure is not None:
                raise self._failure
            if self._stopping:
                raise NotConnected("the connection was closed before the state of the regions was known")
            left = asked & self._session.joined
            if not left or self._record is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            plan, at = self._record.plan, dict[str, list[str]]()
            for region in sorted(left):
                at.setdefault(plan.paths[region][0], []).append(region)
            for node, regions in at.items():
                try:
                    snapshots = await self._snapshots(node, plan, regions)
                except GamecastError as error:
                    if not is_passing(error):
                        raise
                else:
                    if snapshots is not None:
                        self._states_told(plan, snapshots, call)
            if left & self._states.asked_by(call):
                await backoff.wait()
        if given_up := self._given_up.pop(call, None):
            raise self._no_state(given_up)

    def _no_state(self, regions: Iterable[str]) -> Unreachable:
        return Unreachable(
            f"the state of {', '.join(sorted(regions)[:3])} was not told in time, for a node does not answer. They are "
            "subscribed to, and their events are delivered. To begin with the state, unsubscribe and subscribe again"
        )

    def _give_up_states(self) -> None:
        """Deliver what is held back, without the states that it waits for: it must not wait, or grow, for ever."""
        if self._states.is_holding:
            for region in [*self._states.asked]:
                self._given_up.setdefault(self._states.call_of(region), set()).add(region)
            self._put(self._states.drop({*self._states.asked}))
            self._changed.set()

    async def _snapshots(self, node: str, plan: Plan, regions: Sequence[str]) -> dict[str, Snapshot] | None:
        reader = self._network.reader(node, plan)
        try:
            return await reader.snapshots([(region, plan.epoch_of(region)) for region in regions])
        finally:
            await reader.close()

    def _states_told(self, plan: Plan, snapshots: Mapping[str, Snapshot], call: object) -> None:
        wanted = {
            region: ((plan.epoch_of(region), snapshot.last), snapshot)
            for region, snapshot in snapshots.items()
            if region in self._session.joined and self._states.call_of(region) is call
        }
        for cut in cuts_in(plan, wanted):
            told = {region: wanted[region] for region in cut}
            items, marked = self._states.told(told, self._begins, self._session.wanted)
            self._put(items)
            if marked is not None:
                self.carry_out(self._session.mark(marked, STATE_MARKER))
        for region, (position, _) in wanted.items():
            self._begins[region] = max(position, self._begins.get(region, position))

    def _put(self, items: Iterable[InboxItem]) -> None:
        """Put what was held back into the inbox."""
        self._keep([*items])
        if self._hold_timer is not None and not self._states.is_holding:
            self._hold_timer.cancel()  # the next hold has a time of its own
            self._hold_timer = None
        self._taken.set()  # less is held back
        self._pass_markers()
        if self._inbox:
            self._arrived.set()

    def _keep(self, items: Sequence[InboxItem]) -> None:
        """Put items into the inbox, but for those that wait for a history."""
        self._inbox.put(self._replays.keep(items))
        self._time_hold()

    def _time_hold(self) -> None:
        """Have what comes live wait no longer for a history than it may."""
        if (self._replay_timer is not None) == self._replays.is_holding:
            return
        if self._replay_timer is not None:
            self._replay_timer.cancel()
            self._replay_timer = None
        else:
            self._replay_timer = asyncio.get_running_loop().call_later(REPLAY_HOLD_S_MAX, self._give_up_replays)

    def _give_up_replays(self) -> None:
        """Deliver what waits for a history, and let nothing more wait for that."""
        self._release(for_good=True)
        self._arrived.set()

    def _release(self, *, for_good: bool = False) -> None:
        self._inbox.put(self._replays.release(for_good=for_good))
        self._time_hold()

    async def _joined(self, wanted: AbstractSet[str]) -> None:
        loop = asyncio.get_running_loop()
        look_at, no_leader_error = loop.time() + LED_AFTER_S, 0
        while not wanted & self._session.wanted <= self._session.joined:
            if self._failure is not None:
                raise self._failure
            if self._stopping:
                raise NotConnected("the connection was closed before the regions were joined")
            self._require_room("regions to be joined")
            self._changed.clear()
            try:
                async with asyncio.timeout_at(look_at):
                    await self._changed.wait()
            except TimeoutError:
                error = await self._network.no_leader_error()
                no_leader_error = no_leader_error + 1 if error is not None else 0
                if error is not None and no_leader_error == UNLED_LOOKS:
                    raise error from None
                look_at = loop.time() + LED_AFTER_S

    def _require_room(self, awaited: str) -> None:
        """Raise `BufferFull` if the application waits for what cannot be read before it takes events."""
        if self._when_behind == "wait" and self._is_full(self._limits.overflow_factor):
            raise BufferFull(f"{self._waiting()} for the application, which waits for {awaited}: take events meanwhile")

    def _is_full(self, factor: int = 1) -> bool:
        """Return whether what waits for the application exceeds the limits, multiplied by ``factor``."""
        events, size = self._untaken()
        return events >= factor * self._limits.inbox_events_max or size >= factor * self._limits.inbox_bytes_max

    def _untaken(self) -> tuple[int, int]:
        """Return how many events the application has not taken, and how many bytes they have."""
        inbox, states = self._inbox, self._states
        events, size = inbox.events + states.held_events, inbox.bytes + states.held_bytes
        if self._replays or self._replays.is_holding:
            events, size = events + self._replays.events, size + self._replays.bytes
        return events, size

    def _waiting(self) -> str:
        events, size = self._untaken()
        return f"{events:,} events of {size:,} bytes wait"

    async def unsubscribe(self, regions: Iterable[str]) -> None:
        """See `Client.unsubscribe`."""
        left = checked_regions(regions, "unsubscribe")
        try:
            async with asyncio.timeout(self._limits.subscribe_timeout_s):
                while self._failure is None and self._outgoing.awaits(left):
                    self._require_room("its own events to come back")
                    await self._outgoing.came_back()
        except TimeoutError:
            raise Unreachable(
                f"what was published in {', '.join(sorted(left)[:3])} has not come back after "
                f"{self._limits.subscribe_timeout_s:g} s, and causal order needs that: they stay subscribed"
            ) from None
        effects = self._session.unsubscribe(left)
        self._put(self._states.leave(left))
        self._inbox.drop(left)
        self._replays.drop(left)
        self._release()
        self._caught_up = [staying for regions in self._caught_up if (staying := regions - left)]
        self._decoder.drop(left)
        self._with_state -= left
        self._taken.set()  # there may be room now
        self.carry_out(effects)
        if self._tap is not None:
            self._tap.left(left)

    def follow(self, record: Record) -> None:
        """Go on with what was announced."""
        self._record = record
        if self._tap is not None:
            self._tap.planned(record.plan)
        self._readings.follow(record.plan)
        self.carry_out(self._session.changed(record))

    async def next_batch(self) -> list[Item] | None:
        """Return the next events in order, waiting for them; None when there will be none. Cancelling it loses none.

        With nothing in it, when a replay has ended.
        """
        if self._caught_up:
            self.on_caught_up(self._caught_up.pop(0))
            return []
        inbox = self._inbox
        replays = self._replays.all
        while not inbox.items and not (replays and self._replays.is_ready):
            if self._stopping:
                return None
            if not replays:
                if self._failure is not None:
                    raise self._failure
                if self._readings.drained:
                    return None
            await self._arrived.next()
        batch: list[Item] = []
        is_turn_of_replays = not inbox.items or self._live_batches >= LIVE_BATCHES_MAX
        if is_turn_of_replays and replays and self._replays.is_ready:
            self._live_batches = 0
            if regions := self._replays.take(self._decoder, batch, BATCH_EVENTS, inbox):
                self._caught_up.append(regions)
                self._time_hold()
        else:
            self._live_batches += 1
            size = 0
            while inbox.items and len(batch) < BATCH_EVENTS and size < BATCH_BYTES:
                item = inbox.take()
                size += len(item.frame.body) if isinstance(item, Ready) else 0
                self._decoder.decode(item, batch, together=self._is_live)
        self._taken.set()
        if inbox.markers:
            self._decoder.reach(self._passed_markers())
        if self.on_decoded is not None:
            self.on_decoded()
        return batch

    def _passed_markers(self) -> dict[str, Position]:
        """Return markers before which all was decoded, once."""
        if self._inbox.items:
            return {}
        passed, self._inbox.markers = self._inbox.markers, {}
        return passed

    def _pass_markers(self) -> None:
        if self._inbox.markers and (passed := self._passed_markers()):
            self._decoder.reach(passed)
            if self.on_decoded is not None:
                self.on_decoded()

    def _is_live(self, region: str, position: Position) -> bool:
        """Return whether a region comes live, in one order with all others that do, and from before a position on."""
        if region in self._replays or region in self._states.asked:
            return False
        begin = self._begins[region] if region in self._session.joined else self._session.delivers_after(region)
        return begin is not None and position > begin

    def not_taken(self, first: Mapping[str, Position], kept: Iterable[Place], dropped: Iterable[Place]) -> None:
        """Note what was decoded of regions that were left, and dropped; see `EventDecoder.not_taken`."""
        self._decoder.not_taken(first, kept, dropped)

    def drain(self) -> None:
        """Let reading end when nothing more comes; iteration ends after what has been read."""
        self._arrived.set()
        self._readings.drain()

    async def close(self) -> None:
        """Stop reading; iteration ends."""
        self._stopping = True
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        if self._replay_timer is not None:
            self._replay_timer.cancel()
        self._arrived.set()
        self._taken.set()
        self._changed.set()
        self.on_end()
        await self._readings.close()
        await self._replays.close()

    def fail(self, error: Exception) -> None:
        """Have the application's calls raise an error."""
        if self._failure is None:
            self._failure = error
            self._health.ended(error)
            self.on_end()
        self._arrived.set()
        self._changed.set()

    def take(self, result: ReadResult) -> None:
        """Take what was read at a node."""
        frames = result.frames
        if len(frames) == 1 and self.take_next(frames[0], result.whole):
            return
        self.received_frames += len(frames)
        if self._tap is not None and frames:
            self._tap.received(frames)
        effects = self._session.read(result)
        if self._session.held_frames:
            self.holding.received(frames, effects.deliver)
        self.carry_out(effects)

    def take_next(self, frame: StampedFrame, whole: Mapping[str, int]) -> bool:
        """Take one frame by the short way: if the session has predicted it, and nothing is in its way."""
        inbox, limits = self._inbox, self._limits
        if inbox.events >= limits.inbox_events_max or inbox.bytes >= limits.inbox_bytes_max or self._recalls:
            return False
        if self._tap is not None or self.holding.since_ns or self._states.calls or self._states.on_the_way:
            return False
        if self._replays.all:
            return False
        ready = self._session.read_next(frame, whole)
        if ready is None:
            return False
        self.received_frames += 1
        self._inbox.put_lone(ready)
        self._arrived.set()
        return True

    def wake_application(self) -> None:
        """Have the application's iterator look again."""
        self._arrived.set()

    def has_room_now(self) -> bool:
        """Return whether there is room for what is read, without doing anything about it.

        There may be more of it while the application waits for a join, which only reading brings about.
        """
        inbox, limits = self._inbox, self._limits
        is_little = inbox.events < limits.inbox_events_max and inbox.bytes < limits.inbox_bytes_max
        if is_little and not (self._states or self._replays):
            return True  # as nearly always
        return not self._is_full(self._limits.overflow_factor if self._joining else 1)

    async def has_room(self) -> bool:
        """Return whether to read on, as what was received and not taken allows; see `WhenBehind`."""
        if self.has_room_now():
            return True
        if self._when_behind == "skip":
            self._give_up_states()
            self._give_up_replays()
            self._inbox.skip()
            self._replays.skip()
            return True
        if self._when_behind == "disconnect":
            raise TooSlow(f"{self._waiting()} for the application, which asked to be disconnected then")
        self._taken.clear()
        await self._taken.wait()
        return False

    def announce(self, gap: Gap) -> None:
        """Deliver a gap behind what is in the inbox."""
        if gap.region in self._session.joined:
            self._keep([gap])
            self._arrived.set()

    def carry_out(self, effects: Effects[Token]) -> None:
        """Carry out a session's effects, in their order."""
        session = self._session
        self._deliver(effects.deliver)
        if effects.is_plain:
            if effects.publish or session.is_causal:
                self._outgoing.carry_out(effects)
        else:
            for region in effects.joined:
                if region not in self._begins:
                    self._begins[region] = session.begin(region)
            for region in effects.left:
                self._begins.pop(region, None)
            self._outgoing.carry_out(effects)
            self._changed.set()
            if effects.reads_changed and self._record is not None and not self._stopping:
                self._readings.turn_to(self._record.plan)
        if effects.interest_changed:
            self.on_interest()

    def _deliver(self, items: Sequence[Ready | Missing]) -> None:
        """Put what is delivered into the inbox, and the history of regions that are joined now before it."""
        if not (self.holding or self._recalls or self._states or self._replays):  # as nearly always
            self._inbox.put(items)
            if self._inbox.items:
                self._arrived.set()
            else:
                self._pass_markers()
            return
        if self.holding:
            self.holding.handed_out(items, still_held=self._session.held_frames)
        if self._recalls:
            items = [item for item in items if not any(recall.takes(item) for recall in self._recalls)]
        going_on: Sequence[InboxItem] = items
        if self._states:
            going_on = self._states.keep(items)
            if self._states.is_holding and self._hold_timer is None:
                self._hold_timer = asyncio.get_running_loop().call_later(HOLD_S_MAX, self._give_up_states)
        self._keep(going_on)
        for recall in list(self._recalls):
            recall.narrow(self._session.wanted)
            if not recall.since:
                self._recalls.remove(recall)  # all of its regions were left before they were joined
            elif recall.is_joined(self._session):
                self._recalls.remove(recall)
                recall.history = History(self._network, recall, self._newest, self._ending)
                self._replays.begin(recall.history)
                self._decoder.begin_after(recall.since)
                self._begins |= recall.since
        self._pass_markers()
        if self._inbox or self._replays:
            self._arrived.set()

    def _newest(self) -> Plan:
        assert self._record is not None
        return self._record.plan

    def _ending(self) -> frozenset[tuple[str, int]]:
        assert self._record is not None
        return self._record.ending()


def _no_listener() -> None:
    pass


def _no_listener_of(_: frozenset[str]) -> None:
    pass
