"""Clock offsets from probes: the truth is always within what is reported, and steps are seen."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analytics.session.clocks import ClockOffset, estimate_offset, estimate_offsets, offsets_from

SECOND = 1_000_000_000
BASE = 1_790_000_000 * SECOND

delays = st.integers(0, 300_000_000)
offsets = st.integers(-10_000 * SECOND, 10_000 * SECOND)


def probe(at: int, offset: int, there: int, stay: int, back: int) -> tuple[int, int, int, int]:
    """A probe that leaves at a true time; the origin's clock is right, the target's ahead by ``offset``."""
    return at, at + there + offset, at + there + stay + offset, at + there + stay + back


@settings(deadline=None)
@given(offsets, st.lists(st.tuples(st.integers(0, 50 * SECOND), delays, delays, delays), min_size=1, max_size=30))
def test_the_truth_is_within_half_the_smallest_round_trip(offset: int, ways: list[tuple[int, int, int, int]]) -> None:
    probes = [probe(BASE + at, offset, there, stay, back) for at, there, stay, back in ways]
    report = estimate_offset(*zip(*probes, strict=True))
    (estimate,) = report.offsets
    assert abs(estimate.offset_ns - offset) <= estimate.uncertainty_ns
    assert estimate.uncertainty_ns == min(there + back for _, there, _, back in ways) / 2
    assert (estimate.probes, report.steps, report.discarded) == (len(ways), 0, 0)


@settings(deadline=None)
@given(offsets, st.lists(st.tuples(delays, delays, delays, st.booleans()), min_size=1, max_size=20))
def test_probes_from_either_side_tell_the_same(offset: int, ways: list[tuple[int, int, int, bool]]) -> None:
    rows = []
    for turn, (there, stay, back, turned) in enumerate(ways):
        at = BASE + turn * SECOND
        if turned:  # from b, whose clock is ahead
            sent, returned = at + offset, at + there + stay + back + offset
            rows.append(("b", "a", sent, at + there, at + there + stay, returned))
        else:
            rows.append(("a", "b", *probe(at, offset, there, stay, back)))
    (estimate,) = estimate_offsets(rows).offsets
    assert (estimate.origin, estimate.target) == ("a", "b")
    assert abs(estimate.offset_ns - offset) <= estimate.uncertainty_ns
    assert estimate.uncertainty_ns == min(there + back for there, _, back, _ in ways) / 2


@settings(deadline=None)
@given(
    offsets,
    st.integers(2, 20),
    st.integers(2, 20),
    st.integers(700_000_000, 1000 * SECOND),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_a_step_larger_than_the_round_trips_is_seen_and_each_side_is_right(
    offset: int, before: int, after: int, step: int, back: bool, random: Random
) -> None:
    stepped = offset + (-step if back else step)
    rng = np.random.default_rng(random.getrandbits(32))
    ways = rng.integers(0, 300_000_000, (before + after, 3)).tolist()
    probes = [
        probe(BASE + turn * SECOND, offset if turn < before else stepped, *ways[turn]) for turn in range(before + after)
    ]
    report = estimate_offset(*zip(*probes, strict=True))
    assert report.steps == 1
    first, second = report.offsets
    assert (first.after_step, second.after_step) == (False, True)
    assert (first.probes, second.probes) == (before, after)
    assert abs(first.offset_ns - offset) <= first.uncertainty_ns
    assert abs(second.offset_ns - stepped) <= second.uncertainty_ns


def test_drift_within_the_allowance_is_no_step_and_windows_follow_it() -> None:
    drift = 40e-6
    probes = []
    for turn in range(600):
        at = BASE + turn * SECOND
        probes.append(probe(at, round(turn * SECOND * drift), 100_000, 10_000, 100_000))
    report = estimate_offset(*zip(*probes, strict=True))
    assert report.steps == 0
    assert len(report.offsets) == pytest.approx(10, abs=1)
    for estimate in report.offsets:
        middle = ((estimate.begins_at_ns + estimate.ends_at_ns) / 2 - BASE) * drift
        assert abs(estimate.offset_ns - middle) <= estimate.uncertainty_ns + 30 * SECOND * drift * 1.1


def test_what_cannot_be_is_left_out_and_counted() -> None:
    good = probe(BASE, 5, 100, 10, 100)
    back_before_sent = (BASE + 100, BASE + 200, BASE + 210, BASE + 50)
    stays_longer_than_away = (BASE, BASE + 10, BASE + 500, BASE + 100)
    report = estimate_offset(*zip(good, back_before_sent, stays_longer_than_away, strict=True))
    assert (report.discarded, len(report.offsets), report.offsets[0].probes) == (2, 1, 1)
    assert estimate_offset([], [], [], []).offsets == ()
    assert estimate_offsets([("a", "a", *good)]).offsets == ()
    assert estimate_offsets([("a", "b", *back_before_sent)]).discarded == 1


def test_hosts_that_never_probed_each_other_are_related_by_way_of_others() -> None:
    found = offsets_from(
        "a",
        [
            ClockOffset("a", "b", 0, 9, 100.0, 5.0, 3),
            ClockOffset("b", "c", 0, 9, -30.0, 2.0, 3),
            ClockOffset("a", "c", 0, 9, 60.0, 50.0, 1),
            ClockOffset("x", "y", 0, 9, 1.0, 1.0, 1),
        ],
    )
    assert set(found) == {"a", "b", "c"}
    assert (found["a"].offset_ns, found["a"].uncertainty_ns) == (0, 0)
    assert (found["c"].offset_ns, found["c"].uncertainty_ns) == (70.0, 7.0)  # better than the direct one
    back = offsets_from("c", [ClockOffset("b", "c", 0, 9, -30.0, 2.0, 3)])
    assert (back["b"].offset_ns, back["b"].uncertainty_ns) == (30.0, 2.0)


def test_of_several_estimates_the_nearest_in_time_is_taken() -> None:
    early, late = ClockOffset("a", "b", 0, 10, 1.0, 1.0, 1), ClockOffset("a", "b", 100, 110, 9.0, 1.0, 1, True)
    assert offsets_from("a", [early, late], at_ns=5)["b"].offset_ns == 1.0
    assert offsets_from("a", [early, late], at_ns=90)["b"].offset_ns == 9.0
    assert offsets_from("a", [early, late])["b"].offset_ns == 9.0
