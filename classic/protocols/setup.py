"""The participants, their links, and the assumptions of protocols: a set-up that would break one is refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sequencing.errors import UsageError


class Assumption(StrEnum):
    """An assumption of a source; `Setup.require` refuses a set-up where it does not hold."""

    NO_CRASHES = "no process crashes"
    CRASHES_REPORTED = "every crash is reported to every correct process"
    MAJORITY_STAYS = "more than half of each group's members do not crash"
    RELIABLE_LINKS = "no packet is lost"
    FIFO_LINKS = "links are FIFO"
    CLOSED_GROUPS = "senders are members of the groups that they publish to"
    ONE_GROUP = "there is one group"
    BROADCAST = "every message is for all processes"
    ONE_TO_ONE = "every message is for one other process"
    SPANNING_TREE = "a tree connects all processes"


NO_FAULTS = frozenset({Assumption.NO_CRASHES, Assumption.RELIABLE_LINKS})


@dataclass(frozen=True, slots=True)
class Setup:
    """The processes (their order is a ring's, and the first has the highest priority), the groups, and the links.

    ``tree``: edges between processes, for the protocols that need one. ``open_groups``: that processes publish to
    groups that they are not members of. The last six describe what the world may do; `require` checks them.
    """

    processes: tuple[str, ...]
    groups: Mapping[str, tuple[str, ...]]
    tree: tuple[tuple[str, str], ...] = ()
    open_groups: bool = False
    fifo_links: bool = True
    lossy_links: bool = False
    crashes: bool = False
    crash_reports: bool = True
    majority_stays: bool = True

    def __post_init__(self) -> None:
        if len(set(self.processes)) != len(self.processes):
            raise UsageError(f"processes have different names: {', '.join(self.processes)}")
        for group, members in self.groups.items():
            strangers = set(members) - set(self.processes)
            if strangers:
                raise UsageError(f"group {group} has members that are no processes: {', '.join(sorted(strangers))}")

    @classmethod
    def of(cls, groups: Mapping[str, Iterable[str]], processes: Iterable[str] = ()) -> Setup:
        """Make a set-up of groups; the processes are, if not given, all members in the order of their names."""
        everyone = tuple(processes) or tuple(sorted({p for members in groups.values() for p in members}))
        return cls(everyone, {group: tuple(p for p in everyone if p in set(m)) for group, m in groups.items()})

    @classmethod
    def broadcast(cls, processes: Iterable[str]) -> Setup:
        """Make a set-up of one group, ``all``."""
        everyone = tuple(processes)
        return cls(everyone, {"all": everyone})

    def members(self, group: str) -> tuple[str, ...]:
        """Return the members of a group; raises `UsageError` if there is none of this name."""
        try:
            return self.groups[group]
        except KeyError:
            raise UsageError(f"there is no group {group!r}: there are {', '.join(self.groups)}") from None

    def groups_of(self, process: str) -> tuple[str, ...]:
        """Return the groups that a process is a member of."""
        return tuple(group for group, members in self.groups.items() if process in members)

    def require(self, assumptions: Iterable[Assumption], *, title: str) -> None:
        """Raise `UsageError`, naming every assumption that does not hold here."""
        broken = self.broken(assumptions)
        if broken:
            raise UsageError(
                f"{title} cannot keep its promises here, because it assumes that {'; that '.join(broken)}: change the "
                "set-up, or take a protocol that does without"
            )

    def broken(self, assumptions: Iterable[Assumption]) -> list[Assumption]:
        """Return those of some assumptions that do not hold here, sorted."""
        return [assumption for assumption in sorted(assumptions) if not self._holds(assumption)]

    def _holds(self, assumption: Assumption) -> bool:
        groups = list(self.groups.values())
        match assumption:
            case Assumption.NO_CRASHES:
                return not self.crashes
            case Assumption.RELIABLE_LINKS:
                return not self.lossy_links
            case Assumption.CRASHES_REPORTED:
                return self.crash_reports or not self.crashes
            case Assumption.MAJORITY_STAYS:
                return self.majority_stays or not self.crashes
            case Assumption.FIFO_LINKS:
                return self.fifo_links
            case Assumption.CLOSED_GROUPS:
                return not self.open_groups
            case Assumption.ONE_GROUP:
                return len(groups) == 1
            case Assumption.BROADCAST:
                return all(set(members) == set(self.processes) for members in groups)
            case Assumption.ONE_TO_ONE:
                return all(len(members) == 1 for members in groups)
            case Assumption.SPANNING_TREE:
                return self._tree_spans()

    def _tree_spans(self) -> bool:
        reached = {self.processes[0]}
        edges = set(self.tree)
        while touching := {edge for edge in edges if reached & set(edge)}:
            reached.update(process for edge in touching for process in edge)
            edges -= touching
        return reached == set(self.processes) and len(self.tree) == len(self.processes) - 1
