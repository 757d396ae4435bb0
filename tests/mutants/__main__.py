"""``./dev mutants``: make every small change to the core that there is, and see that some test notices each.

Exit status 1 if one is noticed by no test and is not in `equivalent.toml`, or if what is there does not apply any more.
"""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path
from random import Random

import orjson
import pytest

from tests.mutants.judging import Judge, Name
from tests.mutants.operators import Mutant, integers_in, mutants_of

CORE = (
    *("node", "keyspace", "relay", "record", "replay", "delivery", "joins", "transition", "manager", "causal_wait"),
    *("expected", "subscriber", "grants", "shadows", "regionlife", "publisher", "outbox", "owndeliveries"),
)
UNIT = (
    *("node", "node_scenarios", "relay", "replay", "delivery", "subscriber", "publisher", "manager", "expected"),
    *("outgoing", "history", "compact", "news", "record", "transition", "manager_asks"),
    *("grants", "own_deliveries", "outbox", "regionlife"),
)
PROPERTY = "causal_waits", "replays", "shadow_sets"
WORLDS = (
    "test_shadows.py",
    "test_joining_worlds.py::test_nothing_is_delivered_the_wrong_way_round_and_all_that_is_wanted_is_joined[0]",
    "test_joining_worlds.py::test_what_the_node_does_not_keep_is_a_gap_and_nothing_waits_for_it[0]",
    *(f"test_publisher_worlds.py::test_each_event_has_one_fate_and_it_is_true[{first}]" for first in (0, 100, 200)),
    "test_faultrun.py::test_every_promise_holds_under_faults[0]",
    "test_exhaustive.py::test_every_interleaving_of_a_change_keeps_every_promise[s2 leaves and comes back]",
)
"""Of the simulated worlds those that notice most for what they take."""
ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
KNOWN = ROOT / ".mutants.json"


def main() -> int:
    """Judge the mutants of some files, or of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="parts of the core, as `node` or `delivery` (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--sample", type=int, help="only so many, at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample (default: 0)")
    parser.add_argument("--function", default="", help="only in functions whose name holds this")
    parser.add_argument("--unit", action="store_true", help="without the simulated worlds")
    parser.add_argument("--open", action="store_true", help="only what survived the last run and is not explained")
    options = parser.parse_args()
    began_s = time.monotonic()
    integers = integers_in(file.read_bytes() for file in (ROOT / "sequencing").glob("*.py"))
    mutants: list[Mutant] = []
    for name in options.files or CORE:
        file = f"sequencing/{name}.py"
        mutants += mutants_of(file, (ROOT / file).read_bytes(), integers)
    excused, stale = read_equivalents(mutants, everything=not options.files)
    mutants = [mutant for mutant in mutants if options.function in mutant.function]
    known = read_known()
    if options.open:
        mutants = [each for each in mutants if known.get(each.name) == "" and each.name not in excused]
    if options.sample is not None:
        mutants = Random(options.seed).sample(mutants, min(options.sample, len(mutants)))

    def save(found: dict[Name, str]) -> None:
        KNOWN.write_bytes(orjson.dumps([[name, test] for name, test in (read_known() | found).items()]))

    judge = Judge(mutants, options.jobs, known, save)
    quiet = (
        "-q",
        "-q",
        "--no-header",
        "-p",
        "no:cacheprovider",
        "-o",
        "timeout=0",
        "-o",
        "addopts=--import-mode=importlib",
    )
    status = pytest.main([*tests_of(unit_only=options.unit), *quiet], plugins=[judge])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(status)
    return report(judge, excused, stale, time.monotonic() - began_s)


def tests_of(*, unit_only: bool) -> list[str]:
    """Return the tests that judge, as pytest takes them. Raises `FileNotFoundError` for a file that is not there."""
    files = {file.stem: str(file.relative_to(ROOT)) for file in (ROOT / "tests/unit").rglob("test_*.py")}
    if gone := sorted(name for name in UNIT if f"test_{name}" not in files):
        raise FileNotFoundError(f"tests/unit has no {gone}")
    chosen = [files[f"test_{name}"] for name in UNIT] + [f"tests/property/test_{name}.py" for name in PROPERTY]
    return chosen if unit_only else chosen + [f"tests/simulation/{name}" for name in WORLDS]


def read_known() -> dict[Name, str]:
    """Return what earlier runs found: the test that noticed each mutant, empty when none did."""
    if not KNOWN.exists():
        return {}
    return {tuple(name): test for name, test in orjson.loads(KNOWN.read_bytes())}


def read_equivalents(mutants: list[Mutant], *, everything: bool) -> tuple[dict[Name, str], list[str]]:
    """Return the names of mutants that nothing can notice → why; and what of the file belongs to no mutant."""
    there = {mutant.name for mutant in mutants}
    files = {mutant.file for mutant in mutants}
    excused: dict[Name, str] = {}
    stale: list[str] = []
    for group in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", []):
        file = f"sequencing/{group['file']}.py"
        if file not in files and not everything:
            continue
        for function, old, new, *nth in group["mutants"]:
            name = file, function, old, new, nth[0] if nth else 1
            if name not in there:
                stale.append(f"{file} {function}: {old} → {new}: no such mutant")
            excused[name] = group["reason"]
    return excused, stale


def report(judge: Judge, excused: dict[Name, str], stale: list[str], took_s: float) -> int:
    """Print what became of the mutants; return the exit status."""
    generated = Counter(mutant.file for mutant in judge.mutants)
    killed = Counter(file for file, *_ in judge.killers)
    equivalent = Counter(mutant.file for mutant in judge.survivors if mutant.name in excused)
    stale += [f"{n[0]} {n[1]}: {n[2]} → {n[3]}: noticed by {judge.killers[n]}" for n in excused if n in judge.killers]
    opened = [mutant for mutant in judge.survivors if mutant.name not in excused]
    unreviewed = Counter(mutant.file for mutant in opened)
    print("| file | mutants | noticed by a test | equivalent | unreviewed |\n|---|---:|---:|---:|---:|")
    for file in generated:
        row = generated[file], killed[file], equivalent[file], unreviewed[file]
        print(f"| `{Path(file).name}` | {' | '.join(map(str, row))} |")
    totals = [sum(each.values()) for each in (generated, killed, equivalent, unreviewed)]
    print(f"| all | {' | '.join(map(str, totals))} |\n")
    for mutant in opened:
        nth = f"   (nth {mutant.nth})" if mutant.nth > 1 else ""
        print(f"{mutant.file}:{mutant.line} {mutant.function}{nth}\n  - {mutant.old}\n  + {mutant.new}")
    for what in stale:
        print(f"out of date in {EQUIVALENT.name}: {what}")
    print(f"{took_s:.0f} s", file=sys.stderr)
    return 1 if opened or stale else 0


if __name__ == "__main__":
    sys.exit(main())
