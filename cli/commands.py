"""Groups whose subcommands are imported when they are called, and not to list them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from gamecast.interrupts import NotRaised

INDENTS = 6
"""What click leaves free of a line beside a command's name and its help."""


class Commands(click.Group):
    """Subcommands of which one is imported: a daemon should not load what only the demo needs, and --help nothing."""

    def __init__(self, *, lines: Mapping[str, str], load: Callable[[str], click.Command], **attributes: Any) -> None:
        """``lines``: name → the first sentence of its help, in the order in which a newcomer meets them.

        ``load``: imports the command of a name.
        """
        super().__init__(**attributes)
        self._lines = lines
        self._load = load

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return list(self._lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None if there is none of this name."""
        with NotRaised():
            return self._load(cmd_name) if cmd_name in self._lines else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and their lines, as far as there is room for them."""
        room = formatter.width - INDENTS - max(map(len, self._lines))
        rows = [(name, click.Command(name, help=line).get_short_help_str(room)) for name, line in self._lines.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)
