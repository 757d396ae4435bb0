"""``gamecast``: the command, and its subcommands."""

from __future__ import annotations

import logging
from typing import NoReturn

import click

from cli.commands import Commands, command_of
from cli.running import run
from gamecast.version import __version__
from sequencing.extras import without_laboratory

SECTIONS = {
    "Get started": {
        "demo": "Replay a match through real Redis servers, and check the order.",
        "up": "Run a network on this machine: servers, manager and gateway.",
        "doctor": "Find what is wrong with a network, and say what to do.",
        "status": "Show a network, without joining it or changing anything.",
        "publish": "Publish events to a region, and print their receipts.",
        "tail": "Subscribe to regions, and print their events in order.",
    },
    "Operate": {
        "node": "Register a sequencing node, and carry its frames onward.",
        "manager": "Run a leader candidate: the leader plans the network.",
        "gateway": "Serve a network by WebSocket and HTTP: see docs/gateway.md.",
        "token": "Make keys, and tokens for the gateway's clients.",
        "users": "Make and change the Redis users of a network.",
        "keys": "Show whose the keys of a region are, and delete them.",
    },
    "Record and analyze": {
        "record": "Record a live network into a session.",
        "convert": "Convert between recorded sessions and delivery logs.",
        "compact": "Put the small files of a recorded session together.",
        "analyze": "Analyze recorded sessions: latency, order, load, placement.",
        "audit": "Judge delivery logs: one order, nothing lost or repeated?",
        "plan": "Plan a sequencing network: how many nodes, where, is it sound, and what would be better.",
    },
    "Measure": {"loadtest": "Put load on a network, and check the deliveries of all clients."},
}
"""Heading → name, which is also that of its module (but for hyphens) → the first sentence of its help."""

HELP_COLUMNS_MAX = 120
"""Help is as wide as the terminal, up to this: longer lines are hard to read. Elsewhere it has 80 columns."""

LABORATORY = frozenset({"bench", "capacity", "chaos", "gateway-conformance", "lab"})
"""The commands of gamecast-lab, which are listed where it is installed."""

MOVED = {name: f"gamecast lab {name}" for name in ("simulate", "compare", "classify", "step")}

SERVERS = frozenset({"gateway", "manager"})
"""Servers warn if a control Redis keeps nothing over a restart; for other commands, `doctor` reports it."""


def sections() -> dict[str, dict[str, str]]:
    """Return the sections with the commands that are installed."""
    try:
        from laboratory.commands import SECTIONS as OF_LABORATORY
    except ImportError:  # of what a removed one left, too
        return SECTIONS
    return {heading: OF_LABORATORY.get(heading, {}) | SECTIONS.get(heading, {}) for heading in SECTIONS | OF_LABORATORY}


def load(name: str) -> click.Command:
    """Import a command."""
    if name not in LABORATORY:
        return command_of(name)
    try:
        from laboratory.commands import load as load_of_laboratory
    except ImportError as error:
        raise without_laboratory(f"`gamecast {name}`") from error
    return load_of_laboratory(name)


@click.group(
    cls=Commands,
    sections=sections(),
    load=load,
    moved=MOVED,
    unlisted=LABORATORY,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "GAMECAST",
        "max_content_width": HELP_COLUMNS_MAX,
    },
)
@click.version_option(__version__, message="gamecast %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Ordered publish-subscribe for game worlds.

    Start with `gamecast demo`: it replays a match through a sequencing network of real Redis servers and checks the
    order that every game server saw.

    Every option can also be set in the environment: GAMECAST_DEMO_NODES=5 is `gamecast demo --nodes 5`.

    Exit status of every command: 0 done; 1 a promise was broken, or a requested bound was missed; 2 wrong use, or an
    extra is not installed; 3 a required service was unavailable (unreachable, refused, timed out, or full); 4 it is
    unknown whether the promises were kept; 130 interrupted by Ctrl-C.
    """
    if context.invoked_subcommand not in SERVERS:
        logging.getLogger("gamecast.persistence").setLevel(logging.ERROR)


def main() -> NoReturn:
    """Run the command that this process's arguments name, and exit with its status."""
    run(cli)
