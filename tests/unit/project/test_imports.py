"""What is loaded, by whom: a game server embeds the library, and pays for every module that it loads."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import gamecast
from cli.main import SECTIONS, cli
from laboratory.commands.lab import SECTIONS as LAB
from laboratory.commands.lab import lab

ROOT = Path(__file__).parents[3]
FOUNDATIONS = "import asyncio, orjson, redis.asyncio"
HEAVY = {"aiohttp", "click", "matplotlib", "networkx", "numpy", "pandas", "pyarrow", "pyspark", "rich", "scipy"}
FOLDERS = {
    "adapters",
    "analytics",
    "classic",
    "cli",
    "gamecast",
    "laboratory",
    "launcher",
    "loadtest",
    "placement",
    "sequencing",
}

BROUGHT = {"gamecast", "adapters", "sequencing"}
"""What the library adds to its foundations: nothing that is not its own."""

ROOMS = {
    *(
        "adapters.background",
        "adapters.backoff",
        "adapters.framesizes",
        "adapters.leadership",
        "adapters.manager",
        "adapters.network",
        "adapters.outage",
    ),
    *("adapters.places", "adapters.redis"),
    *(
        "adapters.urls",
        "gamecast.arguments",
        "gamecast.client",
        "gamecast.errors",
        "gamecast.event",
        "gamecast.holding",
        "gamecast.positions",
        "gamecast.version",
    ),
    *("sequencing.causal_wait", "sequencing.cut", "sequencing.delivery", "sequencing.errors"),
    *("sequencing.extras", "sequencing.frames", "sequencing.grants", "sequencing.identity", "sequencing.joins"),
    *("sequencing.depth", "sequencing.keyed", "sequencing.keyspace", "sequencing.markers"),
    *("sequencing.had", "sequencing.joint", "sequencing.together"),
    *("sequencing.names", "sequencing.node", "sequencing.outbox", "sequencing.plan", "sequencing.planchange"),
    "sequencing.publisher",
    *(
        "sequencing.record",
        "sequencing.replay",
        "sequencing.resolved",
        "sequencing.session",
        "sequencing.states",
        "sequencing.steps",
        "sequencing.errands",
        "sequencing.doing",
        "sequencing.everywhere",
        "sequencing.followed",
        "sequencing.landing",
        "sequencing.pending",
        "sequencing.lanes",
        "sequencing.listing",
        "sequencing.ordering",
        "sequencing.owndeliveries",
        "sequencing.ready",
        "sequencing.regionlife",
        "sequencing.settled",
        "sequencing.shadows",
        "sequencing.subscriber",
    ),
}
"""Its own modules that it loads, and the folders of them."""


def loaded_by(program: str, *arguments: str) -> set[str]:
    """Return the modules that a program of Python has loaded at its end."""
    end = "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"
    done = subprocess.run(
        [sys.executable, "-c", end + program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def top_level(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


@pytest.fixture(scope="module")
def added() -> set[str]:
    """What looking up `gamecast.connect` loads beyond its foundations."""
    return loaded_by("import gamecast; gamecast.connect") - loaded_by(FOUNDATIONS)


def test_a_game_server_loads_the_foundations_and_the_library_itself(added: set[str]) -> None:
    assert top_level(added) == BROUGHT


def test_a_game_server_loads_only_what_a_connection_needs(added: set[str]) -> None:
    rooms = {".".join(module.split(".")[:2]) for module in added if "." in module}
    assert rooms <= ROOMS, "a module more: does every game server need it?"


def test_a_game_server_loads_nothing_heavy(added: set[str]) -> None:
    assert not top_level(added) & HEAVY


def test_importing_gamecast_loads_a_name_when_it_is_looked_up() -> None:
    loaded = loaded_by("import gamecast") - loaded_by("pass")
    assert {module for module in loaded if module.partition(".")[0] in FOLDERS} == {"gamecast", "gamecast.version"}
    assert not top_level(loaded) & {"asyncio", "redis", "orjson"}


def test_everything_that_connecting_takes_is_loaded_when_connect_is_looked_up(added: set[str]) -> None:
    made = loaded_by("import gamecast; gamecast.connect('redis://127.0.0.1:1', name='one')")
    assert {module for module in made - added if module.partition(".")[0] in FOLDERS} == set()


def test_a_name_that_few_need_is_loaded_when_it_is_asked_for() -> None:
    asked = loaded_by("import gamecast.classic; gamecast.share; gamecast.classic.ProtocolClient; gamecast.Recording")
    assert {"gamecast.sharing", "laboratory.protocols.client", "gamecast.recording.options"} <= asked
    assert not top_level(asked) & HEAVY


def test_every_public_name_is_there_and_listed() -> None:
    assert all(getattr(gamecast, name) is not None for name in gamecast.__all__)
    assert set(gamecast.__all__) <= set(dir(gamecast))
    with pytest.raises(AttributeError, match="nothing"):
        gamecast.nothing  # noqa: B018


COMMAND = """
import sys
sys.argv[0] = sys.executable.rpartition("/")[0] + "/gamecast"
from gamecast.__main__ import main
main()
"""


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_the_command_loads_click_and_nothing_else_to_tell_about_itself(option: str) -> None:
    loaded = loaded_by(COMMAND, option)
    assert top_level(loaded) & HEAVY == {"click"}
    assert not top_level(loaded) & {"asyncio", "redis", "orjson"}
    assert {module for module in loaded if module.startswith("cli.")} <= {
        *("cli.commands", "cli.main", "cli.running"),
    }


@pytest.mark.parametrize(
    ("group", "name", "line"),
    [
        (group, name, line)
        for group, sections in ((cli, SECTIONS), (lab, LAB))
        for lines in sections.values()
        for name, line in lines.items()
    ],
)
def test_the_line_of_a_command_is_the_first_sentence_of_its_help(group: click.Group, name: str, line: str) -> None:
    command = group.commands.get(name) or group.get_command(None, name)  # type: ignore[arg-type] # it needs none
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(limit=1_000) == line


@pytest.mark.parametrize("former", ["simulate", "compare", "classify", "step"])
def test_a_former_spelling_says_how_the_command_is_called_now(former: str) -> None:
    result = CliRunner().invoke(cli, [former, "--seeds", "1"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"is now `gamecast lab {former}`" in result.stderr


def test_a_wrong_command_is_refused_without_loading_any() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gamecast", "demoo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "'demoo'. Did you mean 'demo'?" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["staus"], "'staus'. Did you mean 'status'?"),
        (["lab", "simulat"], "'simulat'. Did you mean 'simulate'?"),
        (["xyzzy"], "No such command 'xyzzy'."),
    ],
)
def test_a_misspelt_command_is_refused_with_the_name_that_is_near(words: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert ("Did you mean" in result.stderr) is ("Did you mean" in said)
