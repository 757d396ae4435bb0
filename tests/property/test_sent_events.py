"""What is sent again to a client that comes back: all that is behind what it has had, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.eventtexts import Told
from gateway.sent import SentEvents

REGIONS = ("cave", "forest", "river")


@given(regions=st.lists(st.sampled_from(REGIONS), max_size=40), events_max=st.integers(1, 12))
def test_every_prefix_is_told_by_its_positions_as_long_as_the_rest_is_known(
    regions: list[str], events_max: int
) -> None:
    sent = SentEvents(events_max)
    now = dict.fromkeys(REGIONS, (1, 0))
    sent.joined(now)
    prefixes, items = [dict(now)], list[Told]()
    for number, region in enumerate(regions):
        epoch, sequence = now[region]
        now[region] = (epoch + 1, 1) if number % 7 == 6 else (epoch, sequence + 1)
        items.append(Told(region, now[region], str(number).encode()))
        sent.add(items[-1])
        prefixes.append(dict(now))
    assert sent.now == now
    for length, prefix in enumerate(prefixes):
        expected = items[length:] if len(items) - length <= events_max else None
        assert sent.after(prefix) == expected


@given(
    events=st.lists(st.sets(st.sampled_from(REGIONS), min_size=1), max_size=30),
    events_max=st.integers(1, 12),
    left=st.sampled_from(REGIONS),
)
def test_an_event_of_several_regions_moves_all_of_them(events: list[set[str]], events_max: int, left: str) -> None:
    sent = SentEvents(events_max)
    now = dict.fromkeys(REGIONS, (1, 0))
    sent.joined(now)
    prefixes, items = [dict(now)], list[Told]()
    for number, regions in enumerate(events):
        places = tuple((region, (1, now[region][1] + 1 + number % 3)) for region in sorted(regions))
        now |= dict(places)
        items.append(Told(*places[-1], str(number).encode(), places if len(places) > 1 else ()))
        sent.add(items[-1])
        prefixes.append(dict(now))
    assert sent.now == now
    for length, prefix in enumerate(prefixes):
        assert sent.after(prefix) == (items[length:] if len(items) - length <= events_max else None)
    sent.left([left])
    for prefix in prefixes:
        prefix.pop(left)
        again = sent.after(prefix)
        if again is not None:
            known = prefixes.index(prefix)
            assert again == [item for item in items[known:] if item.region != left]
            assert not any(left in item.positions for item in again)
    assert sent.after(prefixes[-1]) == []


@given(
    regions=st.lists(st.sampled_from(REGIONS), min_size=1, max_size=20),
    changed=st.sampled_from(REGIONS),
    by=st.integers(-3, 3).filter(bool),
    length=st.integers(0, 20),
)
def test_positions_that_are_no_prefix_are_refused(regions: list[str], changed: str, by: int, length: int) -> None:
    sent = SentEvents(100)
    now = dict.fromkeys(REGIONS, (1, 10))
    sent.joined(now)
    prefixes = [dict(now)]
    for region in regions:
        now[region] = 1, now[region][1] + 1
        sent.add(Told(region, now[region], b""))
        prefixes.append(dict(now))
    claimed = dict(prefixes[min(length, len(regions))])
    claimed[changed] = 1, claimed[changed][1] + by
    assert (sent.after(claimed) is not None) == (claimed in prefixes)


def test_who_names_other_regions_than_it_has_is_refused() -> None:
    sent = SentEvents(10)
    sent.joined({"cave": (1, 0), "forest": (1, 0)})
    assert sent.after({"cave": (1, 0), "forest": (1, 0)}) == []
    assert sent.after({"cave": (1, 0)}) is None
    assert sent.after({"cave": (1, 0), "forest": (1, 0), "river": (1, 0)}) is None


def test_of_a_region_that_was_left_nothing_is_sent_again() -> None:
    sent = SentEvents(10)
    sent.joined({"cave": (1, 0), "forest": (1, 0)})
    cave, forest = Told("cave", (1, 1), b"a"), Told("forest", (1, 1), b"b")
    sent.add(cave)
    sent.add(forest)
    sent.left(["cave"])
    assert sent.after({"forest": (1, 0)}) == [forest]
    assert sent.after({"cave": (1, 0), "forest": (1, 0)}) is None


def test_events_may_come_before_it_is_known_where_their_region_begins() -> None:
    sent = SentEvents(10)
    item = Told("cave", (1, 6), b"a")
    sent.add(item)
    sent.joined({"cave": (1, 5)})
    assert sent.after({"cave": (1, 5)}) == [item]
    assert sent.after({"cave": (1, 6)}) == []


def test_behind_a_gap_without_an_end_nobody_can_go_on_here() -> None:
    sent = SentEvents(10)
    sent.joined({"cave": (1, 0), "forest": (1, 0)})
    sent.add(Told("cave", None, b"gap"))
    sent.add(Told("cave", (2, 1), b"a"))
    for positions in ({"cave": (1, 0), "forest": (1, 0)}, {"cave": (2, 1), "forest": (1, 0)}, {"forest": (1, 0)}):
        assert sent.after(positions) is None


def test_what_can_be_sent_again_is_bounded_by_bytes() -> None:
    sent = SentEvents(100, bytes_max=25)
    sent.joined({"cave": (1, 0)})
    items = [Told("cave", (1, number), b"x" * 10) for number in range(1, 6)]
    for item in items:
        sent.add(item)
    assert sent.after({"cave": (1, 2)}) is None
    assert sent.after({"cave": (1, 3)}) == items[3:]
    sent.left([])
    sent.add(Told("cave", (1, 6), b"x" * 26))
    assert sent.after({"cave": (1, 5)}) is None, "one that is larger than all of it"
    assert sent.after({"cave": (1, 6)}) == []
