"""``gamecast loadtest``: the load test of the folder ``loadtest``."""

from __future__ import annotations

import click


@click.command(
    add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def loadtest(context: click.Context, arguments: tuple[str, ...]) -> None:
    """Put load on a network, and check the deliveries of all clients."""
    from loadtest.command import load_test  # with locust

    context.exit(load_test(arguments, program="gamecast loadtest"))
