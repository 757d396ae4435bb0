"""Every option can be set in the environment, by the name that its user types."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from cli.main import cli


def options(command: click.Command, context: click.Context) -> Iterator[tuple[click.Context, click.Parameter, str]]:
    for each in command.params:
        name = next((option[2:] for option in each.opts if option.startswith("--")), None)
        if name not in (None, "help", "version"):
            assert name is not None
            yield context, each, name
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, click.Context(below, context, name))


def test_every_option_has_a_variable_of_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for context, each, name in options(cli, click.Context(cli, info_name="gamecast", auto_envvar_prefix="GAMECAST")):
        variable = f"{context.command_path} {name}".replace(" ", "_").replace("-", "_").upper()
        monkeypatch.setenv(variable, "said")
        assert each.resolve_envvar_value(context) == "said", variable
        monkeypatch.delenv(variable)
        found += 1
    assert found > 200
