"""A load test in which something is lost, repeated or swapped on purpose fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gamecast import blocking
from tests.integration.loadtest.test_loadtest import judgement_in, load, requests_in, seconds


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    """A network of two nodes for all runs: each has regions of its own."""
    with blocking.connect("embedded://?nodes=2") as client:
        yield client.url


@pytest.mark.parametrize(("plant", "processes"), [("duplicate", "0"), ("inversion", "2"), ("loss", "2")])
def test_a_violation_fails_the_run(network: str, tmp_path: Path, plant: str, processes: str) -> None:
    ran = load(
        tmp_path, "--network", network, "--seconds", seconds(6), "--servers", "4", "--regions", "4", "--rate", "20",
        "--plant", plant, "--processes", processes,
    )  # fmt: skip
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "NOT FINE" in ran.stdout
    judgement = judgement_in(tmp_path)
    assert not judgement["fine"]
    counts = {
        "inversion": ("inversions", "publisher_order_violations"),
        "loss": ("lost",),
        "duplicate": ("duplicated",),
    }
    assert any(judgement[count] > 0 for count in counts[plant])
    if plant != "loss":
        assert judgement["run"]["broken_while_playing"], "seen while it ran, and ended for it"
    assert any(kind == "judge" for kind, _ in requests_in(tmp_path)), "locust's report tells it too"
