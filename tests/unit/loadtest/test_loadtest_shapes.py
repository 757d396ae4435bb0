"""Load shapes, and who has what in a load test: nothing here starts locust, which would patch this process."""

from __future__ import annotations

import base64
import json
import random
import subprocess
import sys
from typing import Any

import pytest

from loadtest.crew import Crew
from loadtest.options import Options
from loadtest.scenario import REGIONS_MAX, make_scenario
from loadtest.shapes import SHAPES, STORM_CHURN_PER_S, is_of_crowd
from sequencing.errors import UsageError


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_asks_for_somebody_and_for_no_more_than_all(name: str) -> None:
    for step in range(101):
        moment = SHAPES[name](step / 100)
        assert 0 < moment.users <= 1
        assert 0 < moment.rate <= 1
        assert 0 <= moment.churn_per_s <= 1
    assert max(SHAPES[name](step / 100).users for step in range(101)) > 0.95, "all users are there at some time"


def test_a_ramp_only_grows() -> None:
    users = [SHAPES["ramp"](step / 100).users for step in range(101)]
    assert users == sorted(users)
    assert users[0] == pytest.approx(0.1)
    assert users[-1] == 1


def test_a_crowd_comes_at_once_and_leaves_at_once() -> None:
    users = [SHAPES["crowd"](step / 90).users for step in range(91)]
    assert users[:30] == [0.5] * 30
    assert users[31:59] == [1.0] * 28
    assert users[61:] == [0.5] * 30
    assert [slot for slot in range(8) if is_of_crowd(slot, 8, shape="crowd")] == [4, 5, 6, 7]
    assert not is_of_crowd(7, 8, shape="steady")


def test_a_storm_is_in_the_middle() -> None:
    storms = [SHAPES["churn"](step / 100).churn_per_s == STORM_CHURN_PER_S for step in range(100)]
    assert storms == [False] * 25 + [True] * 50 + [False] * 25


def test_a_day_has_its_peak_at_two_thirds_and_ends_as_it_began() -> None:
    loads = [SHAPES["day"](hour / 24).users * SHAPES["day"](hour / 24).rate for hour in range(24)]
    assert loads.index(max(loads)) == 16
    assert loads[0] == min(loads) == pytest.approx(0.15)
    assert loads[23] < 0.3


@pytest.mark.parametrize("workload", ["grid", "zipf", "uniform", "trace"])
def test_a_scenario_is_the_same_in_every_process_and_its_regions_are_its_own(workload: str) -> None:
    one, other = (make_scenario(workload, servers=10, regions=16, seed=3, prefix="run-") for _ in range(2))
    assert one == other
    assert one.regions
    assert all(region.startswith("run-") for region in one.regions)
    assert one.hot in one.regions
    draw = random.Random(1)
    for slot in one.slots:
        assert len(slot.regions) <= max(REGIONS_MAX, 16)
        if slot.weights:
            assert slot.draw(draw) in slot.weights


@pytest.mark.parametrize("workload", ["grid", "zipf", "uniform"])
def test_servers_publish_to_what_they_subscribe_to_and_overlap(workload: str) -> None:
    scenario = make_scenario(workload, servers=12, regions=9, seed=1)
    for slot in scenario.slots:
        assert slot.regions
        assert slot.weights.keys() <= set(slot.regions)
    pairs = [len(set(a.regions) & set(b.regions)) for a in scenario.slots for b in scenario.slots if a is not b]
    assert max(pairs) >= 2, "without a double overlap there is no order to check"


def test_a_match_has_its_servers_join_leave_and_publish_in_the_order_of_time() -> None:
    scenario = make_scenario("trace", servers=6, regions=1, seed=2, prefix="run-")
    assert len(scenario.slots) == 6
    assert scenario.duration_s > 60
    for slot in scenario.slots:
        assert slot.regions
        times = [step.t_s for step in slot.steps]
        assert times == sorted(times)
        assert times[-1] < scenario.duration_s
    assert any(step.joins for slot in scenario.slots for step in slot.steps)
    assert any(step.leaves for slot in scenario.slots for step in slot.steps)
    assert sum(bool(step.publishes) for slot in scenario.slots for step in slot.steps) > 1000


def test_no_two_users_of_a_kind_have_one_slot_in_any_process_and_slots_are_used_again() -> None:
    options = Options(network="redis://host", servers=4)
    crews = [
        Crew(options, options.scenario(), lambda *_: None, process=f"w{worker}", worker=worker, workers=3)
        for worker in range(3)
    ]
    taken = [crew.take_slot("server") for crew in crews for _ in range(4)]
    assert sorted(taken) == list(range(12))
    crews[1].give_back("server", 7)
    crews[1].give_back("server", 1)
    assert [crews[1].take_slot("server") for _ in range(3)] == [1, 7, 13]
    assert crews[0].take_slot("socket") == 0, "each kind is counted by itself"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"servers": 0}, "needs users"),
        ({"network": ""}, "--network"),
        ({"sockets": 1}, "--gateway"),
        ({"shape": "square"}, "square"),
        ({"rate": 0.0}, "above 0"),
        ({"token": "no.token.at-all"}, "--token"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_option_at_fault(wrong: dict[str, Any], says: str) -> None:
    given: dict[str, Any] = {"network": "redis://host"}
    with pytest.raises(UsageError, match=says):
        Options(**(given | wrong))


def test_an_unknown_workload_and_a_trace_for_another_are_refused() -> None:
    with pytest.raises(UsageError, match="torus"):
        make_scenario("torus", servers=2, regions=2, seed=1)
    with pytest.raises(UsageError, match="--trace"):
        Options(network="redis://host", trace="match").scenario()


def test_what_the_tests_import_does_not_patch_the_process() -> None:
    modules = ["conductor", "crew", "journal", "judging", "options", "report", "scenario", "session", "shapes"]
    modules += ["presence", "socket_session", "poster_session", "__main__"]
    program = "import sys\n" + "\n".join(f"import loadtest.{module} as _" for module in modules)
    program += "\nassert not {'gevent', 'locust'} & sys.modules.keys(), 'patched'"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_with_a_token_clients_have_names_that_its_subject_may_have() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"sub": "tester"}).encode()).decode().rstrip("=")
    options = Options(network="redis://host", run="load-1", token=f"e30.{claims}.signature")
    assert options.name_of("socket", 3) == "tester~load-1-socket-3"
    assert options.name_of("server", 3) == "load-1-server-3"
