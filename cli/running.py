"""How a command is run, and what its exit statuses mean.

0 fine; 1 the check that was asked for failed; 2 wrong use; 3 the other side is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from gamecast.errors import GamecastError, UsageError

WRONG_USE, NOT_THERE = 2, 3


def run(command: click.Command, arguments: Sequence[str] | None = None) -> None:
    """Run a command, by the arguments of this process where None; errors become one line on stderr and a status."""
    try:
        command.main(args=arguments, standalone_mode=True)
    except GamecastError as error:
        print(f"gamecast: {error}", file=sys.stderr)
        sys.exit(WRONG_USE if isinstance(error, UsageError) else NOT_THERE)
