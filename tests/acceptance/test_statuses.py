"""Every command, driven through everything that docs/exit-statuses.md has a line for: one status, and one line.

A command that is new has no row here, and fails until somebody has said how it is called.
"""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click
import pytest

from cli.main import cli
from cli.running import status_of
from gamecast.errors import GamecastError, Unreachable, UsageError
from launcher.ending import BROKEN, BUG, CANNOT_TELL, DONE, INFRASTRUCTURE, INTERRUPTED, WRONG_USE
from tests.patience import Deadline, scaled

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
NOWHERE = "redis://127.0.0.1:1"

MEMBERSHIP = "s1,forest\ns2,forest\ns1,river\ns2,river\n"
LOG = '{"subscriber": "s1", "index": 0, "event": "e1", "region": "forest", "sender": "s2"}\n'
SEND = '{"process": "p", "event": "send", "message": "m", "to": ["q"]}\n'
RECEIVE = '{"process": "q", "event": "receive", "message": "m"}\n'
SCRIPT = "processes a b\n---\na publishes m\nthe rest is received\n"
MATRIX = "host,a,b\na,0,10\nb,10,0\n"
EDGES = "a,b,delay_ms\na,b,1\nb,c,1\n"


@dataclass(frozen=True)
class Row:
    """How a command is called; ``{names}`` stand for files and places that `places` makes.

    ``call``: what it takes to come to its work. ``quick``: whether that work takes no time, so that it is done here,
    and not left out as of other commands. ``reads`` and ``writes``: calls with ``{input}``, a file to read, and
    ``{out}``, a file to write. ``reaches``: a call that cannot reach its Redis.
    """

    call: str = ""
    quick: bool = False
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    reaches: str | None = None


ROWS = {
    "demo": Row(reads=("{input}", "--wan {input}.csv"), writes=("--record {out}",)),
    "plan size": Row(
        "{membership}",
        quick=True,
        reads=("{input}",),
        writes=("{membership} --out {out}", "{membership} --out {out}.svg"),
    ),
    "plan places": Row("{membership} {matrix}", reads=("{membership} {input}.csv",)),
    "plan check": Row("{script} {membership}", reads=("{input} {membership}",)),
    "plan improve": Row("{nowhere}", reaches="{nowhere}"),
    "audit": Row("{log}", quick=True, reads=("{input}",)),
    "analyze": Row("{log}"),
    "bench": Row("--against pubsub"),
    "bench all": Row(),
    "bench arrangements": Row("--worlds 1", quick=True),
    "bench crowds": Row(),
    "bench updates": Row(),
    "bench knee": Row(),
    "bench embedding": Row(),
    "bench gateway": Row(),
    "bench borders": Row(),
    "bench joins": Row(),
    "bench memory": Row(),
    "bench paths": Row(),
    "bench plan": Row(),
    "bench recording": Row(),
    "bench regions": Row(),
    "capacity": Row(reaches="{nowhere}"),
    "lab simulate faults": Row("--seeds 1 --jobs 1", quick=True),
    "lab simulate servers": Row("--worlds 1 --jobs 1", quick=True),
    "lab simulate sessions": Row("--worlds 1 --jobs 1", quick=True),
    "lab explore": Row("planned --every 100000", quick=True, writes=("--counterexamples {out}",)),
    "lab simulate paper": Row(),
    "lab simulate placement": Row("{matrix}", reads=("{input}.csv",)),
    "lab simulate scale": Row(),
    "lab simulate protocols": Row("--seeds 1 --protocol fifo --claim validity --jobs 1", quick=True),
    "lab simulate trees": Row("{edges} --source a --destinations c", quick=True, reads=("{input}_edges.csv",)),
    "lab simulate wan": Row("{matrix}", reads=("{input}.csv", "{matrix} {input}")),
    "lab compare": Row("--protocol fifo", reads=("--topology {input}.csv",)),
    "lab classify": Row("{execution}", quick=True, reads=("{input}",), writes=("{execution} --picture {out}",)),
    "lab step": Row("fifo {script}", quick=True, reads=("fifo {input}",), writes=("fifo {script} --picture {out}",)),
    "loadtest": Row(reaches="--network {nowhere} --out {new}"),
    "chaos": Row(writes=("--keep {out}",)),
    "up": Row(reads=("--overlaps {input}",)),
    "node": Row(
        "--name n1 --redis {nowhere} --control {nowhere}",
        reaches="--name n1 --redis {nowhere} --control {nowhere} --wait-s 0",
    ),
    "node retire": Row("n1 --control {nowhere}", reaches="n1 --control {nowhere}"),
    "manager": Row("--control {nowhere}", reaches="--control {nowhere} --wait-s 0"),
    "gateway": Row("{nowhere}", reaches="{nowhere} --port 0"),
    "gateway-conformance": Row("--list", quick=True),
    "token keygen": Row("--out {key}", quick=True, writes=("--out {out}",)),
    "token mint": Row("--keys {key} --subject ann", reads=("--keys {input} --subject ann",)),
    "token revoke": Row("{nowhere} --subject ann", reaches="{nowhere} --subject ann"),
    "token disconnect": Row("{nowhere} --subject ann", reaches="{nowhere} --subject ann"),
    "token pardon": Row("{nowhere} --subject ann", reaches="{nowhere} --subject ann"),
    "users create": Row("{nowhere} --file {new}", writes=("{nowhere} --file {out}",), reaches="{nowhere} --file {new}"),
    "users load": Row("{nowhere}", reaches="{nowhere}"),
    "users rotate": Row("{nowhere} --file {new}", reads=("{nowhere} --file {input}",)),
    "users revoke": Row("{nowhere} --role relay", reaches="{nowhere} --role relay"),
    "users show": Row("{nowhere}", reaches="{nowhere}"),
    "publish": Row("{nowhere} forest 1", reaches="{nowhere} forest 1"),
    "tail": Row("{nowhere} forest", reaches="{nowhere} forest"),
    "keys": Row("{nowhere} forest", reaches="{nowhere} forest"),
    "status": Row("{nowhere}", reaches="{nowhere}"),
    "doctor": Row("{nowhere}", reaches="{nowhere}"),
    "record": Row("{nowhere} --out {new}", reaches="{nowhere} --out {new}"),
    "convert": Row(
        "{log} {new} --to session", reads=("{input} {new} --to session",), writes=("{log} {out} --to session",)
    ),
    "compact": Row("{log} {new}", reads=("{input} {new}",)),
}

