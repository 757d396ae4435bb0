"""Print the pages of the commands: docs/commands.md, and with a name that of one command and all below it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import click

HEAD = """\
# Commands

The help of every command, a page each. These pages are generated from the texts in `cli/`: `./dev docs` builds them.

What commands end with is in [exit-statuses.md](exit-statuses.md).
"""
WIDTH = 100


def main(*names: str) -> int:
    """Print the page of a command, or that of all."""
    for name in [name for name in os.environ if name.startswith("GAMECAST")]:
        del os.environ[name]
    from cli.main import cli  # it reads the environment

    top = click.Context(cli, None, "gamecast", **settings(cli))
    below = {name: found for name in cli.list_commands(top) if (found := cli.get_command(top, name)) is not None}
    if names:
        [name] = names
        print(f"# gamecast {name}\n")
        for command, context in commands(below[name], name, top):
            print(*([f"## {context.command_path}\n"] if context.parent is not top else []), sep="\n")
            print(f"```text\n{help_of(command, context)}\n```\n")
        return 0
    print(HEAD)
    for heading, lines in cli.sections.items():
        print(f"## {heading}\n\n| command | |\n|---|---|")
        print(*(f"| [gamecast {name}](commands/{name}.md) | {line} |" for name, line in lines.items()), "", sep="\n")
    print(f"## gamecast\n\n```text\n{help_of(cli, top)}\n```")
    return 0


def settings(command: click.Command) -> dict[str, object]:
    """Return the settings of a context as wide as a page."""
    return {**command.context_settings, "max_content_width": WIDTH, "terminal_width": WIDTH}


def commands(command: click.Command, name: str, parent: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all below it, each with its context, in the order of the help."""
    context = click.Context(command, parent, name, **settings(command))
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
    sys.exit(main(*sys.argv[1:]))
