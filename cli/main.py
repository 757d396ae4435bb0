"""``gamecast``: the command, and its subcommands."""

from __future__ import annotations

from collections.abc import Callable

import click

from cli.running import status_of
from gamecast.interrupts import NotRaised


def _demo() -> click.Command:
    from cli.demo import demo

    return demo


def _plan() -> click.Command:
    from cli.plan import plan

    return plan


def _audit() -> click.Command:
    from cli.audit import audit

    return audit


def _analyze() -> click.Command:
    from cli.analyze import analyze

    return analyze


def _bench() -> click.Command:
    from cli.bench import bench

    return bench


def _capacity() -> click.Command:
    from cli.capacity import capacity

    return capacity


def _simulate() -> click.Command:
    from cli.simulate import simulate

    return simulate


def _compare() -> click.Command:
    from cli.compare import compare

    return compare


def _classify() -> click.Command:
    from cli.classify import classify_command

    return classify_command


def _step() -> click.Command:
    from cli.step import step

    return step


def _chaos() -> click.Command:
    from cli.chaos import chaos

    return chaos


def _node() -> click.Command:
    from cli.node import node

    return node


def _manager() -> click.Command:
    from cli.manager import manager

    return manager


def _up() -> click.Command:
    from cli.up import up

    return up


def _gateway() -> click.Command:
    from cli.gateway import gateway

    return gateway


def _token() -> click.Command:
    from cli.token import token

    return token


def _publish() -> click.Command:
    from cli.publish import publish

    return publish


def _tail() -> click.Command:
    from cli.tail import tail

    return tail


def _status() -> click.Command:
    from cli.status import status

    return status


def _doctor() -> click.Command:
    from cli.doctor import doctor

    return doctor


def _record() -> click.Command:
    from cli.record import record

    return record


def _convert() -> click.Command:
    from cli.convert import convert

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
        with NotRaised():
            return _COMMANDS[cmd_name]() if cmd_name in _COMMANDS else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GAMECAST"})
@click.version_option(package_name="gamecast", message="gamecast %(version)s")
def cli() -> None:
    """Ordered publish-subscribe for game worlds.

    Start with `gamecast demo`: it replays a match through a sequencing network of real Redis servers and checks the
    order that every game server saw.

    Every option can also be set in the environment: GAMECAST_DEMO_NODES=5 is `gamecast demo --nodes 5`.

    Exit status, of every command: 0 done; 1 a promise was broken, or something misses what was asked of it; 2 wrong
    use, or an extra is not installed; 3 what it needs was not there, refused, took too long or had no room; 4 it cannot
    be told whether the promises were kept; 130 interrupted by Ctrl-C.
    """


def main() -> int:
    """Run the command that the arguments of this process ask for; return its exit status."""
    return status_of(cli)
