"""``gamecast``: the command and what its exit statuses mean.

0 fine; 1 the check that was asked for failed; 2 wrong use; 3 the other side is not there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from gamecast.errors import GamecastError, UsageError

WRONG_USE, NOT_THERE = 2, 3


def _demo() -> click.Command:
    from gamecast.cli.demo import demo

    return demo


def _plan() -> click.Command:
    from gamecast.cli.plan import plan

    return plan


def _audit() -> click.Command:
    from gamecast.cli.audit import audit

    return audit


def _analyze() -> click.Command:
    from gamecast.cli.analyze import analyze

    return analyze


def _bench() -> click.Command:
    from gamecast.cli.bench import bench

    return bench


def _capacity() -> click.Command:
    from gamecast.cli.capacity import capacity

    return capacity


def _simulate() -> click.Command:
    from gamecast.cli.simulate import simulate

    return simulate


def _compare() -> click.Command:
    from gamecast.cli.compare import compare

    return compare


def _classify() -> click.Command:
    from gamecast.cli.classify import classify_command

    return classify_command


def _step() -> click.Command:
    from gamecast.cli.step import step

    return step


def _chaos() -> click.Command:
    from gamecast.cli.chaos import chaos

    return chaos


def _node() -> click.Command:
    from gamecast.cli.node import node

    return node


def _manager() -> click.Command:
    from gamecast.cli.manager import manager

    return manager


def _up() -> click.Command:
    from gamecast.cli.up import up

    return up


def _gateway() -> click.Command:
    from gamecast.cli.gateway import gateway

    return gateway


def _token() -> click.Command:
    from gamecast.cli.token import token

    return token


def _publish() -> click.Command:
    from gamecast.cli.publish import publish

    return publish


def _tail() -> click.Command:
    from gamecast.cli.tail import tail

    return tail


def _status() -> click.Command:
    from gamecast.cli.status import status

    return status


def _doctor() -> click.Command:
    from gamecast.cli.doctor import doctor

    return doctor


def _record() -> click.Command:
    from gamecast.cli.record import record

    return record


def _convert() -> click.Command:
    from gamecast.cli.convert import convert

    return convert


_COMMANDS: dict[str, Callable[[], click.Command]] = {
    "demo": _demo,
    "plan": _plan,
    "audit": _audit,
    "analyze": _analyze,
    "bench": _bench,
    "capacity": _capacity,
    "simulate": _simulate,
    "compare": _compare,
    "classify": _classify,
    "step": _step,
    "chaos": _chaos,
    "up": _up,
    "node": _node,
    "manager": _manager,
    "gateway": _gateway,
    "token": _token,
    "publish": _publish,
    "tail": _tail,
    "status": _status,
    "doctor": _doctor,
    "record": _record,
    "convert": _convert,
}


class Commands(click.Group):
    """Subcommands that are imported when they are called: a daemon should not load what only the demo needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a newcomer meets them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None if there is none of this name."""
        return _COMMANDS[cmd_name]() if cmd_name in _COMMANDS else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GAMECAST"})
@click.version_option(package_name="gamecast", message="gamecast %(version)s")
def cli() -> None:
    """Ordered publish-subscribe for game worlds.

    Start with `gamecast demo`: it replays a match through a sequencing network of real Redis servers and checks the
    order that every game server saw.

    Every option can also be set in the environment: GAMECAST_DEMO_NODES=5 is `gamecast demo --nodes 5`.
    """


def main() -> None:
    """Run the command; errors become one line on stderr and an exit status."""
    try:
        cli.main(standalone_mode=True)
    except GamecastError as error:
        print(f"gamecast: {error}", file=sys.stderr)
        sys.exit(WRONG_USE if isinstance(error, UsageError) else NOT_THERE)
