"""Help uses the width of the terminal, and cuts no summary."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click
import pytest

from cli.main import cli


def groups(command: click.Command, context: click.Context) -> Iterator[tuple[click.Group, click.Context]]:
    """Yield a group and all groups below it."""
    if isinstance(command, click.Group):
        yield command, context
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from groups(below, click.Context(below, context, name, **below.context_settings))


def root() -> click.Context:
    return click.Context(cli, None, "gamecast", **cli.context_settings)


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def as_wide_as(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((columns, 24)))


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 300])
def test_no_summary_of_any_group_is_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    as_wide_as(columns, monkeypatch)
    found = {context.command_path: group.get_help(context) for group, context in groups(cli, root())}
    assert {"gamecast", "gamecast lab", "gamecast users", "gamecast token", "gamecast bench"} <= found.keys()
    for path, said in found.items():
        listed = [line for line in said.splitlines() if line.rstrip().endswith("...") and "[ARGS]..." not in line]
        assert not listed, f"{path} --help cuts {listed}"


@pytest.mark.parametrize(("columns", "widest"), [(60, 58), (80, 78), (100, 98), (120, 118), (300, 118)])
def test_help_is_as_wide_as_the_terminal_within_bounds(
    columns: int, widest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_wide_as(columns, monkeypatch)
    for command, context in groups(cli, root()):
        assert context.make_formatter().width == widest, command.name


def test_help_has_80_columns_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.__stdout__", None)
    assert root().make_formatter().width == 78
