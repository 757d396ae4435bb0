"""The cost of embedding gamecast: CPU, memory and modules of importing it and of connecting, beside its foundations.

Each program has a process of its own, in which nothing else runs, and finds its modules compiled, as an installation
leaves them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Group

from adapters.embedded.server import EmbeddedServer
from laboratory.bench.campaign import versions
from laboratory.bench.table import table_of
from sequencing.errors import OtherSideError

FOUNDATIONS, IMPORT, CONNECTION, CLICK = "foundations", "import", "connection", "click"

AS_SCRIPT = """
import os, sys
sys.argv = [os.path.join(os.path.dirname(sys.executable), "gamecast"), "{}"]
from gamecast.__main__ import main
main()
"""

PROGRAMS = {
    FOUNDATIONS: "import asyncio, orjson, redis.asyncio",
    IMPORT: "import gamecast; gamecast.connect",
    CONNECTION: """
import asyncio, sys
import gamecast

async def main():
    async with gamecast.connect(sys.argv[1], name="embedded"):
        pass

asyncio.run(main())
""",
    "first event": """
import asyncio, sys
import gamecast

async def main():
    async with gamecast.connect(sys.argv[1], name="embedded") as cast:
        await cast.subscribe("forest")
        await cast.publish("forest", {"type": "spell"})
        async for event in cast:
            break

asyncio.run(main())
""",
    CLICK: "import click",
    "--version": AS_SCRIPT.format("--version"),
    "--help": AS_SCRIPT.format("--help"),
}
"""The measured programs; each is given the URL of a network in which another process leads."""

BASES = {IMPORT: FOUNDATIONS, CONNECTION: IMPORT, "first event": IMPORT, "--version": CLICK, "--help": CLICK}
"""The program that each is compared with."""

CPU_MAX = {IMPORT: 1.6, CONNECTION: 1.3, "--version": 2.0, "--help": 2.0}
MEMORY_MAX = {IMPORT: 1.4, CONNECTION: 1.3}
"""In multiples of that, at most."""

LEAD = """
import asyncio, sys
import gamecast

async def main():
    async with gamecast.connect(sys.argv[1], name="leads") as cast:
        await cast.subscribe("forest")
        print("leads", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""

MEASURE = """
import os, sys
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, used = os.wait4(child, 0)
print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
"""Starts a program from a very small process, because the memory of the parent counts as the program's own."""

COUNT = "import atexit, sys; atexit.register(lambda: print(len(sys.modules), file=sys.stderr))\n"

MB = 1e6
RSS_UNIT = 1 if sys.platform == "darwin" else 1024


def measure_embedding(*, runs: int, begin: Callable[[str], None]) -> dict[str, Any]:
    """Return the document of ``gamecast bench embedding --json``: medians of the runs. ``begin``: called with each.

    Blocks. Raises `EmbeddedServerError`, and `OtherSideError` when a program fails.
    """
    with TemporaryDirectory(prefix="gamecast-bench-") as compiled, EmbeddedServer() as server:
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = compiled
        with _leading(server.url, environment):
            modules = {name: _modules(program, server.url, environment) for name, program in PROGRAMS.items()}
            measured: dict[str, list[tuple[float, float]]] = {name: [] for name in PROGRAMS}
            for run in range(runs):
                for name, program in PROGRAMS.items():  # by turns: what the machine does besides concerns them all
                    begin(f"run {run + 1}: {name}")
                    measured[name].append(_measure(program, server.url, environment))
    figures = {
        name: {
            "cpu_s": median(cpu_s for cpu_s, _ in measured[name]),
            "memory_mb": median(memory_mb for _, memory_mb in measured[name]),
            "modules": modules[name],
        }
        for name in PROGRAMS
    }
    ratios = {
        name: {kind: figures[name][kind] / figures[base][kind] for kind in ("cpu_s", "memory_mb")}
        for name, base in BASES.items()
    }
    return {"figures": figures, "ratios": ratios, "runs": runs, "versions": versions()}


def report(result: Mapping[str, Any]) -> Group:
    """A table of 80 columns, and what the columns mean."""
    table = table_of("", ("CPU\nms", "\nx", "wanted\n<=", "memory\nMB", "\nx", "wanted\n<=", "modules\n"))
    for name, figures in result["figures"].items():
        ratios = result["ratios"].get(name, {})
        cells = (
            f"{figures['cpu_s'] * 1e3:,.0f}",
            f"{ratios['cpu_s']:.2f}" if ratios else "",
            f"{CPU_MAX[name]:.1f}" if name in CPU_MAX else "",
            f"{figures['memory_mb']:,.1f}",
            f"{ratios['memory_mb']:.2f}" if ratios else "",
            f"{MEMORY_MAX[name]:.1f}" if name in MEMORY_MAX else "",
        )
        table.add_row(name, *cells, f"{figures['modules']:,}")
    note = (
        f"foundations: asyncio, orjson and redis.asyncio. Medians of {result['runs']}.\n"
        "connection: opened and closed, where another process leads; first event: also\n"
        "subscribed, published and received.\n"
        "x: of the import in multiples of the foundations, of a connection and a first\n"
        "event in those of the import, of the command in those of importing click."
    )
    return Group(table, note)


@contextmanager
def _leading(url: str, environment: Mapping[str, str]) -> Iterator[None]:
    """Have another process lead the network of a server meanwhile."""
    command = (sys.executable, "-c", LEAD, url)
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_tree()
    ) as leader:
        try:
            assert leader.stdin is not None
            assert leader.stdout is not None
            if not leader.stdout.readline():
                raise OtherSideError("the process that was to lead has ended")
            yield
            leader.stdin.close()
            leader.wait()
        finally:
            leader.kill()


def _measure(program: str, url: str, environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the CPU seconds and the largest memory, in MB, of a program."""
    command = (sys.executable, "-I", "-S", "-c", MEASURE, sys.executable, "-c", program, url)
    status, cpu_s, memory = _run(command, environment).stdout.split()
    if int(status):
        raise OtherSideError(f"a program that was to be measured ended with {status.decode()}: {program.strip()}")
    return float(cpu_s), int(memory) * RSS_UNIT / MB


def _modules(program: str, url: str, environment: Mapping[str, str]) -> int:
    """Return how many modules a program has loaded at its end; compiles them, too."""
    return int(_run((sys.executable, "-c", COUNT + program, url), environment).stderr.splitlines()[-1])


def _run(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(command, env=environment, capture_output=True, check=False, cwd=_tree())
    if done.returncode:
        raise OtherSideError(f"a program that was to be measured failed: {done.stderr.decode(errors='replace')}")
    return done


def _tree() -> Path:
    """Return where this code is found by who starts there: in the source tree, it need not be installed."""
    return Path(__file__).parents[2]
