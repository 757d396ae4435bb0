"""Print docs/commands.md: the help of `gamecast` and of each of its subcommands."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

HEAD = """\
# Commands

The help of every command. This page is generated from the texts in `cli/`: `./dev docs` builds it.

What commands end with is in [exit-statuses.md](exit-statuses.md).
"""
WIDTH = 100


def main() -> int:
    """Print the page."""
    for name in [name for name in os.environ if name.startswith("GAMECAST")]:
        del os.environ[name]
    from cli.main import cli  # it reads the environment

    print(HEAD)
    for command, context in commands(cli, "gamecast", None):
        print(f"## {context.command_path}\n\n```text\n{help_of(command, context)}\n```\n")
    return 0


def commands(
    command: click.Command, name: str, parent: click.Context | None
) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all below it, each with its context, in the order of the help."""
    settings = {**command.context_settings, "max_content_width": WIDTH, "terminal_width": WIDTH}
    context = click.Context(command, parent, name, **settings)
    yield command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None and not found.hidden:
                yield from commands(found, below, context)


def help_of(command: click.Command, context: click.Context) -> str:
    """Return a command's help without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in command.get_help(context).strip().splitlines())


if __name__ == "__main__":
    sys.exit(main())
