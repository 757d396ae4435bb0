"""``gamecast``: the command, and its subcommands."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import NoReturn

import click

from cli.commands import Commands
from cli.running import run
from gamecast.version import __version__

COMMANDS = {
    "demo": "Replay a match through a sequencing network, and check the order that every game server saw.",
    "plan": "Plan a sequencing network: who must be ordered against whom, where, and what each node will carry.",
    "audit": "Judge delivery logs: did all subscribers see one order, nothing twice, nothing lost?",
    "analyze": "Analyse recorded sessions: who is how far away, did the order hold, who carries what, what to move.",
    "bench": "Measure gamecast beside what you would pick instead, on this machine.",
    "capacity": "Find the highest rate at which delays and hold times stay within bounds.",
    "simulate": "Run the protocol's own state machines in a simulated world.",
    "compare": "Compare protocols on one topology and one workload: latency, packets, bytes, load, what is held.",
    "classify": "Say what kind of execution some logs hold: RSC, causally ordered, FIFO or none of these, and more.",
    "step": "Replay a scenario script under a protocol, message by message, and say what came of it.",
    "chaos": "Run a network of real processes while all kinds of faults befall it, and judge what its servers got.",
    "up": "Run a network on this machine: private redis-servers, relays between them, a manager, and a gateway.",
    "node": "Register a sequencing node, and carry its frames to the next ones.",
    "manager": "Stand for leading the network of a control Redis: who leads makes the plans.",
    "gateway": "Serve a network by WebSocket and HTTP: see docs/gateway.md.",
    "token": "Make keys, and the tokens that clients of the gateway hold.",
    "users": "Make and change the Redis users of a network, on all of its servers.",
    "publish": "Publish events to a region and print their receipts: region, and epoch-sequence.",
    "tail": "Subscribe to regions and print their events as they are delivered, in order, one line each.",
    "status": "Show what the network of a control Redis looks like, without joining it and without changing anything.",
    "doctor": "Examine the network of a control Redis, and say what to do about each finding.",
    "record": "Record a live network into a session: its frames, when each passed each node, its epochs, its members.",
    "convert": "Convert a recorded session to delivery logs, or delivery logs to a session.",
}
"""Name, which is also that of its module and of the command there → the first sentence of its help."""


SERVERS = frozenset({"gateway", "manager"})
"""Those that warn of a control Redis that keeps nothing; what people type by hand leaves that to `doctor`."""


def _load(name: str) -> click.Command:
    command = getattr(import_module(f"{__package__}.{name}"), name)
    assert isinstance(command, click.Command), f"{name} is not a command"
    return command


@click.group(
    cls=Commands,
    lines=COMMANDS,
    load=_load,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GAMECAST"},
)
@click.version_option(__version__, message="gamecast %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Ordered publish-subscribe for game worlds.

    Start with `gamecast demo`: it replays a match through a sequencing network of real Redis servers and checks the
    order that every game server saw.

    Every option can also be set in the environment: GAMECAST_DEMO_NODES=5 is `gamecast demo --nodes 5`.

    Exit status, of every command: 0 done; 1 a promise was broken, or something misses what was asked of it; 2 wrong
    use, or an extra is not installed; 3 what it needs was not there, refused, took too long or had no room; 4 it cannot
    be told whether the promises were kept; 130 interrupted by Ctrl-C.
    """
    if context.invoked_subcommand not in SERVERS:
        logging.getLogger("gamecast.persistence").setLevel(logging.ERROR)


def main() -> NoReturn:
    """Run the command that the arguments of this process ask for, and end the process with its status."""
    run(cli)
