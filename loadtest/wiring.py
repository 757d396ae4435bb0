"""What a load test adds to locust: its options, the course of a run, and the judgement. Importing this connects it.

It serves the load test's own users (`loadtest.locustfile`) and subclasses of `GameServerUser` in any locustfile, with
and without locust's web page, which can start several runs, one after the other. Importing this module patches the
process for gevent.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

import gevent
from locust import LoadTestShape, events, runners
from locust.runners import STATE_INIT, STATE_MISSING, MasterRunner, WorkerRunner

from loadtest.conductor import Conductor
from loadtest.crew import Crew
from loadtest.judging import GUARANTEE_OF, REPORTS, findings
from loadtest.options import Options, add_hidden_to, add_to, shown_command
from loadtest.page import write_page
from loadtest.report import write_judgement
from loadtest.shapes import Moment
from loadtest.users import GameServer, Player, Poster, SocketClient
from sequencing.checkers import Offence
from sequencing.errors import GamecastError, UsageError

CHUNK_EVERY_S = 1.0
SPAWN_PER_S_MIN = 20
WORKERS_S_MAX = 10.0
"""Seconds that a new run waits for the workers of the last one."""
STOP_S_MAX = 65.0
"""Seconds that a new run waits until locust has stopped the last one; locust waits 60 s for its workers."""
WRONG_USE = 2
# In seconds. Locust's own limit is 3 s, but a worker that gets no CPU time for 3 s is slow, not lost.
runners.HEARTBEAT_LIVENESS = 15
BUILT_IN: tuple[type[Player], ...] = (GameServer, SocketClient, Poster)
_own_bases: list[type[Player]] = []

CHUNK, TELL, BEGIN = "gamecast-chunk", "gamecast-tell", "gamecast-begin"
"""Messages: a worker's reports; the master's instructions; and each worker's number, with the options of the run."""


def use(base: type[Player]) -> None:
    """Conduct and judge runs whose users are subclasses of ``base``, too."""
    _own_bases.append(base)


