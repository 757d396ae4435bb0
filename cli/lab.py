"""``gamecast lab``: research tools, which no game server needs."""

from __future__ import annotations

import click

from cli.commands import Commands, command_of

SECTIONS = {
    "Commands": {
        "simulate": "Run the protocol's own state machines in a simulated world.",
        "explore": "Explore small worlds exhaustively: the real machines, moved in every possible order.",
        "compare": "Compare protocols on one topology and one workload: latency, packets, bytes, load, hold.",
        "classify": "Say what kind of execution some logs hold: RSC, causally ordered, FIFO, or none of these.",
        "step": "Replay a scenario script under a protocol, message by message, and say what came of it.",
    }
}


@click.group(cls=Commands, sections=SECTIONS, load=command_of)
def lab() -> None:
    """Simulate, explore and compare protocols.

    These are the tools by which gamecast was designed and is checked. They need no Redis.
    """
