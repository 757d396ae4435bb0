"""A run as its conductor leads it: what users are told, when it ends, and when it fails. Time is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadtest.conductor import Conductor, Phase
from loadtest.journal import Journal, event_id
from loadtest.options import Options
from loadtest.report import tell
from sequencing.checkers import Offence
from sequencing.checkers.stays import Stay

NS = 1_000_000_000


class Play:
    """A conductor and a worker with two subscribers, each second."""

    def __init__(self, *, seconds: float = 10, settle: float = 6, workers: int = 1, **options: Any) -> None:
        self.told: list[dict[str, Any]] = []
        self.violations: list[Offence] = []
        self.conductor = Conductor(
            options=Options(network="redis://host", seconds=seconds, settle=settle, **options),
            tell=self.told.append,
            violated=self.violations.append,
            workers=workers,
        )
        self.journal = Journal("w0")
        self.logs = [self.journal.log(f"s{number}#0") for number in range(2)]
        for log in self.logs:
            self.journal.stay(Stay(log.subscriber, "forest", 0, None, 0, 1))
        self.now_s = 0.0
        self.count = 0
        self.held = self.outstanding = 0

    def deliver(self, events: Sequence[int]) -> None:
        """Publish so many events, and deliver them, at the second subscriber in the order given."""
        first = self.count
        for _ in events:
            self.journal.published(
                event_id("s0", self.count), "forest", "s0", f"1-{self.count}", round(self.now_s * NS)
            )
            self.count += 1
        for log, order in zip(self.logs, (range(len(events)), events), strict=False):
            for number in order:
                log.deliver(event_id("s0", first + number), "forest", "s0", f"1-{first + number}")

    def second(self, *, deliver: bool = True) -> float | None:
        self.now_s += 1
        if deliver:
            quiet, last = (any(word in said for said in self.told) for word in ("quiet", "last"))
            self.conductor.hear(self.journal.take(quiet=quiet, last=last, outstanding=self.outstanding, held=self.held))
        return self.conductor.tick(self.now_s, round(self.now_s * NS))


def test_a_run_plays_is_quiet_until_all_is_delivered_and_is_judged() -> None:
    play = Play()
    phases = []
    while play.second() is not None:
        phases.append(play.conductor.phase)
        if play.conductor.phase == Phase.PLAYING:
            play.deliver(range(5))
    assert list(dict.fromkeys(phases)) == [Phase.PLAYING, Phase.QUIET, Phase.LAST]
    assert [next(iter(said)) for said in play.told] == ["moment", "quiet", "last"]
    judgement = play.conductor.judgement
    assert judgement is not None
    assert judgement.fine
    assert judgement.published == 50
    assert play.conductor.settled_s is not None
    assert play.violations == []


def test_a_plant_that_was_not_carried_out_fails_the_run() -> None:
    play = Play(plant="loss")
    while play.second() is not None:
        if play.conductor.phase == Phase.PLAYING:
            play.deliver(range(2))
    judgement = play.conductor.judgement
    assert judgement is not None
    assert judgement.incomplete == ("--plant loss: nothing was planted, because no user had 40 deliveries",)
    assert not judgement.fine


def test_a_run_that_is_enough_ends_in_order() -> None:
    play = Play(seconds=1000)
    for _ in range(5):
        play.second()
        play.deliver(range(5))
    play.conductor.is_enough = True
    while play.second() is not None:
        assert play.now_s < 30
    assert play.conductor.judgement is not None
    assert play.conductor.judgement.fine
    assert not play.conductor.stopped_in_order


def test_a_run_that_is_stopped_at_once_is_judged_by_its_order_alone() -> None:
    play = Play()
    for _ in range(3):
        play.second()
        play.deliver(range(5))
    play.conductor.interrupt()
    assert play.conductor.judgement is not None
    assert play.conductor.judgement.verdict.lost is None
    assert play.conductor.stopped_in_order
    assert tell(play.conductor)[-1].startswith("Its order was kept")


def test_a_violation_while_it_plays_ends_the_run_at_once() -> None:
    play = Play(seconds=1000)
    play.second()
    play.deliver([0, 2, 1])
    while play.second() is not None:
        assert play.now_s < 30
    judgement = play.conductor.judgement
    assert judgement is not None
    assert not judgement.fine
    assert judgement.verdict.inversions == 1
    assert "inversion" in {offence.kind for offence in play.violations}
    assert play.conductor.figures()["broken_while_playing"]


def test_what_is_held_for_ever_is_waited_for_no_longer_than_was_asked_for_and_is_then_lost() -> None:
    play = Play(settle=6)
    play.second()
    play.deliver(range(2))
    play.journal.published(event_id("s0", 99), "forest", "s0", "1-99", NS)
    play.logs[0].deliver(event_id("s0", 99), "forest", "s0", "1-99")
    play.held = 1
    quiet_s = None
    while play.second() is not None:
        if play.conductor.phase == Phase.QUIET and quiet_s is None:
            quiet_s = play.now_s
    assert quiet_s is not None
    assert play.now_s - quiet_s >= 6
    judgement = play.conductor.judgement
    assert judgement is not None
    assert judgement.verdict.lost
    assert play.conductor.settled_s is None


def test_a_run_in_which_joins_or_publishes_get_no_answer_is_not_fine() -> None:
    play = Play(settle=4)
    play.second()
    play.deliver(range(5))
    play.outstanding = 3
    while play.second() is not None:
        assert play.now_s < 60
    judgement = play.conductor.judgement
    assert judgement is not None
    assert judgement.verdict.fine, "who is in no region is owed nothing"
    assert not judgement.fine
    assert "3 publishes or joins had no answer" in judgement.violations()[0]


def test_a_process_that_does_not_hand_over_the_rest_makes_the_run_fail() -> None:
    play = Play(workers=2)
    while play.second() is not None:
        assert play.now_s < 60
    judgement = play.conductor.judgement
    assert judgement is not None
    assert not judgement.fine
    assert any("1 of 2 processes" in missing for missing in judgement.incomplete)


def test_a_worker_that_is_lost_makes_the_run_fail() -> None:
    play = Play(workers=2)
    play.second()
    play.conductor.lost_worker("w1")
    while play.second() is not None:
        assert play.now_s < 60
    judgement = play.conductor.judgement
    assert judgement is not None
    assert not judgement.fine
    assert "w1" in judgement.incomplete[0]


def test_a_worker_that_is_lost_breaks_no_promise_though_its_subscribers_report_nothing_more() -> None:
    play = Play(workers=2, seconds=20, late=2)
    play.conductor.lost_worker("w1")
    play.deliver([0, 1])
    play.logs.pop()  # that of the lost worker
    while play.second() is not None:
        if play.now_s < 10:
            play.deliver([0])
        assert play.now_s < 60
    assert not play.violations
    assert not play.conductor.figures()["is_broken"]


def test_what_was_out_of_order_is_broken_although_a_worker_is_lost() -> None:
    play = Play(workers=2)
    play.conductor.lost_worker("w1")
    play.deliver([1, 0])
    while play.second() is not None:
        assert play.now_s < 60
    assert play.conductor.figures()["is_broken"]


def test_a_run_that_is_broken_off_is_judged_for_order_and_is_not_called_fine() -> None:
    play = Play()
    play.second()
    play.deliver([0, 1, 2])
    play.second()
    play.conductor.interrupt()
    judgement = play.conductor.judgement
    assert judgement is not None
    assert judgement.verdict.deliveries == 6
    assert judgement.verdict.lost is None
    assert not judgement.fine
    assert play.second() is None


def test_logs_that_contradict_each_other_make_the_run_fail_instead_of_ending_it_without_a_word() -> None:
    play = Play()
    play.second()
    play.logs[0].deliver("s0/0", "forest", "s0", "1-0")
    play.logs[1].deliver("s0/0", "river", "s0", "1-0")
    while play.second() is not None:
        assert play.now_s < 60
    judgement = play.conductor.judgement
    assert judgement is not None
    assert not judgement.fine
    assert "forest" in " ".join(judgement.violations())


def test_a_run_ends_early_with_as_many_deliveries_as_may_be_kept() -> None:
    play = Play(seconds=1000, deliveries_max=40)
    while play.second() is not None:
        assert play.now_s < 60
        if play.conductor.phase == Phase.PLAYING:
            play.deliver(range(5))
    assert play.conductor.full
    judgement = play.conductor.judgement
    assert judgement is not None
    assert judgement.fine
    assert judgement.verdict.deliveries < 60


def test_a_run_in_which_nothing_was_delivered_is_not_fine() -> None:
    play = Play()
    while play.second() is not None:
        assert play.now_s < 60
    judgement = play.conductor.judgement
    assert judgement is not None
    assert not judgement.fine
    assert judgement.violations() == ["nothing was delivered, so nothing was judged"]


def test_what_counted_as_lost_while_it_ran_fails_the_run_even_if_it_comes_after_all() -> None:
    play = Play(seconds=1000, late=5, settle=30)
    play.second()
    play.deliver(range(5))
    event = event_id("s0", play.count)
    play.count += 1
    play.journal.published(event, "forest", "s0", "1-9", round(play.now_s * NS))
    play.logs[0].deliver(event, "forest", "s0", "1-9")
    while play.conductor.phase == Phase.PLAYING:
        play.second()
    play.logs[1].deliver(event, "forest", "s0", "1-9")
    while play.second() is not None:
        assert play.now_s < 60
    judgement = play.conductor.judgement
    assert judgement is not None
    assert judgement.verdict.fine
    assert not judgement.fine
    assert "while it ran" in judgement.violations()[0]
