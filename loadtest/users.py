"""Locust's users. Importing this module patches the process for gevent: only modules that locust loads do.

Each user publishes at its own times, whether or not earlier events have receipts. Delays count from when an event was
due, so a network that stalls cannot look fast by slowing its users.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

from locust import User, task

from gamecast.errors import GamecastError
from loadtest.crew import Crew
from loadtest.journal import event_id
from loadtest.poster_session import PosterSession
from loadtest.presence import FILLING, Mark
from loadtest.scenario import Slot
from loadtest.session import ServerSession
from loadtest.socket_session import SocketSession

IDLE_S = 0.05
RECONNECTS = 1 / 3
"""Share of reconnects in churn; otherwise a user leaves a region and rejoins it."""
AWAY_S_MAX = 2.0
BEHIND_S_MAX = 30.0
"""Seconds behind its schedule after which a publisher restarts it: its process cannot keep up, as locust reports."""


class Session(Protocol):
    """A connection, to gamecast or to its gateway."""

    lost: bool
    """Whether the other side has closed it."""

    @property
    def regions(self) -> list[str]: ...
    def open(self) -> None: ...
    def join(self, *regions: str) -> None: ...
    def leave(self, region: str) -> None: ...
    def publish(self, mark: Mark, region: str, payload: Mapping[str, object]) -> None: ...
    def close(self) -> None: ...


class Player(User):
    """The behaviour of all users: publish, reconnect, leave and rejoin regions, and disconnect in order."""

    abstract = True
    kind: ClassVar[str] = ""
    crew: ClassVar[Crew]
    """The crew of this process; set when a run begins."""

    def connect(self, number: int) -> Session:
        """Return the ``number``-th connection of this user, not open yet."""
        raise NotImplementedError

    def on_start(self) -> None:
        """Connect and join."""
        self.slot_number = self.crew.take_slot(self.kind)
        self.name = self.own_name()
        self.slot: Slot = self.crew.slot(self.slot_number, users=getattr(self.crew.options, self.kind + "s"))
        self.random = self.crew.random
        self.sessions = self.events = self.step = 0
        self.session: Session | None = None
        self.began_s = self.due_s = time.time()
        self.churned_s = time.monotonic()
        self._open(self.regions())

    def on_stop(self) -> None:
        """Disconnect in order."""
        if self.session is not None:
            self.session.close()
        self.crew.give_back(self.kind, self.slot_number)

    def own_name(self) -> str:
        """Return the name of the user on the network."""
        return self.crew.options.name_of(self.kind, self.slot_number)

    def regions(self) -> Sequence[str]:
        """Return the first regions of the user."""
        return self.slot.regions

    def payload(self, region: str) -> Mapping[str, object] | None:
        """Return the fields of the user's next event, or None to publish nothing."""
        return {"filling": FILLING}

    @task
    def act(self) -> None:
        """Do the next action that is due."""
        if self.crew.quiet or self.session is None:
            time.sleep(IDLE_S)
            self.due_s = time.time()
            if self.session is None and not self.crew.quiet:
                self._open(self.regions())
            return
        if self.session.lost:
            self._reconnect()
            return
        self._come_and_go()
        if self.session is not None:
            self._do_next()

    def _do_next(self) -> None:
        if self.slot.steps:
            self._follow_match()
        elif not self.slot.weights:
            time.sleep(IDLE_S)
        else:
            self.due_s += self.random.expovariate(self.crew.options.rate * self.crew.moment.rate)
            if self._until_due():
                self._publish(self.slot.draw(self.random))

    def _follow_match(self) -> None:
        """Do the next step of a recorded match, which repeats at its end."""
        turn, at = divmod(self.step, len(self.slot.steps))
        step = self.slot.steps[at]
        match_s = turn * self.crew.scenario.duration_s + step.t_s
        self.due_s = self.began_s + match_s / self.crew.options.speed
        if not self._until_due():
            return
        self.step += 1
        assert self.session is not None
        if new := sorted(step.joins - set(self.session.regions)):
            self.session.join(*new)
        for region in sorted(step.leaves & set(self.session.regions)):
            self.session.leave(region)
        if step.publishes:
            self._publish(step.publishes)

    def _until_due(self) -> bool:
        """Wait until the next action is due. Return False if the run has ended meanwhile."""
        ahead_s = self.due_s - time.time()
        if ahead_s < -BEHIND_S_MAX:
            self.due_s = time.time()
        # In short sleeps, to notice the end of the run.
        while ahead_s > 0 and not self.crew.quiet:
            time.sleep(min(ahead_s, 0.5))
            ahead_s = self.due_s - time.time()
        return not self.crew.quiet

    def _publish(self, region: str) -> None:
        assert self.session is not None
        if (payload := self.payload(region)) is None:
            return
        mark = Mark(event_id(self.name, self.events), round(self.due_s * 1e9))
        self.events += 1
        try:
            self.session.publish(mark, region, payload)
        except GamecastError as error:
            self.crew.fire("publish", self.kind, 0, error)
            self._reconnect()

    def _come_and_go(self) -> None:
        """Reconnect, or leave a region and rejoin it, as often as the present moment requires."""
        now_s = time.monotonic()
        waited_s, self.churned_s = now_s - self.churned_s, now_s
        if self.random.random() >= self.crew.moment.churn_per_s * waited_s:
            return
        assert self.session is not None
        regions = self.session.regions
        if self.random.random() < RECONNECTS or not regions:
            self._reconnect()
            return
        region = self.random.choice(regions)
        self.session.leave(region)
        time.sleep(self.random.uniform(0, AWAY_S_MAX))
        if not self.crew.quiet:
            self.session.join(region)
        self.due_s = time.time()

    def _reconnect(self) -> None:
        assert self.session is not None
        regions = tuple(self.session.regions)
        self.session.close()
        self.session = None
        time.sleep(self.random.uniform(0, AWAY_S_MAX))
        self._open(regions)
        self.due_s = time.time()

    def _open(self, regions: Sequence[str]) -> None:
        session = self.connect(self.sessions)
        self.sessions += 1
        began = time.perf_counter()
        try:
            session.open()
        except GamecastError as error:
            self.crew.fire("connect", self.kind, (time.perf_counter() - began) * 1e3, error)
            session.close()
            time.sleep(1)
            return
        self.crew.fire("connect", self.kind, (time.perf_counter() - began) * 1e3, None)
        self.session = session
        if regions:
            session.join(*regions)


class GameServer(Player):
    """A game server that embeds the library, through `gamecast.blocking`."""

    kind = "server"

    def connect(self, number: int) -> Session:
        """See `Player.connect`."""
        return ServerSession(self.crew, self.name, number)


class SocketClient(Player):
    """A player's client, or an engine that is not Python, over WebSocket."""

    kind = "socket"

    def connect(self, number: int) -> Session:
        """See `Player.connect`."""
        return SocketSession(self.crew, self.name, number, self.crew.options.token)


class Poster(Player):
    """A service that publishes over HTTP."""

    kind = "poster"

    def connect(self, number: int) -> Session:
        """See `Player.connect`."""
        return PosterSession(self.crew, self.name, number)
