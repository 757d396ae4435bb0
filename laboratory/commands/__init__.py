"""The laboratory's commands: `cli.main` lists them where the laboratory is installed."""

from __future__ import annotations

import click

from cli.commands import command_of

SECTIONS = {
    "Measure": {
        "bench": "Measure gamecast beside its alternatives.",
        "capacity": "Find the highest rate at which delays stay within bounds.",
        "gateway-conformance": "Judge a client of the gateway, in any language.",
        "chaos": "Run a real network under injected faults, and judge it.",
    },
    "Research": {"lab": "Simulate, explore and compare protocols."},
}


def load(name: str) -> click.Command:
    """Import one of the commands."""
    return command_of(name, __name__)
