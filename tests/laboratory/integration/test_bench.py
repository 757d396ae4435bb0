"""The bench, small: every peer carries the grid over a real Redis, and the command says what it measured."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import orjson
import pytest
from click.testing import CliRunner

from laboratory.bench.peers import channel_layer, jetstream
from laboratory.bench.peers.channel_layer import ChannelLayerPeer
from laboratory.bench.peers.jetstream import JetStreamPeer
from laboratory.bench.peers.peer import Peer
from laboratory.bench.peers.registry import OTHERS, OURS
from laboratory.bench.peers.streams import StreamsPeer
from laboratory.bench.trial import Trial, run_trial
from laboratory.bench.workload import Phases, hot, ring
from laboratory.commands import bench as command
from laboratory.commands import bench_options
from sequencing.errors import ProcessFailed
from tests.patience import besides_waiting

PHASES = Phases(events=400, paced_s=0.2, rate_per_s=500, window_events=64, seed=1)
SMALL = ["--sizes", "4", "--runs", "1", "--events", "400", "--seconds", "0.2", "--rate", "500"]


@pytest.mark.parametrize("peer", OTHERS.values(), ids=OTHERS)
def test_another_peer_delivers_everything_once(peer: Peer) -> None:
    if (cure := peer.missing()) is not None:
        pytest.skip(f"{peer.name} is not installed: {cure}")
    check(run_trial(peer, ring(4), PHASES))


def test_gamecast_delivers_everything_once_and_in_one_order() -> None:
    trial = run_trial(OURS, ring(4), PHASES)
    check(trial)
    assert trial.pairs_out_of_order == 0


def test_a_region_that_all_have_is_delivered_to_all_and_servers_that_tick_publish_at_once() -> None:
    world, phases = hot(20), replace(PHASES, tick_hz=20)
    trial = run_trial(OURS, world, phases)
    assert (trial.expected, trial.lost, trial.duplicated) == (20 * phases.paced.stop, 0, 0)
    assert trial.pairs_out_of_order == 0
    assert trial.paced_us["publishers"] > 0
    assert trial.paced_us["subscribers"] > 0


def check(trial: Trial) -> None:
    assert trial.expected == 3 * PHASES.paced.stop
    assert (trial.lost, trial.duplicated) == (0, 0)
    assert trial.deliveries_per_s > 0
    assert 0 < trial.p50_ms <= trial.p95_ms <= trial.p99_ms
    assert trial.cpu_us_per_delivery["publishers"] > 0
    assert trial.cpu_us_per_delivery["subscribers"] > 0
    assert trial.cpu_us_per_delivery["servers"] >= 0  # which is counted in hundredths of a second


def test_an_error_in_a_process_of_the_bench_reaches_the_caller() -> None:
    with pytest.raises(ProcessFailed, match="AttributeError"):
        run_trial(StreamsPeer(), ring(4), cast(Phases, None))


def test_the_command_prints_one_document_of_all_peers_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JetStreamPeer, "missing", lambda _: "put it there")
    monkeypatch.setattr(ChannelLayerPeer, "missing", lambda _: "install it")
    result = CliRunner().invoke(command.bench, ["--json", *SMALL])
    assert result.exit_code == 0, result.output
    document = orjson.loads(result.stdout)
    others = {"pubsub", "streams", "batched-streams", "single-stream", "bare"}
    assert set(document["peers"]) == {"gamecast", *others}
    assert document["absent"] == {"nats": "put it there", "channels-redis": "install it"}
    assert document["versions"]["redis-server"]
    for of_sizes in document["peers"].values():
        assert set(of_sizes) == {"4"}
        assert of_sizes["4"].keys() >= {"deliveries_per_s", "p50_ms", "p95_ms", "p99_ms"}
    for measure in ("deliveries_per_s", "p50_ms", "p99_ms", "cpu_us_per_paced_event"):
        assert set(document["ratios"][measure]) == others
    assert besides_waiting(result.stderr) == ""


def test_the_command_fails_when_order_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "OURS", StreamsPeer())
    result = CliRunner().invoke(command.bench, ["--against", "pubsub", *SMALL])
    assert result.exit_code == 1
    assert "pairs out of order" in result.stderr
    assert "pubsub" in result.stdout
    assert "not installed" not in result.stdout  # nobody has asked for the others


@pytest.mark.parametrize(("name", "cure"), [("nats", "nats-server on PATH"), ("channels-redis", "pip install")])
def test_a_peer_that_is_asked_for_by_name_must_be_installed(
    monkeypatch: pytest.MonkeyPatch, name: str, cure: str
) -> None:
    monkeypatch.setenv("PATH", "")
    for module in (channel_layer, jetstream):
        monkeypatch.setattr(module, "find_spec", lambda _: None)
    monkeypatch.setattr(jetstream, "_server", lambda: None)
    result = CliRunner().invoke(command.bench, ["--against", f"pubsub,{name}", *SMALL])
    assert result.exit_code == 2
    assert cure in result.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--against", "carrier-pigeon"], "carrier-pigeon"),
        (["--sizes", "8,many"], "8,many"),
        (["--sizes", "2"], "at least 3"),
        (["--runs", "0"], "--runs"),
        (["--tick", "0"], "--tick"),
        (["--loop", "uvloop"], "pip install uvloop"),
    ],
)
def test_wrong_use_is_said_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    monkeypatch.setattr(bench_options, "find_spec", lambda _: None)
    result = CliRunner().invoke(command.bench, arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr
