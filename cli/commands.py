"""Command groups that import a subcommand when it is called, not to list it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from launcher.interrupts import NotRaised

WHOLE = 10_000
"""A length that no sentence of a help has: click cuts its summaries at a length."""


def command_of(name: str, package: str = __package__) -> click.Command:
    """Import the module of this name in a package, with underscores for hyphens, and return its command."""
    name = name.replace("-", "_")
    command = getattr(import_module(f"{package}.{name}"), name)
    assert isinstance(command, click.Command), f"{name} is not a command"
    return command


def name_variables(command: click.Command, prefix: str) -> None:
    """Have each option read the environment's variable of its own name, also where its parameter has another one."""
    prefix = prefix.replace("-", "_").upper()
    for each in command.params:
        name = next((option[2:] for option in each.opts if option.startswith("--")), None)
        if name is not None and each.envvar is None and each.name is not None:
            by_option, by_parameter = (f"{prefix}_{one.replace('-', '_').upper()}" for one in (name, each.name))
            if by_option != by_parameter:
                each.envvar = [by_option, by_parameter]
    if isinstance(command, click.Group) and not isinstance(command, Commands):
        for name, below in command.commands.items():
            name_variables(below, f"{prefix}_{name}")


class Group(click.Group):
    """A group that lists each command with the whole first sentence of its help, wrapped where click cuts it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and their sentences."""
        commands = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [(name, each.get_short_help_str(WHOLE)) for name, each in commands.items() if each and not each.hidden]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class Commands(click.Group):
    """A group that imports only the subcommand in use: a daemon does not load the demo, and --help loads nothing."""

    def __init__(
        self,
        *,
        sections: Mapping[str, Mapping[str, str]],
        load: Callable[[str], click.Command],
        moved: Mapping[str, str] | None = None,
        unlisted: Collection[str] = (),
        **attributes: Any,
    ) -> None:
        """``sections``: heading → name → the first sentence of its help, in the order in which a newcomer meets them.

        ``load``: imports the command of a name. ``moved``: former name → the command's current name.
        ``unlisted``: names that ``load`` refuses with a reason.
        """
        super().__init__(**attributes)
        self.sections = sections
        self._lines = {name: line for lines in sections.values() for name, line in lines.items()}
        self._load = load
        self._moved = moved or {}
        self._unlisted = frozenset(unlisted)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return list(self._lines)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None if none has this name."""
        if cmd_name not in self._lines and cmd_name not in self._unlisted:
            return None
        with NotRaised():
            command = self._load(cmd_name)
        if (prefix := getattr(ctx, "auto_envvar_prefix", None)) is not None:
            name_variables(command, f"{prefix}_{cmd_name}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the names and their lines, section by section."""
        widest = max(map(len, self._lines))
        for heading, lines in self.sections.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{widest}}", line) for name, line in lines.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name; for a former or misspelt name, fail with the right one."""
        if args and (now := self._moved.get(args[0])) is not None:
            ctx.fail(f"`{ctx.command_path} {args[0]}` is now `{now}`.")
        if (
            args
            and args[0] not in self._lines.keys() | self._unlisted
            and (near := get_close_matches(args[0], self._lines))
        ):
            ctx.fail(f"No such command {args[0]!r}. Did you mean {' or '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)
