"""What a causal event waits for, against the plain meaning of it: that no event before it, in another run, is open."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from sequencing.causal_wait import CausalWait

REGIONS = "abc"
STEPS = 120
WORLDS = 300


@dataclass
class Event:
    """``number``: 0 until it is sent; ``open``: whether it has neither passed nor failed."""

    region: str
    run: int
    number: int = 0
    open: bool = True


@dataclass
class Publisher:
    """All events ever published, in order, and what is known of where they were accepted."""

    wait: CausalWait = field(default_factory=CausalWait)
    events: list[Event] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REGIONS, 0))
    accepted: dict[str, tuple[int, int, int]] = field(default_factory=lambda: dict.fromkeys(REGIONS, (0, 0, 0)))
    """Region → (last number, epoch, region sequence)."""
    gone: dict[str, tuple[int, int]] = field(default_factory=lambda: dict.fromkeys(REGIONS, (0, 0)))
    over: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REGIONS, 0))
    frames: list[list[Event]] = field(default_factory=list)
    """The events that were sent together."""

    def step(self, random: Random) -> None:
        """Let one thing happen, and see that it frees what it should."""
        region, first = random.choice(REGIONS), self.first_open()
        match random.choice(["add"] * 3 + ["send"] * 4 + ["answer", "pass", "pass", "gone", "end", "give up", "lose"]):
            case "add":
                run = self.wait.add(region)
                assert not self.events or (run == self.events[-1].run) == (region == self.events[-1].region)
                self.events.append(Event(region, run))
                return
            case "send":
                self.send(region, random.randint(1, 3))
                return
            case "answer":
                freed = self.answer(region, random)
            case "pass":
                number = random.randint(0, self.numbers[region])
                self.pass_up_to(region, number)
                freed = self.wait.passed(region, number)
            case "gone":
                place = self.place(random)
                self.gone[region] = place
                if self.accepted[region][1:] <= place:
                    self.pass_up_to(region, self.accepted[region][0])
                freed = self.wait.gone(region, *place)
            case "end":
                self.over[region] = self.place(random)[0]
                if self.accepted[region][1] <= self.over[region]:
                    self.pass_up_to(region, self.accepted[region][0])
                freed = self.wait.ended(region, self.over[region])
            case "give up":
                freed = self.give_up(random)
            case _:
                freed = self.lose(region, random)
        now = self.first_open()
        assert now is None or freed == ([now.region] if first is None or now.run != first.run else []), self.events

    def place(self, random: Random) -> tuple[int, int]:
        return random.randint(1, 3), random.randint(1, 6)

    def first_open(self) -> Event | None:
        """Return the event whose run may go."""
        return next((event for event in self.events if event.open), None)

    def may_go(self, event: Event) -> bool:
        return all(not other.open or other.run == event.run for other in self.events[: self.events.index(event)])

    def send(self, region: str, count: int) -> None:
        waiting = [event for event in self.events if event.region == region and event.open and not event.number]
        if waiting and self.may_go(waiting[0]):
            frame = [event for event in waiting if event.run == waiting[0].run][:count]
            for event in frame:
                self.numbers[region] += 1
                event.number = self.numbers[region]
            self.wait.numbered(region, frame[0].run, self.numbers[region], len(frame))
            self.frames.append(frame)

    def pass_up_to(self, region: str, number: int) -> None:
        for frame in self.frames:
            if frame[0].region == region and frame[-1].number <= number:
                for event in frame:
                    event.open = False

    def answer(self, region: str, random: Random) -> list[str]:
        after = self.accepted[region][0]
        last = next((frame[-1].number for frame in self.frames
                     if frame[0].region == region and frame[-1].number > after), 0)  # fmt: skip
        if not last:
            return []
        place = self.place(random)
        self.accepted[region] = last, *place
        if place[0] <= self.over[region] or place <= self.gone[region]:
            self.pass_up_to(region, last)
        return self.wait.answered(region, last, *place)

    def give_up(self, random: Random) -> list[str]:
        waiting = [event for event in self.events if event.open and not event.number]
        if not waiting:
            return []
        one = random.choice(waiting)
        failing = [event for event in waiting if event.run == one.run][: random.randint(1, 2)]
        for event in failing:
            event.open = False
        return self.wait.given_up(one.run, len(failing))

    def lose(self, region: str, random: Random) -> list[str]:
        frames = [frame for frame in self.frames if frame[0].region == region]
        if not frames:
            return []
        frame = random.choice(frames)
        for event in frame:
            event.open = False
        return self.wait.lost(region, frame[-1].number)

    def check(self) -> None:
        is_open = [event for event in self.events if event.open]
        for event in is_open:
            assert self.wait.may_go(event.run) == self.may_go(event), (event, self.events)
        assert self.wait.awaited() == {event.region for event in is_open}


@pytest.mark.parametrize("first", range(0, WORLDS, 100))
def test_an_event_may_go_when_no_event_of_a_run_before_it_is_open(first: int) -> None:
    for seed in range(first, first + 100):
        random, publisher = Random(seed), Publisher()
        for _ in range(STEPS):
            publisher.step(random)
            publisher.check()


def test_most_worlds_wait_and_go_on() -> None:
    random, publisher = Random(1), Publisher()
    for _ in range(STEPS):
        publisher.step(random)
    states = [event.open for event in publisher.events]
    assert min(states.count(True), states.count(False)) > 3
