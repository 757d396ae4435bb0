"""Run a command. `launcher.ending` defines the exit statuses; this module adds click's exceptions."""

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
    """Run a command and end the process with its status. Without arguments, use those of this process."""
    sys.exit(status_of(command, arguments))


def status_of(command: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. An error is one line on standard error."""

    def work() -> int:
        if (instruction := os.environ.get(_COMPLETE)) is not None and arguments is None:
            return shell_complete(command, {}, NAME, _COMPLETE, instruction)
        # `command.main` would return 1 for an interrupt, for an end of file and for a closed pipe.
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
