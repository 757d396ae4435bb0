"""The console script: also where click, or an extra that a command needs, is not installed."""

from __future__ import annotations

import sys

from sequencing.extras import missing_from

WRONG_USE = 2


def main() -> None:
    """Run the command; what an extra would have brought becomes one line on stderr and a status."""
    try:
        from cli.main import main as run  # brings click

        run()
    except ModuleNotFoundError as error:
        missing = missing_from(error, "this command")
        if missing is None:
            raise
        print(f"gamecast: {missing}", file=sys.stderr)
        sys.exit(WRONG_USE)
