"""How a command is run: `launcher.ending` tells what its exit statuses mean, and this what click adds to that."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click
from click.exceptions import Exit, NoArgsIsHelpError
from click.shell_completion import shell_complete

from launcher.ending import INTERRUPTED, WRONG_USE, Ending, ended, ending_of
from launcher.interrupts import Raised

NAME = "gamecast"
_COMPLETE = "_GAMECAST_COMPLETE"


def run(command: click.Command, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command, by the arguments of this process where None, and end the process with its status."""
    sys.exit(status_of(command, arguments))


def status_of(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; what went wrong is one line on standard error."""

    def work() -> int:
        if (instruction := os.environ.get(_COMPLETE)) is not None and arguments is None:
            return shell_complete(command, {}, NAME, _COMPLETE, instruction)
        # Not by `command.main`, which makes 1 of an interrupt, of the end of a file and of a pipe that is closed.
        try:
            with (
                Raised(),
                command.make_context(NAME, list(sys.argv[1:] if arguments is None else arguments)) as context,
            ):
                command.invoke(context)
        except Exit as end:
            return end.exit_code
        return 0

    return ended(work, name=NAME, ending=_ending)


def _ending(error: BaseException) -> Ending:
    match error:
        case NoArgsIsHelpError():
            click.echo(error.format_message(), err=True)
            return Ending(WRONG_USE)
        case click.UsageError(ctx=click.Context(command_path=path)):
            return Ending(WRONG_USE, f"{error.format_message()} (see `{path} --help`)")
        case click.ClickException():
            return Ending(WRONG_USE, error.format_message())
        case click.Abort():
            return Ending(INTERRUPTED)
    return ending_of(error)
