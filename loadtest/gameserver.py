"""The base class of your own load test users. Importing this module patches the process for gevent, as locust does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from loadtest.session import ServerSession
from loadtest.socket_session import SocketSession
from loadtest.users import IDLE_S, Player, Session
from loadtest.wiring import use
from sequencing.errors import UsageError


class GameServerUser(Player):
    """A locust user that publishes your events to your regions, and whose deliveries are judged.

    Subclass it in a locustfile, and override what differs from the load test's own game servers::

        class Zone(GameServerUser):
            wait_time = between(0.05, 0.2)

            def regions(self):
                return ["town", f"zone-{self.number % 4}"]

            def payload(self, region):
                return {"type": "move", "x": self.random.random()}

    Run it with ``locust -f FILE --network URL`` or ``gamecast loadtest --scenario FILE``. Locust decides when the
    methods are called; they may block, because locust replaces blocking calls by switches between users.

    ``number``: which user this is, from 0, across all workers. ``random``: a generator seeded by ``--seed``.
    ``wait_time``: locust's; by default the user publishes ``--rate`` events/s at random times. ``kind``: "server"
    connects to ``--network`` with the library, "socket" to ``--gateway`` over WebSocket.
    """

    abstract = True
    kind: Literal["server", "socket"] = "server"  # type: ignore[misc] # users set it, with or without ClassVar

    def regions(self) -> Sequence[str]:
        """Return the regions of this user, now. It is asked before each event, and joins and leaves accordingly.

        By default the regions of the ``--workload``.
        """
        return self.slot.regions

    def payload(self, region: str) -> Mapping[str, object] | None:
        """Return the next event for a region, a JSON object, or None to publish nothing.

        The load test adds one field, ``loadtest``, by which the event is judged.
        """
        return super().payload(region)

    def target(self, regions: Sequence[str]) -> str:
        """Return the region of the next event. By default a random one of the user's regions."""
        return self.random.choice(regions)

    def network(self) -> str:
        """Return the URL of the control Redis, with this user's name and password. By default that of ``--network``."""
        return self.crew.options.network

    def token(self) -> str:
        """Return the signed token of this user, for ``kind = "socket"``. By default that of the options."""
        return self.crew.options.token

    def wait_time(self, /) -> float:
        """Return the seconds until the next event: random ones, ``--rate`` events/s on average."""
        return self.random.expovariate(self.crew.options.rate * self.crew.moment.rate)

    def own_name(self) -> str:
        """Return the name of the user on the network, which begins with the subject of its token."""
        return replace(self.crew.options, token=self.token()).name_of(self.kind, self.slot_number)

    @property
    def number(self) -> int:
        """The number of this user among all users of its kind, from 0."""
        return self.slot_number

    def on_start(self) -> None:
        """Connect and join."""
        own_wait_time = self.wait_time

        def wait_time() -> float:
            # The event is due when the wait should end: a process that wakes late must not look fast.
            seconds = max(0.0, own_wait_time())
            self.due_s = time.time() + seconds
            return seconds

        self.wait_time = wait_time  # type: ignore[method-assign]
        super().on_start()

    def connect(self, number: int) -> Session:
        """See `Player.connect`."""
        if self.kind == "socket":
            return SocketSession(self.crew, self.name, number, self.token())
        return ServerSession(self.crew, self.name, number, self.network())

    def _do_next(self) -> None:
        assert self.session is not None
        regions = list(dict.fromkeys(self.regions()))
        had = set(self.session.regions)
        if new := [region for region in regions if region not in had]:
            self.session.join(*new)
        for region in sorted(had.difference(regions)):
            self.session.leave(region)
        if self.crew.quiet:
            return
        if regions:
            self._publish(self.target(regions))
        else:
            time.sleep(IDLE_S)

    def _open(self, regions: Sequence[str]) -> None:
        if isinstance(regions, str):
            raise UsageError(f"{type(self).__name__}.regions() returned the text {regions!r}: return a list of names")
        super()._open(regions)


use(GameServerUser)
