"""`gamecast plan` as a newcomer types it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

from tests.patience import scaled

ROOT = Path(__file__).resolve().parents[2]
ROWS = "subscriber,region\nann,forest\nann,river\nbob,forest\nbob,river\nbob,village\ncid,village\n,desert\n"


def gamecast(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "gamecast", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, cwd=ROOT, check=False, timeout=scaled(60))


def test_a_piped_membership_becomes_a_plan_file_and_figures(tmp_path: Path) -> None:
    ran = gamecast("plan", "size", "-", "--out", tmp_path / "plan.json", "--json", stdin=ROWS.encode())
    assert (ran.returncode, ran.stderr) == (0, b"")
    figures = json.loads(ran.stdout)
    assert (figures["regions"], figures["subscribers"], figures["overlaps"]) == (4, 3, 1)
    document = json.loads((tmp_path / "plan.json").read_bytes())
    paths = {region: entry["path"] for region, entry in document["regions"].items()}
    assert paths.keys() == {"forest", "river", "village", "desert"}
    for atom in document["atoms"]:
        assert all(atom["node"] in paths[region] for region in atom["regions"])


def test_a_malformed_file_ends_with_status_2_and_one_line_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "world.csv.gz"
    file.write_bytes(gzip.compress(ROWS.encode() + b"dan\n"))
    ran = gamecast("plan", "size", file, "--json")
    assert ran.returncode == 2
    assert ran.stdout == b""
    assert ran.stderr.decode().splitlines() == [
        f"gamecast: {file}, line 9: 1 cell, but the header has 2",
    ]
    assert json.loads(gamecast("plan", "size", file, "--json", "--skip-bad").stdout)["skipped"] == 1


def test_gzip_on_standard_input_is_refused_with_the_cure() -> None:
    ran = gamecast("plan", "size", "-", stdin=gzip.compress(ROWS.encode()))
    assert ran.returncode == 2
    assert b"gunzip" in ran.stderr


def test_every_option_has_a_twin_in_the_environment() -> None:
    command = [sys.executable, "-m", "gamecast", "plan", "size", "-", "--json"]
    ran = subprocess.run(
        command, input=ROWS.encode(), capture_output=True, cwd=ROOT, check=True, env={"GAMECAST_PLAN_SIZE_NODES": "5"}
    )
    assert json.loads(ran.stdout)["nodes"] == 5
