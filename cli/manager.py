"""``gamecast manager``: a leader candidate, beside those that connections run."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from adapters.planning import planner_over  # noqa: F401 - imports scipy now, so that no plan waits for it
from adapters.redis.network import RedisNetwork
from adapters.urls import redacted
from cli.daemons import (
    Stop,
    TellingControl,
    leading_options,
    once_there,
    overlaps_option,
    run_until_stopped,
    wait_option,
)
from cli.logs import LogFormat, daemon_logger, log_as, log_option
from gamecast.client.networks import require_reachable
from placement.planning.reading import read_overlaps
from sequencing.plan import Ordering
from sequencing.record import Pair

logger = daemon_logger("manager")


@click.command()
@click.option("--control", "control_url", required=True, help="URL of the control Redis, to which clients connect.")
@click.option(
    "--ordering",
    type=click.Choice(get_args(Ordering)),
    default="acyclic",
    show_default=True,
    help="The order that plans guarantee, if the network has none yet: see `gamecast plan size`.",
)
@leading_options
@overlaps_option
@wait_option
@log_option
def manager(
    control_url: str,
    *,
    ordering: Ordering,
    retention_events: int,
    resume_s: float,
    overlaps_file: Path | None,
    wait_s: float,
    log_format: LogFormat,
) -> None:
    """Run a leader candidate: the leader plans the network.

    Every client that has the planner installed is a candidate too, so a network needs no manager. Run one if your game
    servers should not plan, or if they start and stop often. One of the candidates leads. If it dies, another takes
    over within seconds.

    Runs until SIGINT or SIGTERM, then releases the lease. Reports on standard error when it begins and ceases to lead.

    Exit status: 0 when SIGTERM stopped it, 130 for SIGINT, 2 for wrong use, 3 if the control Redis was unavailable for
    --wait-s at the start, or stopping timed out.

    \b
    Example:
      gamecast manager --control redis://10.0.0.1
    """
    log_as(log_format)
    overlaps = read_overlaps(overlaps_file) if overlaps_file is not None else frozenset[Pair]()
    require_reachable(control_url)
    network = RedisNetwork(control_url, ordering=ordering, retention_events=retention_events, resume_s=resume_s)
    run_until_stopped(lambda stop: _run(network, overlaps, wait_s, stop))


async def _run(network: RedisNetwork, overlaps: frozenset[Pair], wait_s: float, stop: Stop) -> None:
    async def begin() -> None:
        await network.open()
        await network.declare_overlaps(overlaps)

    try:
        await once_there(begin, wait_s=wait_s, stop=stop)
        if stop.is_set():
            return
        network.stand(TellingControl(network.url))
        logger.info("is a leader candidate at %s", redacted(network.url))
        await stop.wait()
    finally:
        await network.close()
