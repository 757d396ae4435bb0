"""Order checkers that know nothing of stamps: they judge deliveries by the deliveries alone."""

from sequencing.checkers.history import DeliverySequence, History, Published
from sequencing.checkers.offence import Offence
from sequencing.checkers.pairs import PairOrder, compare_pairs
from sequencing.checkers.verdict import Verdict, judge

__all__ = ["DeliverySequence", "History", "Offence", "PairOrder", "Published", "Verdict", "compare_pairs", "judge"]