EMPTY_IS_FINE = {"up": "nothing is expected, then", "token mint": "not read as lines", "demo": "named by its parts"}


def leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    """All commands that do something, by the words that call them."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from leaves(found, (*words, name))
        if not command.invoke_without_command:
            return
    yield " ".join(words), command


COMMANDS = dict(leaves(cli))


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    """What the names in rows stand for."""
    texts = {
        "membership": ("world.csv", MEMBERSHIP),
        "log": ("log.jsonl", LOG),
        "execution": ("execution.jsonl", SEND + RECEIVE),
        "script": ("script.txt", SCRIPT),
        "matrix": ("matrix.csv", MATRIX),
        "edges": ("net_edges.csv", EDGES),
    }
    for file, text in texts.values():
        (tmp_path / file).write_text(text)
    named = {name: str(tmp_path / file) for name, (file, _) in texts.items()}
    return named | {"nowhere": NOWHERE, "new": str(tmp_path / "new"), "key": str(tmp_path / "key.json")}


@pytest.fixture
def call(places: dict[str, str], capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Calls a command; returns its status, its output and its complaint."""

    def calling(name: str, arguments: str, **more: str) -> tuple[int, str, str]:
        words = [word.format(**places, **more) for word in arguments.split()]
        status = status_of(cli, [*name.split(), *words])
        out, err = capfd.readouterr()
        assert "Traceback" not in err or status == BUG
        assert "Exception ignored" not in err
        return status, out, err

    return calling


def one_line(complaint: str) -> bool:
    return re.fullmatch(r"gamecast: [^\n]+\n", complaint) is not None


def test_every_command_has_a_row() -> None:
    assert sorted(COMMANDS) == sorted(ROWS)


