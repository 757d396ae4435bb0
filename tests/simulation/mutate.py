"""``./dev mutate``: apply each mutation to a copy of the core, and count the seeds until the simulation notices.

Prints them by file. Exit status 1 if a mutation is not noticed within ``--seeds``.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.simulation.mutations import MUTATIONS, Mutation
from tests.simulation.mutations_shipped import SHIPPED_MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("gamecast", "sequencing", "classic", "placement", "adapters")

WORLDS = {
    "faults": "from laboratory.simulation.faultrun import Scenario as World, run_faults as run",
    "servers": "from laboratory.simulation.shipped import ShippedWorld as World, run_shipped as run",
}
ATTACK = """
import logging, sys
exec(sys.argv[2])
logging.disable(logging.CRITICAL)
for seed in range(int(sys.argv[1])):
    try:
        outcome = run(World.of(seed))
    except Exception as error:
        print(seed + 1, f"{type(error).__name__}: {error}".replace(chr(10), " "))
        break
    if outcome.violations:
        print(seed + 1, outcome.violations[0].partition(":")[0])
        break
else:
    print(0, "not noticed")
"""


def main() -> int:
    """Run all mutations, or those whose name holds a word."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=600, help="how many worlds to try (default: 600)")
    parser.add_argument("--jobs", type=int, default=2, help="mutations at a time (default: 2)")
    parser.add_argument("--only", default="", help="mutations whose name, or file, holds this")
    parser.add_argument("--worlds", choices=WORLDS, default="faults", help="which worlds (default: faults)")
    parser.add_argument("--every", type=int, default=1, help="only every so many-th mutation")
    options = parser.parse_args()
    known = MUTATIONS if options.worlds == "faults" else SHIPPED_MUTATIONS
    chosen = [mutation for mutation in known if options.only in mutation.name + mutation.file][:: options.every]
    chosen.sort(key=lambda mutation: Path(mutation.file).name)
    began_s, missed, shown = time.monotonic(), 0, ""
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutation, (seeds, how) in zip(
            chosen, pool.map(lambda m: survive(m, options.seeds, options.worlds), chosen), strict=True
        ):
            missed += not seeds
            after = f"{seeds:,}" if seeds else "–"
            if mutation.file != shown:
                shown = mutation.file
                print(f"\n`{Path(shown).name}`:\n")
            print(f"- {mutation.name}: {after}, {how[:60]}", flush=True)
    print(f"\n{len(chosen)} bugs, {len(chosen) - missed} noticed, {time.monotonic() - began_s:.0f} s", file=sys.stderr)
    return 1 if missed else 0


def survive(mutation: Mutation, seeds: int, worlds: str) -> tuple[int, str]:
    """Return after how many seeds of some worlds a mutation was noticed, 0 for never, and by what."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
        file = tree / mutation.file
        text = file.read_text()
        if text.count(mutation.old) != 1:
            sys.exit(f"the mutation {mutation.name!r} does not apply: its text occurs {text.count(mutation.old)} times")
        file.write_text(text.replace(mutation.old, mutation.new))
        command = [sys.executable, "-c", ATTACK, str(seeds), WORLDS[worlds]]
        try:
            ended = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=600, check=False)
        except subprocess.TimeoutExpired:
            return seeds, "it never ended"
    if ended.returncode:
        return 1, ended.stderr.strip().splitlines()[-1]
    noticed, _, how = ended.stdout.strip().partition(" ")
    return int(noticed), how


if __name__ == "__main__":
    sys.exit(main())