class Conducted(LoadTestShape):
    """Follows the requested shape, and ends when the run is judged.

    ``inner``: the locustfile's own shape, which then says how many users there are.
    """

    use_common_options = True

    def __init__(self, series: Series, inner: LoadTestShape | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._series = series
        self._inner = inner
        self._wanted: tuple[Any, ...] | None = None
        self._is_over = False

    def reset_time(self) -> None:
        """See `LoadTestShape.reset_time`."""
        super().reset_time()  # type: ignore[no-untyped-call]
        if self._inner is not None:
            self._inner.reset_time()  # type: ignore[no-untyped-call]
            self._is_over = False

    def tick(self) -> tuple[Any, ...] | None:
        """See `LoadTestShape.tick`."""
        series = self._series
        share = series.lead()
        if share is None:
            return None
        if self._inner is not None and not self._is_over:
            self._inner.runner = series.runner
            if (wanted := self._inner.tick()) is not None:
                self._wanted = tuple(wanted)
            else:
                self._is_over = True
                series.end()
        if self._inner is not None and self._wanted is not None:
            return self._wanted
        return max(1, round(share * series.options.users)), series.spawn_per_s


class Series:
    """One process's part of all runs: it is the master, or a worker with users, or both if there is no other process.

    Each run has its own conductor, crews and ledger, and a name of its own.
    """

    def __init__(self, environment: Any, own: list[type[Player]]) -> None:
        """``own``: the classes of users of the locustfile, empty for the load test's own."""
        self.environment = environment
        self.runner = environment.runner
        self.own = own
        self.crew: Crew | None = None
        self.conductor: Conductor | None = None
        self.judgement: dict[str, Any] | None = None
        """The judgement of the last run that is over, and its figures."""
        self._moment = Moment()
        self._led: set[str] = set()
        self._runs = 0
        self._is_ending = False
        """Whether locust still stops the users of a run that is over."""
        self._worker, self._workers = 0, 1
        # A worker gets its options when the run begins.
        self.options = Options(network="-")
        if not isinstance(self.runner, WorkerRunner):
            parsed = environment.parsed_options
            parsed.run = self._name = parsed.run or f"load-{secrets.token_hex(3)}"
            if own and parsed.num_users is None:
                parsed.num_users = parsed.servers + parsed.sockets + parsed.posters
            if own and parsed.spawn_rate is None:
                parsed.spawn_rate = max(SPAWN_PER_S_MIN, parsed.num_users)
            parsed.command = parsed.command or shown_command("locust", sys.argv[1:])
            self.options = self._read_options()
            self.runner.register_message(CHUNK, self._on_chunk)
            self._start_shape = self.runner.start_shape
            self.runner.start_shape = self._start
            _listen(events.quitting, self._on_stop)
        _listen(events.test_stop, self._on_stop)
        if not isinstance(self.runner, MasterRunner):
            self.runner.register_message(BEGIN, self._on_begin)
            self.runner.register_message(TELL, self._on_tell)
            _listen(events.test_start, self._on_crew_start)

    @property
    def spawn_per_s(self) -> float:
        """How many users start in a second."""
        asked = self.environment.parsed_options.spawn_rate if self.own else None
        return float(asked or max(SPAWN_PER_S_MIN, self.options.users))

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
            self._is_ending = True
            self._finish()
        return share

    def _start(self) -> None:
        """Start a run. Locust would ignore a start while it stops the users of the last run."""
        last = self.runner.shape_greenlet
        if last is not None and self._is_ending:
            last.join(STOP_S_MAX)
        if last is not None and last.dead:
            self.runner.shape_greenlet = None
        self._start_shape()

    def end(self) -> None:
        """End the run in order, before its time."""
        if self.conductor is not None:
            self.conductor.is_enough = True

    def _read_options(self) -> Options:
        """Return the options, with what the web page has changed. Raises `GamecastError`."""
        parsed = self.environment.parsed_options
        changes: dict[str, Any] = {}
        if self.own:
            kinds = {user.kind for user in self.own}
            if "socket" in kinds and not parsed.gateway:
                raise UsageError('users of kind "socket" need a gateway: name it with --gateway URL')
            changes = {"servers": 0, "sockets": 0, "posters": 0, "seconds": float(parsed.run_time or parsed.seconds)}
            changes["servers" if "server" in kinds else "sockets"] = parsed.num_users or 1
        options = Options.of(parsed, **changes)
        options.scenario()
        return options

    def _begin(self) -> Conductor:
        """Begin a run: send each worker its number and the options, before it starts users."""
        workers = self._ready_workers() if isinstance(self.runner, MasterRunner) else []
        self._led = set(workers)
        self._runs += 1
        self._is_ending = False
        name = self._name if self._runs == 1 else f"{self._name}-{self._runs}"
        try:
            self.options = replace(self._read_options(), run=name)
        except GamecastError as error:
            sys.stderr.write(f"loadtest: {error}\n")
            self.options = replace(self.options, run=name)
        for number, worker in enumerate(workers or [None]):
            begin = {"worker": number, "workers": len(workers) or 1, "options": asdict(self.options)}
            self.runner.send_message(BEGIN, begin, client_id=worker)
        names = ", ".join(sorted(user.__name__ for user in self.own))
        return Conductor(
            options=self.options,
            tell=lambda what: self.runner.send_message(TELL, what),
            violated=self._on_violation,
            workers=len(workers) or 1,
            crowd=f"{self.options.users} users ({names})" if names else "",
        )

    def _ready_workers(self) -> list[str]:
        """Wait for the workers of the last run to be ready again, and return all workers."""
        deadline_s = time.monotonic() + WORKERS_S_MAX
        wanted = max(1, len(self._led))
        while len(self.runner.clients.ready) < wanted and time.monotonic() < deadline_s:
            gevent.sleep(0.1)
        if self._runs:
            # While a worker of the last run said goodbye, locust took the new run for stopped.
            self.runner.update_state(STATE_INIT)
        return [client.id for client in self.runner.clients.all if client.state != STATE_MISSING]

    def _on_begin(self, msg: Any, **_: Any) -> None:
        self.crew = None
        self._worker, self._workers = msg.data["worker"], msg.data["workers"]
        self.options = Options(**msg.data["options"])

    def _on_crew_start(self, **_: Any) -> None:
        crew = Crew(
            options=self.options,
            # In a real thread: reading a match takes seconds, in which this process could not send locust heartbeats.
            scenario=gevent.get_hub().threadpool.apply(self.options.scenario),
            fire=self._fire,
            process=f"{socket.gethostname()}-{os.getpid()}",
            worker=self._worker,
            workers=self._workers,
        )
        crew.moment = self._moment
        crew.planted = self._worker != 0
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
            self.runner.send_message(CHUNK, {"run": crew.options.run, "data": crew.chunk(last=last)})

    def _on_chunk(self, msg: Any, **_: Any) -> None:
        # A worker of the last run may still send its reports.
        if self.conductor is not None and msg.data["run"] == self.conductor.options.run:
            self.conductor.hear(msg.data["data"])

    def _on_violation(self, offence: Offence) -> None:
        self._fire("judge", GUARANTEE_OF.get(offence.kind, offence.kind), 0, AssertionError(offence.describe()))

    def _fire(self, kind: str, name: str, took_ms: float, error: BaseException | None) -> None:
        if error is not None and kind != "judge" and self.crew is not None:
            self.crew.journal.failed(kind, name, str(error) or type(error).__name__)
        self.environment.events.request.fire(
            request_type=kind, name=name, response_time=took_ms, response_length=0, exception=error, context={}
        )

    def _on_stop(self, **_: Any) -> None:
        """Judge a run that was stopped before its end, by the page or by an interrupt."""
        if self.crew is not None:
            self._hand_over(self.crew, last=True)
        if self.conductor is not None:
            self.conductor.interrupt()
            self._finish()

    def _finish(self) -> None:
        """Write the results, show them in locust's statistics, and set the exit status of the process."""
        conductor, self.conductor = self.conductor, None
        assert conductor is not None
        judgement = conductor.judgement
        assert judgement is not None
        write_judgement(conductor)
        if self.options.report:
            write_page(conductor, Path(self.options.report), locust=self.environment.parsed_options.html_file)
        self.judgement = judgement.as_dict() | {"name": conductor.options.run, "run": conductor.figures()}
        # The page's way to end a run is no failure; that of a command, an interrupt, is one.
        stopped_on_page = conductor.stopped_in_order and self.environment.web_ui is not None
        for finding in findings(judgement):
            if finding.kept is None or (stopped_on_page and finding.guarantee == REPORTS):
                self._fire("judge", f"{finding.guarantee}: not judged", 0, None)
            else:
                broken = None if finding.kept else AssertionError(finding.counts)
                self._fire("judge", finding.guarantee, 0, broken)
        if not judgement.fine and not stopped_on_page:
            self.environment.process_exit_code = 1


def _on_parser(parser: Any, **_: Any) -> None:
    add_to(parser)
    add_hidden_to(parser)


def _on_init(environment: Any, web_ui: Any = None, **_: Any) -> None:
    built_in = [user for user in environment.user_classes if user in BUILT_IN]
    own = [user for user in environment.user_classes if issubclass(user, tuple(_own_bases))]
    if not built_in and not own:
        return  # the locustfile imports this, but none of its users need a judge
    if own and environment.parsed_options.class_picker:
        _refuse("--class-picker does not go with GameServerUser: name the classes of users on the command line")
    try:
        series = Series(environment, own)
    except GamecastError as error:
        _refuse(str(error))
    environment.shape_class = Conducted(series, environment.shape_class)
    environment.shape_class.runner = environment.runner
    if built_in and not isinstance(environment.runner, WorkerRunner):
        for user in built_in:
            user.weight = getattr(series.options, user.kind + "s")
        environment.user_classes[:] = [user for user in built_in if user.weight]
    if web_ui is not None:

        @web_ui.app.route("/judgement")  # type: ignore[untyped-decorator] # flask is locust's
        @web_ui.auth_required_if_enabled  # type: ignore[untyped-decorator]
        def judgement() -> Any:
            return series.judgement or {}


def _refuse(text: str) -> NoReturn:
    sys.stderr.write(f"loadtest: {text}\n")
    raise SystemExit(WRONG_USE)


def _listen(hook: Any, listener: Callable[..., None]) -> None:
    """Add a listener to one of locust's hooks, which have no types."""
    hook.add_listener(listener)


_listen(events.init_command_line_parser, _on_parser)
_listen(events.init, _on_init)
