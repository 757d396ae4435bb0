"""The load test for locust: ``locust -f loadtest/locustfile.py --headless --network redis://… --run NAME``.

`./dev loadtest` starts a network and runs this file on it. docs/loadtest.md describes how to run it on your own
network, and with workers on other machines. Importing this module patches the process for gevent.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
from locust import LoadTestShape, events, runners
from locust.runners import STATE_MISSING, MasterRunner, WorkerRunner

from loadtest.conductor import Conductor
from loadtest.crew import Crew
from loadtest.options import Options, add_hidden_to, add_to
from loadtest.report import write_judgement
from loadtest.shapes import Moment
from loadtest.users import GameServer, Player, Poster, SocketClient
from sequencing.checkers import Offence
from sequencing.errors import GamecastError

CHUNK_EVERY_S = 1.0
SPAWN_PER_S_MIN = 20
# In seconds. Locust's own limit is 3 s, but a worker that gets no CPU time for 3 s is slow, not lost.
runners.HEARTBEAT_LIVENESS = 15
USER_CLASSES: tuple[type[Player], ...] = (GameServer, SocketClient, Poster)

CHUNK, TELL, PLACES = "gamecast-chunk", "gamecast-tell", "gamecast-places"
"""Messages: a worker's reports; the master's instructions; and each worker's number, with the number of workers."""


class Conducted(LoadTestShape):
    """Follows the requested shape, and ends when the run is judged."""

    run: Run

    def tick(self) -> tuple[int, float] | None:
        """See `LoadTestShape.tick`."""
        share = self.run.lead()
        if share is None:
            return None
        users = max(1, round(share * self.run.options.users))
        return users, float(max(SPAWN_PER_S_MIN, self.run.options.users))


class Run:
    """One process's part of a run: it is the master, or a worker with users, or both if there is no other process."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.runner = environment.runner
        # A worker gets its options when the run begins.
        self.options = Options(network="-") if isinstance(self.runner, WorkerRunner) else _options(environment)
        self.crew: Crew | None = None
        self.conductor: Conductor | None = None
        self._place = 0, 1
        self._moment = Moment()
        self._led: set[str] = set()
        if not isinstance(self.runner, WorkerRunner):
            self.runner.register_message(CHUNK, self._on_chunk)
            _listen(events.quitting, self._on_quitting)
        if not isinstance(self.runner, MasterRunner):
            self.runner.register_message(PLACES, self._on_places)
            self.runner.register_message(TELL, self._on_tell)
            _listen(events.test_start, self._on_crew_start)

    def lead(self) -> float | None:
        """Advance the conductor. Return the share of users that should be running."""
        if self.conductor is None:
            self.conductor = self._begin()
        if isinstance(self.runner, MasterRunner):
            alive = {client.id for client in self.runner.clients.all if client.state != STATE_MISSING}
            for lost in self._led - alive:
                self.conductor.lost_worker(lost)
            self._led &= alive
        share = self.conductor.tick(time.monotonic(), time.time_ns())
        if share is None:
            self._finish()
        return share

    def _begin(self) -> Conductor:
        """Send each worker its number, before it starts users."""
        workers = list(self.runner.clients) if isinstance(self.runner, MasterRunner) else []
        self._led = set(workers)
        for number, worker in enumerate(workers):
            self.runner.send_message(PLACES, {"worker": number, "workers": len(workers)}, client_id=worker)
        return Conductor(
            options=self.options,
            tell=lambda what: self.runner.send_message(TELL, what),
            violated=self._on_violation,
            workers=len(workers) or 1,
        )

    def _on_places(self, msg: Any, **_: Any) -> None:
        self._place = msg.data["worker"], msg.data["workers"]

    def _on_crew_start(self, **_: Any) -> None:
        options = Options.of(self.environment.parsed_options)  # now the master's options
        worker, workers = self._place
        crew = Crew(
            options=options,
            # In a real thread: reading a match takes seconds, in which this process could not send locust heartbeats.
            scenario=gevent.get_hub().threadpool.apply(options.scenario),
            fire=self._fire,
            process=f"{socket.gethostname()}-{os.getpid()}",
            worker=worker,
            workers=workers,
        )
        crew.moment = self._moment
        crew.planted = worker != 0
        self.crew = Player.crew = crew
        gevent.spawn(self._hand_over_now_and_then)

    def _on_tell(self, msg: Any, **_: Any) -> None:
        crew, said = self.crew, msg.data
        if "moment" in said:
            self._moment = Moment(**said["moment"])
        if crew is None:
            return
        crew.moment = self._moment
        crew.quiet = crew.quiet or bool(said.get("quiet"))
        if said.get("last"):
            gevent.spawn(self._hand_over, crew, last=True)

    def _hand_over_now_and_then(self) -> None:
        crew = self.crew
        while crew is not None and crew is self.crew:
            gevent.sleep(CHUNK_EVERY_S)
            self._hand_over(crew)

    def _hand_over(self, crew: Crew, *, last: bool = False) -> None:
        if self.crew is crew:
            self.crew = None if last else crew
            self.runner.send_message(CHUNK, {"data": crew.chunk(last=last)})

    def _on_chunk(self, msg: Any, **_: Any) -> None:
        if self.conductor is not None:
            self.conductor.hear(msg.data["data"])

    def _on_violation(self, offence: Offence) -> None:
        self._fire("judge", offence.kind, 0, AssertionError(offence.describe()))

    def _fire(self, kind: str, name: str, took_ms: float, error: BaseException | None) -> None:
        self.environment.events.request.fire(
            request_type=kind, name=name, response_time=took_ms, response_length=0, exception=error, context={}
        )

    def _on_quitting(self, **_: Any) -> None:
        if self.conductor is not None and self.conductor.judgement is None:
            self.conductor.interrupt()
            self._finish()

    def _finish(self) -> None:
        """Write the results, and set the exit status of the process."""
        conductor = self.conductor
        assert conductor is not None
        assert conductor.judgement is not None
        write_judgement(conductor, Path(self.options.judgement) if self.options.judgement else None)
        if not conductor.judgement.fine:
            self.environment.process_exit_code = 1


def _on_parser(parser: Any, **_: Any) -> None:
    add_to(parser)
    add_hidden_to(parser)


def _on_init(environment: Any, **_: Any) -> None:
    run = Conducted.run = Run(environment)
    if isinstance(environment.runner, WorkerRunner):
        return
    wanted = []
    for user in USER_CLASSES:
        user.weight = getattr(run.options, user.kind + "s")
        if user.weight:
            wanted.append(user)
    environment.user_classes[:] = wanted


def _options(environment: Any) -> Options:
    try:
        options = Options.of(environment.parsed_options)
        options.scenario()
    except GamecastError as error:
        raise SystemExit(f"loadtest: {error}") from error
    return options


def _listen(hook: Any, listener: Callable[..., None]) -> None:
    """Add a listener to one of locust's hooks, which have no types."""
    hook.add_listener(listener)


_listen(events.init_command_line_parser, _on_parser)
_listen(events.init, _on_init)
