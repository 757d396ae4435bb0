"""The verdict on the deliveries of some subscribers, against everything that is promised of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sequencing.checkers.completeness import Count, count_duplicates, count_losses
from sequencing.checkers.cycles import find_components, find_cycle
from sequencing.checkers.history import DeliverySequence, History, Published
from sequencing.checkers.inversions import count_inversions, find_inversion
from sequencing.checkers.offence import Offence
from sequencing.checkers.publishers import check_publisher_order


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of the checkers.

    ``subscribers``, ``deliveries`` and ``regions`` are the amount judged; a repeated delivery counts as a delivery.
    """

    subscribers: int
    deliveries: int
    regions: int
    inversions: int
    """Distinct pairs of events that some two subscribers delivered in opposite orders; of repeated deliveries, the
    first counts."""
    cycles: int
    """Strongly connected components of two or more events in the union of delivery orders; an inversion is in one."""
    duplicated: int
    publisher_order_violations: int
    publishers: int
    publishers_unchecked: tuple[str, ...]
    """Publishers whose own order is unknown, so that it cannot be judged."""
    lost: int | None
    """None if the published events are unknown."""
    unexpected: int | None
    """Deliveries of events not published to a region of the subscriber; None if the published events are unknown."""
    examples: tuple[Offence, ...]
    """One violation of each kind found, gravest kind first."""

    @property
    def first(self) -> Offence | None:
        """The most serious violation."""
        return self.examples[0] if self.examples else None

    @property
    def fine(self) -> bool:
        """Whether no violation was found."""
        return not self.examples

    def as_dict(self) -> dict[str, object]:
        """Return values for JSON; ``lost`` and ``unexpected`` only where they are known."""
        known: dict[str, object] = {
            "subscribers": self.subscribers,
            "deliveries": self.deliveries,
            "regions": self.regions,
            "inversions": self.inversions,
            "cycles": self.cycles,
            "duplicated": self.duplicated,
            "publisher_order_violations": self.publisher_order_violations,
            "publishers": self.publishers,
            "publishers_unchecked": len(self.publishers_unchecked),
        }
        if self.lost is not None:
            known["lost"] = self.lost
        if self.unexpected is not None:
            known["unexpected"] = self.unexpected
        known["first"] = self.first.as_dict() if self.first is not None else None
        known["examples"] = [example.as_dict() for example in self.examples]
        return known


def judge(
    sequences: Iterable[DeliverySequence] | History,
    *,
    published: Iterable[Published] | None = None,
    membership: Mapping[str, AbstractSet[str]] | None = None,
    publication_order: Mapping[str, Sequence[str]] | None = None,
) -> Verdict:
    """Judge the deliveries of each subscriber.

    ``published`` are the events that should have been delivered, to the subscribers of each region by ``membership``
    (subscriber → regions; without it, to those that delivered anything of the region). ``publication_order`` is each
    publisher's events in order.
    Takes O(deliveries) while the orders agree, and O(deliveries × regions per subscriber) where they do not.
    Raises `UsageError` for two sequences of one subscriber and `InvalidInput` for an event with two regions or senders.
    """
    history = sequences if isinstance(sequences, History) else History.of(sequences)
    components = find_components(history.firsts, events_count=len(history.events))
    inversions = count_inversions(history, components.members)
    order = find_inversion(history, inversions.event) if inversions.count else find_cycle(history, components)
    publisher_order = check_publisher_order(history, publication_order)
    duplicates = count_duplicates(history)
    losses: tuple[Count, Count] | None = None
    if published is not None:
        losses = count_losses(history, published, membership)
    offences = (order, publisher_order.example, duplicates.example, *(loss.example for loss in losses or ()))
    return Verdict(
        subscribers=len(history.subscribers),
        deliveries=sum(map(len, history.deliveries)),
        regions=len(history.regions),
        inversions=inversions.count,
        cycles=components.count,
        duplicated=duplicates.count,
        publisher_order_violations=publisher_order.violations,
        publishers=len(history.senders),
        publishers_unchecked=publisher_order.unchecked,
        lost=losses[0].count if losses else None,
        unexpected=losses[1].count if losses else None,
        examples=tuple(example for example in offences if example is not None),
    )
