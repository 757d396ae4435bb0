"""``gamecast loadtest`` and ``./dev loadtest``: start a network, unless one is given, and run locust on it.

Put load on a network with game servers and clients, and check the deliveries of all of them. Writes into a directory:
``report.html``, ``judgement.json``, and ``locust.html`` and ``stats_*.csv`` of locust.

Exit status: 0 if every promise was kept and no request failed; 1 if a promise was broken; 2 for wrong use; 3 if the
network is unavailable, the run ends without a judgement, or requests failed; 4 if reports are missing and nothing is
known to be broken; 130 if interrupted. An interrupted run judges the deliveries so far, and ends with 1 if a promise
was broken.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import orjson

from gamecast import blocking
from gamecast.client.networks import require_reachable
from gamecast.errors import ProcessFailed, UsageError
from launcher.ending import BROKEN, CANNOT_TELL, DONE
from launcher.interrupts import Raised
from loadtest.options import TOKEN_VARIABLE, Options, add_hidden_to, add_to, shown_command
from loadtest.ownusers import kinds_in
from sequencing.errors import unwritable
from sequencing.extras import require

READY_S_MAX = 30.0
END_S_MAX = 20.0
LOCUSTFILE = Path(__file__).with_name("locustfile.py")
SOCKETS, POSTERS = 16, 2
"""Numbers of users by default: some of every kind."""
COMMAND = ("-m", "gamecast")
"""Python's arguments that run ``gamecast``, wherever it is installed."""


def load_test(arguments: Sequence[str] | None = None, *, program: str = "./dev loadtest") -> int:
    """Run the load test that the arguments ask for, and return the exit status. Raises if it cannot run."""
    parsed = _parser(program).parse_args(arguments)
    parsed.command = shown_command(program, sys.argv[1:] if arguments is None else arguments)
    parsed.run = parsed.run or f"load-{secrets.token_hex(3)}"
    with Raised(), ExitStack() as stack:
        return _run(parsed, stack)


class _Parser(argparse.ArgumentParser):
    """Reports wrong arguments as the other commands do: in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (see `{self.prog} --help`)")


def _parser(program: str) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=program,
        description=(__doc__ or "").partition("\n\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--nodes", type=int, default=3, help="Sequencing nodes, if it starts the network.  [default: 3]"
    )
    parser.add_argument("--processes", type=int, default=0, help="Worker processes beside the master.  [default: none]")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("loadtest-report"),
        help="Directory for the report.  [default: loadtest-report]",
    )
    parser.add_argument(
        "--scenario",
        type=Path,
        metavar="FILE",
        help="Locustfile with your own users, subclasses of gamecast.loadtest.GameServerUser; --servers says how many.",
    )
    add_to(parser)
    add_hidden_to(parser)
    if find_spec("aiohttp") is not None:  # without it, no gateway can be started
        parser.set_defaults(sockets=SOCKETS, posters=POSTERS)
    return parser


def _run(parsed: argparse.Namespace, stack: ExitStack) -> int:
    out: Path = parsed.out
    require("loadtest", "a load test")
    kinds = set(kinds_in(parsed.scenario).values()) if parsed.scenario else set()
    if kinds:
        # Of the kinds of users, only the file's own run.
        parsed.sockets = parsed.posters = 0
        if "server" not in kinds:
            parsed.servers, parsed.sockets = 0, parsed.servers
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(f"--out {out}", error) from error
    if parsed.network:
        require_reachable(parsed.network)
        with blocking.connect(parsed.network):
            pass  # fail here if the network is unavailable: otherwise every user would
    elif parsed.gateway and not parsed.servers:
        pass  # clients of a gateway do not need the network's URL
    else:
        parsed.network = stack.enter_context(_network(parsed.nodes))
    if (parsed.sockets or parsed.posters or "socket" in kinds) and not parsed.gateway:
        parsed.gateway = stack.enter_context(_gateway(parsed.network))
    parsed.judgement = parsed.judgement or str(out / "judgement.json")
    parsed.report = parsed.report or str(out / "report.html")
    options = Options.of(parsed)  # checks them
    options.scenario()
    locustfile = parsed.scenario or LOCUSTFILE
    for stale in (parsed.judgement, parsed.report):
        Path(stale).unlink(missing_ok=True)
    command = [sys.executable, "-m", "locust", "--locustfile", str(locustfile), "--headless", "--only-summary"]
    command += ["--html", str(out / "locust.html"), "--csv", str(out / "stats"), "--loglevel", "WARNING"]
    if parsed.processes:
        # A free port, so that workers of other runs do not connect to this master.
        port = str(_free_port())
        command += ["--processes", str(parsed.processes), "--master-bind-host", "127.0.0.1"]
        command += ["--master-bind-port", port, "--master-port", port]
    for name in Options.__slots__:
        if name != "token" and (value := getattr(options, name)) != "":
            command += [f"--{name.replace('_', '-')}", str(value)]
    sys.stdout.flush()  # before locust writes there
    status, interrupted = _watched(command, os.environ | {TOKEN_VARIABLE: options.token})
    if not Path(parsed.judgement).exists():
        if interrupted:
            raise KeyboardInterrupt
        raise ProcessFailed(f"the run ended without a judgement: locust ended with status {status}")
    sys.stdout.write(f"The report is {parsed.report}; locust's own is {out / 'locust.html'}.\n")
    judgement = orjson.loads(Path(parsed.judgement).read_bytes())
    if not judgement["fine"] and not (interrupted and judgement["run"]["stopped_in_order"]):
        return BROKEN if judgement["run"]["is_broken"] else CANNOT_TELL
    if interrupted:
        raise KeyboardInterrupt
    if status:
        raise ProcessFailed("every promise was kept, but requests failed: see the error report above")
    return DONE


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _watched(command: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bool]:
    """Run locust to its end. An interrupt is passed on to locust, which then judges the deliveries so far.

    Returns locust's exit status, and whether it was interrupted.
    """
    interrupted = False
    with subprocess.Popen(command, env=environment) as locust:
        while True:
            try:
                return locust.wait(), interrupted
            except KeyboardInterrupt:
                interrupted = True
                with suppress(ProcessLookupError):
                    locust.send_signal(signal.SIGINT)


@contextmanager
def _network(nodes: int) -> Iterator[str]:
    # The gateway gets its own process, so that it shares no core with the relays.
    command = [sys.executable, *COMMAND, "up", "--no-gateway", "--json", "--nodes", str(nodes)]
    with _daemon(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise ProcessFailed(f"cannot start a network: gamecast up ended with status {process.wait()}")
        yield str(orjson.loads(line)["url"])


@contextmanager
def _gateway(network: str) -> Iterator[str]:
    command = [sys.executable, *COMMAND, "gateway", network, "--port", "0"]
    with _daemon(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        deadline_s = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline_s and (line := process.stderr.readline()):
            _, separator, where = line.decode().rstrip().partition(" listens at ")
            if separator:
                yield where
                return
        raise ProcessFailed(f"cannot start a gateway: gamecast gateway ended with status {process.poll()}")


@contextmanager
def _daemon(
    command: Sequence[str], *, stdout: int | None = None, stderr: int | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    # In its own session: an interrupt from the terminal goes to locust first.
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, start_new_session=True, env=environment, stdout=stdout, stderr=stderr) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(END_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
