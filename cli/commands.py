"""Command groups that import a subcommand when it is called, not to list it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import click

from launcher.interrupts import NotRaised

INDENTS = 6
"""Columns that click leaves free beside a command's name and its help."""


def command_of(name: str) -> click.Command:
    """Import the module of this name in this package, with underscores for hyphens, and return its command."""
    name = name.replace("-", "_")
    command = getattr(import_module(f"{__package__}.{name}"), name)
    assert isinstance(command, click.Command), f"{name} is not a command"
    return command


class Commands(click.Group):
    """A group that imports only the subcommand in use: a daemon does not load the demo, and --help loads nothing."""

    def __init__(
        self,
        *,
        sections: Mapping[str, Mapping[str, str]],
        load: Callable[[str], click.Command],
        moved: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        """``sections``: heading → name → the first sentence of its help, in the order in which a newcomer meets them.

        ``load``: imports the command of a name. ``moved``: former name → the command's current name.
        """
        super().__init__(**attributes)
        self._sections = sections
        self._lines = {name: line for lines in sections.values() for name, line in lines.items()}
        self._load = load
        self._moved = moved or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return list(self._lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None if none has this name."""
        with NotRaised():
            return self._load(cmd_name) if cmd_name in self._lines else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and their lines, section by section, cut to the width of the terminal."""
        widest = max(map(len, self._lines))
        room = formatter.width - INDENTS - widest
        for heading, lines in self._sections.items():
            rows = [
                (f"{name:<{widest}}", click.Command(name, help=line).get_short_help_str(room))
                for name, line in lines.items()
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; for a former name, fail with the current one."""
        if args and (now := self._moved.get(args[0])) is not None:
            ctx.fail(f"`{ctx.command_path} {args[0]}` is now `{now}`.")
        return super().resolve_command(ctx, args)
