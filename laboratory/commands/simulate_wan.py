"""``gamecast lab simulate wan``: predict the delays of a replay under a latency matrix, without running it."""

from __future__ import annotations

from pathlib import Path

import click
import orjson
from rich.console import Console

from demo.match.hosting import build_workload, server_names
from demo.match.skirmish import generate_skirmish
from demo.match.trace import read_match
from gamecast.client.reading import BLOCK_MS
from laboratory.simulation.distant import Conditions
from laboratory.wan.prediction import RUNS, Prediction, of_paths_alone, predict
from laboratory.wan.report import stretch_row, stretch_table, told_waits
from laboratory.wan.run import DURATION_S, node_names, spread
from laboratory.wan.stretch import Stretch
from placement.planner import make_plan
from placement.topologies.distances import read_distances, stand
from sequencing.membership import Membership


@click.command("wan")
@click.argument("matrix", type=click.Path(path_type=Path, dir_okay=False))
@click.argument("prefix", required=False)
@click.option("--rtt", is_flag=True, help="The matrix has round-trip times: halve them.")
@click.option("--hosts", metavar="A,B,…", help="Hosts of the servers, in turn.  [default: all of the matrix]")
@click.option("--node-hosts", metavar="A,B,…", help="Hosts of the nodes, in turn.  [default: --hosts]")
@click.option("--nodes", type=click.IntRange(1, 64), default=3, show_default=True, help="Sequencing nodes.")
@click.option("--servers", type=click.IntRange(1, 256), default=8, show_default=True, help="Game servers.")
@click.option("--cell-m", type=float, default=250.0, show_default=True, help="Side of a region, in metres.")
@click.option("--radius-m", type=float, default=100.0, show_default=True, help="How far a player sees, in metres.")
@click.option("--start-s", type=float, default=0.0, show_default=True, help="Where in the trace to begin, in seconds.")
@click.option("--duration-s", type=float, default=DURATION_S, show_default=True, help="How much to replay, in seconds.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="1: as it happened; 10: ten times as fast.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the generated skirmish.")
@click.option(
    "--service-ms",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Milliseconds that a node takes for each request, while others queue.",
)
@click.option(
    "--loss",
    type=click.FloatRange(min=0, max=0.5),
    default=0.0,
    show_default=True,
    help="Probability that data in one direction is lost. TCP sends it again after a timeout.",
)
@click.option(
    "--block-ms",
    type=click.FloatRange(min=1),
    default=float(BLOCK_MS),
    show_default=True,
    help="Milliseconds that a subscriber's read waits at a node.",
)
@click.option(
    "--whole-reads",
    is_flag=True,
    help="A read that has waited returns the frames of all streams. Redis 7.0 returns the first stream only.",
)
@click.option("--runs", type=click.IntRange(1), default=RUNS, show_default=True, help="How many runs to combine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def wan(
    matrix: Path,
    prefix: str | None,
    *,
    rtt: bool,
    hosts: str | None,
    node_hosts: str | None,
    nodes: int,
    servers: int,
    cell_m: float,
    radius_m: float,
    start_s: float,
    duration_s: float,
    speed: float,
    seed: int,
    service_ms: float,
    loss: float,
    block_ms: float,
    whole_reads: bool,
    runs: int,
    as_json: bool,
) -> None:
    """Predict the measurements of `gamecast demo --wan MATRIX`, also with packet loss or slow nodes.

    The core's state machines run over the delays of MATRIX (CSV, ms), call by call, as the live network does. PREFIX
    names a recorded match, as in `gamecast demo`. The plan is made for all servers at once, so a live network may have
    another one.

    Exit status: 0, or 2 for wrong use, or if some events would not be delivered under these conditions.
    """
    standing = stand(
        read_distances(matrix, rtt=rtt),
        servers=server_names(servers),
        nodes=node_names(nodes),
        hosts=hosts,
        node_hosts=node_hosts,
    )
    match = read_match(prefix) if prefix is not None else generate_skirmish(seed)
    workload = build_workload(
        match, cell_m=cell_m, radius_m=radius_m, servers=servers, start_s=start_s, duration_s=duration_s
    )
    workload = spread(workload)
    plan = make_plan(Membership(workload.membership), dict.fromkeys(node_names(nodes), ""))
    prediction = predict(
        plan,
        workload,
        standing,
        speed=speed,
        conditions=Conditions(service_ms=service_ms, loss=loss, whole_reads=whole_reads),
        block_ms=block_ms,
        runs=runs,
    )
    alone = of_paths_alone(plan, workload, standing)
    if as_json:
        document = {
            "hosts": dict(standing.host_of),
            "published": len(workload.publications),
            "predicted": prediction.as_dict(),
            "paths_alone": alone.as_dict(),
            "conditions": {"service_ms": service_ms, "loss": loss, "block_ms": block_ms, "whole_reads": whole_reads},
        }
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2))
        return
    _tell(prediction, alone)


def _tell(prediction: Prediction, alone: Stretch) -> None:
    console = Console(highlight=False)
    table = stretch_table("Latency stretch, predicted")
    stretch_row(table, "predicted", prediction.stretch)
    stretch_row(table, "paths alone", alone)
    console.print(table)
    console.print(
        f"The runs' means are {prediction.means[0]:.3f} to {prediction.means[-1]:.3f}. {told_waits(prediction)}"
    )
