"""What a leader has its host do: see `sequencing.leader`.

Each errand says what its answer is. An errand that fails raises its error where the leader waits for the answer; a
leader that fails begins its next turn with a new look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from sequencing.plan import Plan
from sequencing.record import Interest, Record

if TYPE_CHECKING:  # a candidate performs none
    from sequencing.sole import BeginAny, BeginNoMore
    from sequencing.transition import Task

T = TypeVar("T")

CROWD = 20
"""Among this many subscribers, several are likely to change their interests at the same time."""


class Seen(NamedTuple):
    """What a leader decides by.

    ``record``: None in a new network; ``announced``: the newest (epoch, version) that clients may know; ``asked``:
    where `Until` continues to wait for requests; ``nodes``: name → url. A node in ``may_lose`` may have an older state
    after a restart.
    """

    record: Record | None
    interests: Mapping[str, Interest]
    published: frozenset[str]
    announced: tuple[int, int]
    asked: str
    nodes: Mapping[str, str]
    may_lose: frozenset[str] = frozenset()
    expected: int = 0
    """The number of declared overlaps."""
    taken: bool = False
    """Whether the lease was taken since the last look that was answered: another candidate may have led meanwhile."""
    doubted: Mapping[str, str] = {}
    """Node → the run of its server in which it was found to have lost something, however it is registered."""

    touched: frozenset[str] | None = None
    """The names that have asked for something, or gone, since the last look; None: any may have."""
    is_sole: bool = False
    """Whether the control store grants joins by itself, because one node has all regions."""
    connections: int = 0
    proposed: str = ""
    """The id of a plan that an operator proposes, and that has no answer yet."""
    is_older: bool = False
    """Whether the control store has less of this network than this candidate has seen in it: an old copy of it."""

    def is_crowded(self, asking: Collection[str]) -> bool:
        """Return whether many subscribers are there and a new interest is likely to affect all of them.

        ``asking``: who has one. Never on one node.
        """
        record = self.record
        if record is None or record.behind or self.expected or len(self.interests) < CROWD or len(self.nodes) == 1:
            return False
        return bool(asking)

    def is_announced(self, plan: Plan) -> bool:
        """Return whether clients may know a plan."""
        return (plan.epoch, plan.version) <= self.announced


class Handle(Protocol):
    """Work that was begun and goes on beside what follows."""

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""

    def result(self) -> Any:
        """Return its answer; raises what it has raised."""


@dataclass(frozen=True, slots=True)
class Look:
    """Renew the lease and read the control store. Answer: `Seen`, or None while another candidate leads.

    What is written in this turn does not follow from what is seen: if the state was written by others, it is refused.
    """


@dataclass(frozen=True, slots=True)
class Keep:
    """Renew the lease. Answer: False if another candidate leads, or led since it expired."""


@dataclass(frozen=True, slots=True)
class Write:
    """Write a record, under the lease and only if others wrote nothing since the turn began. Answer: whether it was.

    ``save``: keep it; ``announce``: tell clients a plan that all nodes know, once; ``settle``: both in one step, where
    the nodes have nothing to do; ``grant``: both in one step, while a transition goes on; ``found``: announce a plan
    that lists no region, and grant joins in place from now on.
    """

    how: Literal["save", "announce", "settle", "grant", "found"]
    record: Record


@dataclass(frozen=True, slots=True)
class BeginToPlan:
    """From now on, grant no join without a plan. Answer: what each connection wants, None without the lease."""


@dataclass(frozen=True, slots=True)
class ReadExpected:
    """Answer: the declared overlaps, a frozen set of `Pair`."""


@dataclass(frozen=True, slots=True)
class ReadProposal:
    """Answer: the id of the plan that is proposed, and the plan; None if there is none. Raises `PlanError`."""


@dataclass(frozen=True, slots=True)
class AnswerProposal:
    """Answer a proposal, if it is still the one; empty: the network goes over to it."""

    proposal: str
    answer: str


@dataclass(frozen=True, slots=True)
class ReadRuns:
    """Answer: the last run of each node that was noted."""


@dataclass(frozen=True, slots=True)
class NoteRuns:
    """Keep the runs of some nodes for the next leader. Answer: False if the lease is lost."""

    runs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ReadIncarnations:
    """Answer: the last incarnation, and the names of all open connections, both of the same moment."""


@dataclass(frozen=True, slots=True)
class AskRuns:
    """Ask nodes which run their servers are in. Answer: `Runs`."""

    nodes: Mapping[str, str]


class Runs(NamedTuple):
    """The runs of nodes that answered, and which of these are empty: they know no plan, or somebody deleted it.

    ``installed``: of the newest plan that each of the others knows: the first epoch of its network, 0 if that is
    unknown, epoch and version.
    """

    of: Mapping[str, str]
    emptied: AbstractSet[str] = frozenset()
    installed: Mapping[str, tuple[int, int, int]] = {}


@dataclass(frozen=True, slots=True)
class Perform:
    """Carry out tasks at their nodes, at once; not at a node that is in another run than the plan names. Answer: a list
    with what each answered, False where it did not."""

    tasks: tuple[Task | BeginAny | BeginNoMore, ...]
    plan: Plan


@dataclass(frozen=True, slots=True)
class ForgetPublishers:
    """Have each node remove publishers of incarnations up to ``upto``, but for the living names."""

    plan: Plan
    upto: int
    living: AbstractSet[str]


@dataclass(frozen=True, slots=True)
class Compute:
    """Call a function that may take long. Answer: what it returns; raises what it raises."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Tell:
    """Log something for operators; ``arguments``: of the text, as `logging` takes them."""

    text: str
    arguments: tuple[object, ...] = ()
    is_warning: bool = True


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin work that goes on beside what follows. Answer: its `Handle`."""

    work: Errand | Steps[Any]


@dataclass(frozen=True, slots=True)
class Until:
    """Wait until one of some works has ended, a request has come after ``asked``, or some time has passed, whichever is
    first. Answer: False if it was one of the works."""

    works: tuple[Handle, ...] = ()
    seconds: float | None = None
    asked: str | None = None


@dataclass(frozen=True, slots=True)
class BreakOff:
    """End a work, wherever it is, and wait until it has ended."""

    work: Handle


Errand = (
    Look
    | Keep
    | Write
    | BeginToPlan
    | ReadExpected
    | ReadProposal
    | AnswerProposal
    | ReadRuns
    | NoteRuns
    | ReadIncarnations
    | AskRuns
    | Perform
    | ForgetPublishers
    | Compute
    | Tell
    | Begin
    | Until
    | BreakOff
)

Steps = Generator[Errand, Any, T]
"""A part of a leader's work: yields errands, is sent their answers, and returns a result."""


class Planning(Protocol):
    """The planner, with what only a leader that plans needs: loaded when it is needed first."""

    def following(
        self,
        record: Record,
        changes: Any,
        interests: Mapping[str, Interest],
        *,
        nodes: Mapping[str, str],
        announced: bool,
        away: Any,
    ) -> Record:
        """Return the next record, which makes these changes; see `sequencing.manager.following_record`."""

    def proposed_record(
        self,
        record: Record,
        proposed: Plan,
        interests: Mapping[str, Interest],
        *,
        nodes: Mapping[str, str],
        there: AbstractSet[str],
        away: Any,
    ) -> Record | None:
        """Return the record that goes over to a proposed plan; see `sequencing.manager.proposed_record`."""
