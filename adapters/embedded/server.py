"""Private redis-servers, for `embedded://` and the tests.

A server lives in a private directory and listens on a loopback port, so that other processes can join by its URL. It
never outlives the process that started it, however that process ends: a watchdog process ends the server.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Literal, Self
from urllib.parse import quote

from adapters.embedded.binary import find_redis_server
from adapters.embedded.ports import free_port
from adapters.embedded.watchdog import Watchdog
from sequencing.errors import EmbeddedServerError, UsageError

AppendFsync = Literal["always", "everysec", "no"]


class Startable(ABC):
    """A resource that can be started and stopped, as a context manager with and without `async`."""

    @abstractmethod
    def start(self) -> None:
        """Start everything, or nothing."""

    @abstractmethod
    def stop(self) -> None:
        """Stop everything; has no effect if nothing runs."""

    def give_up(self) -> None:  # noqa: B027 - most starts take no time
        """Have a start that another thread waits for fail soon; by default it takes its time."""

    async def start_async(self) -> None:
        await _in_thread(self.start, undo=self.stop, hurry=self.give_up)

    async def stop_async(self) -> None:
        await _in_thread(self.stop)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await self.start_async()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_async()


class EmbeddedServer(Startable):
    """One private redis-server on 127.0.0.1; a context manager, with and without `async`.

    `appendfsync` turns the append-only file on; without it nothing is persisted. `settings` are further lines of
    redis.conf, as are `lines`, whose words may repeat. `arguments` are added to the command line, and `environment` to
    this process's environment. Without a `password`, every user of this machine can connect to the server; with
    `keeps_users`, it keeps Redis users over a restart. All calls
    block, usually for milliseconds and at most for `start_time_s_max`; the `_async` ones do so in a thread. Raises
    EmbeddedServerError, with the end of the server's log.
    """

    def __init__(
        self,
        *,
        appendfsync: AppendFsync | None = None,
        password: str | None = None,
        settings: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        start_time_s_max: float = 10.0,
        lines: Sequence[str] = (),
        keeps_users: bool = False,
    ) -> None:
        self._keeps_users = keeps_users
        self._appendfsync = appendfsync
        self._password = password
        self._settings = dict(settings or {})
        self._lines = tuple(lines)
        self._arguments = tuple(arguments)
        self._environment = dict(environment or {})
        self._start_time_s_max = start_time_s_max
        self._directory: Path | None = None
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None
        self._owner_pid = 0

    @property
    def url(self) -> str:
        """The URL with which every process on this machine can reach the server; it stays the same over a restart."""
        if not self._port:
            raise UsageError("the embedded server has not been started: call start(), or use `with EmbeddedServer()`")
        user = f":{quote(self._password, safe='')}@" if self._password else ""
        return f"redis://{user}127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise UsageError("the embedded server is not running: call start() or restart()")
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether it was started, and its process has ended without a call of this object."""
        return self._process is not None and self._process.poll() is not None

    def change(self, settings: Mapping[str, str]) -> None:
        """Have other settings from the next start on."""
        self._settings |= settings
        if self._directory is not None:
            self._write_configuration()

    @property
    def directory(self) -> Path:
        """The directory of its configuration, log and data; removed by stop()."""
        if self._directory is None:
            raise UsageError("the embedded server has not been started, or was stopped: it has no directory")
        return self._directory

    def start(self) -> None:
        """Start the server; return when it answers a PING."""
        if self._watchdog is not None:
            raise UsageError("the embedded server was started already: use restart()")
        binary = find_redis_server()
        self._owner_pid = os.getpid()
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="gamecast-redis-"))
            self._watchdog = Watchdog(self._directory)
            atexit.register(self.stop)
            self._start_on_free_port(binary)
        except OSError as error:
            self.stop()
            raise EmbeddedServerError(f"the private redis-server {binary} could not be started: {error}") from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server and remove its data; has no effect if it is not running, or in a fork of its process."""
        if self._owner_pid != os.getpid():
            return
        atexit.unregister(self.stop)
        self.kill()
        if self._watchdog is not None:
            self._watchdog.close()
            self._watchdog = None
        elif self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._directory = None
        self._port = 0

    def kill(self) -> None:
        """Kill the server with SIGKILL; its files stay for restart()."""
        if self._process is not None and self._owner_pid == os.getpid():
            _kill_group(self._process.pid)
            self._reap()

    def restart(self) -> None:
        """Start the server on the same data and port, after an orderly shutdown if it is running."""
        if self._watchdog is None:
            raise UsageError("the embedded server has not been started, or was stopped: there is nothing to restart")
        if self._process is not None:
            self._shut_down(self._process)
        deadline = time.monotonic() + self._start_time_s_max
        # Each try gets the full time: a shortened one cannot distinguish a used port from a server that hangs.
        while not self._launch(find_redis_server(), time.monotonic() + self._start_time_s_max):
            if time.monotonic() >= deadline:
                raise self._failure(f"its port {self._port} was taken by another process while it was down")
            time.sleep(_POLL_S)

    async def restart_async(self) -> None:
        await _in_thread(self.restart)

    def _start_on_free_port(self, binary: str) -> None:
        deadline = time.monotonic() + self._start_time_s_max
        for _ in range(_PORT_TRIES_MAX):
            self._port = free_port()
            self._write_configuration()
            if self._launch(binary, deadline):
                return
        raise self._failure(f"{_PORT_TRIES_MAX} ports in a row were taken by others before it could listen")

    def _launch(self, binary: str, deadline: float) -> bool:
        """Return whether the server is up; False if its port is in use."""
        assert self._watchdog is not None
        log_from = self._log_file.stat().st_size if self._log_file.exists() else 0
        command = binary, str(self._configuration_file), *self._arguments
        if self._environment:  # for the server alone, not for the shell that becomes it
            command = "env", *(f"{name}={value}" for name, value in self._environment.items()), *command
        self._process = self._watchdog.launch(*command, log_file=self._log_file)
        while not self._answers(deadline):
            if self._process.poll() is not None:
                status = self._process.returncode
                self._reap()
                if _BUSY_PORT in self._log_tail(log_from):
                    return False
                raise self._failure(f"it ended with status {status}", log_from)
            if time.monotonic() >= deadline:
                self.kill()
                if _BUSY_PORT in self._log_tail(log_from):
                    return False
                raise self._failure(f"it did not answer within {self._start_time_s_max:g} s", log_from)
            time.sleep(_POLL_S)
        return True

    def _answers(self, deadline: float) -> bool:
        """Return whether our server, and not another one that got the port first, answers a PING."""
        patience_s = min(0.25, max(0.01, deadline - time.monotonic()))
        try:
            with (
                socket.create_connection(("127.0.0.1", self._port), timeout=patience_s) as connection,
                connection.makefile("rb") as replies,
            ):
                if self._password and _ask(connection, replies, "AUTH", self._password) != b"+OK":
                    return False
                if _ask(connection, replies, "PING") != b"+PONG":
                    return False
                ours = b"config_file:" + os.fsencode(self._configuration_file)
                return ours in _ask(connection, replies, "INFO", "server").splitlines()
        except (OSError, ValueError):
            return False

    def _shut_down(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(timeout=self._start_time_s_max)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
        self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        assert self._watchdog is not None
        self._process.wait()
        self._watchdog.forget_server()
        self._process = None

    def _write_configuration(self) -> None:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self._port),
            "dir": _quoted(str(self.directory)),
            "daemonize": "no",
            "supervised": "no",
            "save": '""',
            "appendonly": "no" if self._appendfsync is None else "yes",
            "appendfsync": self._appendfsync or "no",
            "maxmemory-policy": "noeviction",
        }
        if self._keeps_users:
            users = self.directory / "users.acl"
            if not users.exists():
                users.write_text(
                    f"user default on {'>' + self._password if self._password else 'nopass'} ~* &* +@all\n"
                )
                users.chmod(0o600)
            settings["aclfile"] = _quoted(str(users))
        elif self._password:
            settings["requirepass"] = _quoted(self._password)
        lines = [*(f"{name} {value}" for name, value in (settings | self._settings).items()), *self._lines]
        if any(character in line for line in lines for character in "\r\n\0"):
            raise UsageError("each setting of the embedded server, and its password, must be one line")
        self._configuration_file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    @property
    def _configuration_file(self) -> Path:
        return self.directory / "redis.conf"

    @property
    def _log_file(self) -> Path:
        return self.directory / "redis.log"

    def _log_tail(self, log_from: int = 0) -> str:
        try:
            text = self._log_file.read_bytes()[log_from:].decode("utf-8", "replace")
        except OSError:
            return "(it wrote no log)"
        return "\n".join(text.strip().splitlines()[-_LOG_LINES_MAX:]) or "(it wrote no log)"

    def _failure(self, reason: str, log_from: int = 0) -> EmbeddedServerError:
        return EmbeddedServerError(
            f"the private redis-server could not be started: {reason}. Its log ends:\n{self._log_tail(log_from)}"
        )


class EmbeddedServers(Startable):
    """`count` private redis-servers with the same options, started in parallel; all of them run, or none."""

    def __init__(
        self,
        count: int,
        *,
        appendfsync: AppendFsync | None = None,
        password: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        if count < 1:
            raise UsageError(f"{count} embedded servers are not a network: ask for at least one")
        self.servers = tuple(
            EmbeddedServer(appendfsync=appendfsync, password=password, settings=settings) for _ in range(count)
        )

    @property
    def urls(self) -> tuple[str, ...]:
        return tuple(server.url for server in self.servers)

    def start(self) -> None:
        try:
            start_all(self.servers)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for server in reversed(self.servers):
            server.stop()


def start_all(servers: Sequence[EmbeddedServer]) -> None:
    """Start servers in parallel; raises the first failure, once all have tried."""
    with ThreadPoolExecutor(max_workers=min(len(servers), _STARTS_AT_ONCE_MAX)) as pool:
        starts = [pool.submit(server.start) for server in servers]
    for start in starts:
        start.result()


def _kill_group(leader_pid: int) -> None:
    with suppress(ProcessLookupError):  # it may have ended already
        os.killpg(leader_pid, signal.SIGKILL)


def _ask(connection: socket.socket, replies: IO[bytes], *words: str) -> bytes:
    """Send one Redis command; return the whole reply, without its final line end."""
    arguments = [word.encode() for word in words]
    packed = b"".join(b"$%d\r\n%s\r\n" % (len(argument), argument) for argument in arguments)
    connection.sendall(b"*%d\r\n" % len(arguments) + packed)
    line = replies.readline().rstrip(b"\r\n")
    return replies.read(int(line[1:]) + 2).rstrip(b"\r\n") if line.startswith(b"$") else line


def _quoted(value: str) -> str:
    """Return a value in the quotes of redis.conf."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


async def _in_thread(
    call: Callable[[], None], *, undo: Callable[[], None] | None = None, hurry: Callable[[], None] | None = None
) -> None:
    """Run a blocking call to its end even if the caller is cancelled, and then undo it. ``hurry`` makes it end soon."""
    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        if hurry is not None:
            hurry()
        await asyncio.wait({running})
        if undo is not None and running.exception() is None:
            await asyncio.to_thread(undo)
        raise


_BUSY_PORT = "Address already in use"
_LOG_LINES_MAX = 12
_POLL_S = 0.002  # between two tries to connect: a server takes 5 to 20 ms to listen
_PORT_TRIES_MAX = 20
_STARTS_AT_ONCE_MAX = 16