def test_the_table_in_the_documentation_has_every_status() -> None:
    table = (ROOT / "docs" / "exit-statuses.md").read_text()
    known = [DONE, BROKEN, WRONG_USE, INFRASTRUCTURE, CANNOT_TELL, BUG, INTERRUPTED]
    assert (
        [int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
        == known
        == [0, 1, 2, 3, 4, 70, 130]
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_0_and_tells_the_statuses_and_a_wrong_option_is_2(name: str, call: Any) -> None:
    status, said, complained = call(name, "--help")
    assert (status, complained) == (DONE, "")
    assert "Exit status" in said
    status, said, complained = call(name, f"{ROWS[name].call} --no-such-option")
    assert (status, said) == (WRONG_USE, "")
    assert one_line(complained)
    assert "--no-such-option" in complained


ERRORS: dict[str, tuple[BaseException, int, str]] = {
    "interrupt": (KeyboardInterrupt(), INTERRUPTED, ""),
    "abort": (click.Abort(), INTERRUPTED, ""),
    "use": (UsageError("wrong\nso"), WRONG_USE, "wrong so"),
    "click": (click.FileError("/file", "is not there"), WRONG_USE, "is not there"),
    "other side": (Unreachable("away"), INFRASTRUCTURE, "away"),
    "ours": (GamecastError("broken off"), INFRASTRUCTURE, "broken off"),
    "two at once": (ExceptionGroup("two", [Unreachable("away"), UsageError("wrong")]), WRONG_USE, "wrong"),
    "pipe": (BrokenPipeError(errno.EPIPE, "Broken pipe"), INFRASTRUCTURE, "was closed"),
    "full disk": (OSError(errno.ENOSPC, "No space left on device"), INFRASTRUCTURE, "No space left"),
    "full disk of a file": (
        OSError(errno.ENOSPC, "No space left on device", "/f"),
        INFRASTRUCTURE,
        "/f: No space left",
    ),
    "not ours to write": (PermissionError(errno.EACCES, "Permission denied", "/f"), WRONG_USE, "/f: Permission denied"),
    "directory": (IsADirectoryError(errno.EISDIR, "Is a directory", "/f"), WRONG_USE, "/f: Is a directory"),
    "refused": (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), INFRASTRUCTURE, "refused"),
    "time": (TimeoutError(), INFRASTRUCTURE, "too long"),
    "process": (subprocess.CalledProcessError(7, "ps"), INFRASTRUCTURE, "status 7"),
    "end of file": (EOFError(), INFRASTRUCTURE, "ended without an answer"),
    "memory": (MemoryError(), INFRASTRUCTURE, "memory"),
    "encoding": (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), WRONG_USE, "encoding"),
    "extra": (ModuleNotFoundError("No module", name="pyarrow.parquet"), WRONG_USE, "pip install 'gamecast[recording]'"),
    "bug": (KeyError("spell"), BUG, "KeyError: 'spell'"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_whatever_is_raised_has_one_status_and_one_line(name: str, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for what, (error, expected, told) in ERRORS.items():

        def fail(error: BaseException = error, **_: Any) -> None:
            raise error

        monkeypatch.setattr(COMMANDS[name], "callback", fail)
        status, said, complained = call(name, ROWS[name].call)
        assert (status, said) == (expected, ""), what
        assert told in complained, what
        if expected == BUG:
            assert complained.startswith("Traceback")
            assert one_line(complained.splitlines(keepends=True)[-1])
        else:
            assert one_line(complained) == bool(told), what


@contextmanager
def taking_nothing(where: str) -> Iterator[IO[str]]:
    """A file that is full, or a pipe that nobody reads."""
    if where == "full":
        output = Path("/dev/full").open("w")  # noqa: SIM115 - it cannot be closed as others can
    else:
        ours, theirs = os.pipe()
        os.close(ours)
        output = os.fdopen(theirs, "w")
    try:
        yield output
    finally:
        with suppress(OSError):
            output.close()


@pytest.mark.parametrize("where", ["full", "closed"])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_output_that_takes_nothing_is_told_in_a_line(
    name: str, where: str, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not ROWS[name].quick:
        monkeypatch.setattr(COMMANDS[name], "callback", lambda **_: click.echo("said " * 100_000))
    with taking_nothing(where) as output, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", output)
        status, _, complained = call(name, ROWS[name].call)
        output.flush()  # nothing is left that could not be written
    assert status == INFRASTRUCTURE, complained
    assert one_line(complained)
    assert ("No space left" if where == "full" else "was closed") in complained


def test_a_name_that_the_output_has_no_letter_for_comes_as_an_escape(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log.jsonl").write_text(LOG.replace("s1", "jörg→").replace("forest", "\u2603"), encoding="utf-8")
    for command in ("audit {log}", "audit {log} --pairs", "audit {log} --no-such-jörg"):
        output, complaint = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
        monkeypatch.setattr(sys, "stdout", output)
        monkeypatch.setattr(sys, "stderr", complaint)
        status, _, _ = call("", command)
        assert status == (WRONG_USE if "no-such" in command else DONE)
        if status == WRONG_USE:
            complaint.flush()
            assert rb"j\xf6rg" in complaint.buffer.getvalue()


READING = [(name, arguments) for name, row in ROWS.items() for arguments in row.reads]
CONTENTS = {
    "missing": None,
    "empty": b"",
    "binary": b"\x00\xff\xfe\x80\n\x00",
    "latin-1": "subscriber,region\njörg,forest\n".encode("latin-1"),
    "utf-16": MEMBERSHIP.encode("utf-16"),
}


@pytest.mark.parametrize(("name", "arguments"), READING, ids=[f"{name} {arguments}" for name, arguments in READING])
def test_an_input_that_cannot_be_used_is_wrong_use_and_named(
    name: str, arguments: str, call: Any, tmp_path: Path
) -> None:
    suffix = arguments.partition("{input}")[2].split(" ")[0]
    parts = (
        ("_players.csv", "_positions.csv", "_events.csv") if name in ("demo", "simulate wan") and not suffix else ("",)
    )
    for content, text in CONTENTS.items():
        if content == "empty" and name in EMPTY_IS_FINE and not suffix:
            continue
        for part in parts:
            if text is not None:
                (tmp_path / f"given{suffix}{part}").write_bytes(text)
        status, said, complained = call(name, arguments, input=str(tmp_path / "given"))
        assert (status, said) == (WRONG_USE, ""), content
        assert one_line(complained), content
        assert "given" in complained or "keys" in complained, content


WRITING = [(name, arguments) for name, row in ROWS.items() for arguments in row.writes]


@pytest.mark.parametrize(("name", "arguments"), WRITING, ids=[f"{name} {arguments}" for name, arguments in WRITING])
def test_an_output_that_cannot_be_written_is_wrong_use_and_named(
    name: str, arguments: str, call: Any, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a file, and no directory")
    status, said, complained = call(name, arguments, out=str(tmp_path / "file" / "out"))
    assert (status, said) == (WRONG_USE, "")
    assert one_line(complained)
    assert str(tmp_path / "file") in complained


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("plan size", "{membership} --out {out}"), ("lab step", "fifo {script} --picture {out}")],
)
def test_a_full_disk_is_no_wrong_use(name: str, arguments: str, call: Any) -> None:
    status, said, complained = call(name, arguments, out="/dev/full")
    assert (status, said) == (INFRASTRUCTURE, "")
    assert one_line(complained)
    assert "/dev/full: cannot be written: No space left on device" in complained


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.reaches])
def test_a_network_that_is_not_there_is_3(name: str, call: Any) -> None:
    status, said, complained = call(name, ROWS[name].reaches)
    assert (status, said) == (INFRASTRUCTURE, "")
    assert one_line(complained)
    assert f"nothing answers at {NOWHERE}" in complained


def test_what_was_judged_is_0_or_1(call: Any, tmp_path: Path) -> None:
    assert call("audit", "{log}")[0] == DONE
    (tmp_path / "log.jsonl").write_text(LOG + LOG.replace('"index": 0', '"index": 1'))
    assert call("audit", "{log}")[0] == BROKEN
    assert call("lab classify", "{execution} --expect rsc")[0] == DONE
    assert call("lab classify", "{execution} --expect total")[0] in (DONE, BROKEN)


# What follows is about processes: how they begin, are interrupted, and end.

DOORS = {
    "gamecast": [str(BIN / "gamecast")],
    "python -m gamecast": [sys.executable, "-m", "gamecast"],
    "python -m loadtest": [sys.executable, "-m", "loadtest"],
}
Ended = subprocess.CompletedProcess[str]
INTERRUPT = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n"


def process(door: str, *arguments: str, modules: Path | None = None, stdout: Any = subprocess.PIPE) -> Ended:
    """Run a command in a process of its own; ``modules``: come before all that is installed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, filter(None, (modules, ROOT))))}
    command = [*DOORS[door], *arguments]
    return subprocess.run(command, env=environment, text=True, stdout=stdout, stderr=subprocess.PIPE, check=False)


@pytest.mark.parametrize("door", DOORS)
def test_ctrl_c_while_modules_are_imported_ends_with_130_and_without_a_word(door: str, tmp_path: Path) -> None:
    for module in ("click", "orjson"):  # of which each command imports one first
        (tmp_path / f"{module}.py").write_text(INTERRUPT)
    ended = process(door, "--help", modules=tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", "")


@pytest.mark.parametrize("where", ["matplotlib", "sitecustomize"])
def test_ctrl_c_at_work_and_at_the_very_end_does_the_same(where: str, places: dict[str, str], tmp_path: Path) -> None:
    at_work = f"try:\n    {INTERRUPT.replace(chr(10), chr(10) + '    ')}pass\nexcept KeyboardInterrupt:\n    raise\n"
    at_the_end = f"import atexit\natexit.register(lambda: exec({INTERRUPT!r}))\n"
    (tmp_path / f"{where}.py").write_text(at_work if where == "matplotlib" else at_the_end)
    picture = ["--out", str(tmp_path / "plan.svg")] if where == "matplotlib" else []
    ended = process("gamecast", "plan", "size", places["membership"], *picture, modules=tmp_path)
    assert (ended.returncode, ended.stderr) == (INTERRUPTED, "")


@pytest.fixture
def spread(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], set[int]]]:
    """A command that works in two more processes, in a group of its own; and these."""
    command = [*DOORS["gamecast"], "lab", "simulate", "faults", "--seeds", "3000", "--jobs", "2"]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, stderr=subprocess.PIPE) as running:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        deadline = Deadline(60)
        while len(children.read_text().split()) < 2 and not deadline.passed:
            time.sleep(0.05)
        yield running, set(map(int, children.read_text().split()))


def test_ctrl_c_is_for_all_processes_of_a_command_and_only_one_answers(
    spread: tuple[subprocess.Popen[bytes], set[int]],
) -> None:
    running, _ = spread
    os.killpg(running.pid, signal.SIGINT)
    _, complained = running.communicate(timeout=scaled(30))
    assert (running.returncode, complained) == (INTERRUPTED, b"")


def test_the_processes_of_a_command_that_is_killed_end_with_it(
    spread: tuple[subprocess.Popen[bytes], set[int]],
) -> None:
    running, children = spread
    running.kill()
    deadline = Deadline(30)
    while left := {child for child in children if Path(f"/proc/{child}").exists()}:
        assert not deadline.passed, left
        time.sleep(0.05)


@pytest.mark.parametrize("where", ["full", "closed"])
def test_the_interpreter_has_nothing_to_add_when_it_ends(where: str, places: dict[str, str]) -> None:
    with taking_nothing(where) as output:
        ended = process("gamecast", "plan", "size", places["membership"], stdout=output)
    assert ended.returncode == INFRASTRUCTURE
    assert one_line(ended.stderr)


def test_an_output_that_is_not_there_is_told_like_one_that_takes_nothing() -> None:
    command = f"exec {BIN / 'gamecast'} --version >&-"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (INFRASTRUCTURE, "gamecast: cannot write the output: it was closed\n")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- 2>&-", "<&- >&- 2>&-"])
def test_no_file_gets_the_number_of_a_standard_stream(closed: str) -> None:
    program = (
        "import socket, sys\nfrom launcher.ending import ended\n"
        "sys.exit(ended(lambda: 5 if socket.socket().fileno() > 2 else 6, name='it'))"
    )
    command = f'exec "$0" -c "$1" {closed}'
    assert subprocess.run(["sh", "-c", command, sys.executable, program], check=False, timeout=60).returncode == 5


def test_an_error_that_cannot_be_told_has_its_status_all_the_same() -> None:
    command = f"exec {BIN / 'gamecast'} status {NOWHERE} 2>/dev/full"
    assert subprocess.run(["sh", "-c", command], check=False, timeout=60).returncode == INFRASTRUCTURE


def test_the_load_test_has_the_same_statuses(tmp_path: Path) -> None:
    away = process("python -m loadtest", "--network", NOWHERE, "--out", str(tmp_path))
    assert away.returncode == INFRASTRUCTURE
    assert re.fullmatch(r"loadtest: nothing answers at [^\n]+\n", away.stderr)
