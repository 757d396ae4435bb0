"""``gamecast``: the command and what its exit statuses mean.

0 fine; 1 the check that was asked for failed; 2 wrong use; 3 the other side is not there.
"""

from __future__ import annotations

import sys

import click

from gamecast.cli.audit import audit
from gamecast.cli.bench import bench
from gamecast.cli.demo import demo
from gamecast.cli.node import node
from gamecast.errors import EmbeddedServerError, GamecastError, InvalidInput, UsageError

CHECK_FAILED, WRONG_USE, NOT_THERE = 1, 2, 3


@click.group(context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "GAMECAST"})
@click.version_option(package_name="gamecast", message="gamecast %(version)s")
def cli() -> None:
    """Ordered publish-subscribe for game worlds.

    Start with `gamecast demo`: it replays a match through a sequencing network of real Redis servers and checks the
    order that every game server saw.

    Every option can also be set in the environment: GAMECAST_DEMO_NODES=5 is `gamecast demo --nodes 5`.
    """


for command in (demo, audit, bench, node):
    cli.add_command(command)


def main() -> None:
    """Run the command; errors become one line on stderr and an exit status."""
    try:
        cli.main(standalone_mode=True)
    except GamecastError as error:
        print(f"gamecast: {error}", file=sys.stderr)
        wrong_use = isinstance(error, (UsageError, InvalidInput)) and not isinstance(error, EmbeddedServerError)
        sys.exit(WRONG_USE if wrong_use else NOT_THERE)
