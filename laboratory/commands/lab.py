"""``gamecast lab``: research tools, which no game server needs."""

from __future__ import annotations

import click

from cli.commands import Commands
from laboratory.commands import load

SECTIONS = {
    "Commands": {
        "simulate": "Run the protocol's own state machines in a simulated world.",
        "explore": "Explore every interleaving of small worlds.",
        "compare": "Compare protocols on one topology and one workload.",
        "classify": "Say what kind of execution logs hold: RSC, causal, FIFO.",
        "step": "Replay a scenario script, message by message.",
    }
}


@click.group(cls=Commands, sections=SECTIONS, load=load)
def lab() -> None:
    """Simulate, explore and compare protocols.

    gamecast was designed and is checked with these tools. They need no Redis.
    """
