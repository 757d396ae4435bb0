"""All protocols by name, and how to make the processes of one."""

from __future__ import annotations

from classic.protocols.arrow import Arrow
from classic.protocols.arrow_combining import ArrowCombining
from classic.protocols.arrow_counting import ArrowCounting
from classic.protocols.arrow_gaps import ArrowGaps
from classic.protocols.arrow_joining import ArrowJoining
from classic.protocols.causal_total import CausalTotal
from classic.protocols.central import Central
from classic.protocols.chang_maxemchuk import ChangMaxemchuk
from classic.protocols.combining import Combining
from classic.protocols.combining_counting import CombiningCounting
from classic.protocols.combining_joining import CombiningJoining
from classic.protocols.fifo import Fifo
from classic.protocols.fifo_total import FifoTotal
from classic.protocols.kshemkalyani_singhal import KshemkalyaniSinghal
from classic.protocols.lamport import Lamport
from classic.protocols.newtop_asymmetric import NewtopAsymmetric
from classic.protocols.newtop_symmetric import NewtopSymmetric
from classic.protocols.process import Guarantee, Process
from classic.protocols.propagation_regrouping import PropagationRegrouping
from classic.protocols.propagation_tree import PropagationTree
from classic.protocols.raynal_schiper_toueg import RaynalSchiperToueg
from classic.protocols.rendezvous import Rendezvous
from classic.protocols.resending import Resending
from classic.protocols.sequencer import Sequencer
from classic.protocols.setup import Setup
from classic.protocols.three_phase import OverlappingThreePhase, ThreePhase
from classic.protocols.token_on_demand import TokenOnDemand
from classic.protocols.token_ring import TokenRing
from classic.protocols.two_phase import TwoPhase
from classic.protocols.vector_clocks import VectorClocks
from classic.protocols.view_synchronous_total import ViewSynchronousTotal
from classic.protocols.viewstamped import Viewstamped
from classic.protocols.virtual_synchrony import VirtualSynchrony
from sequencing.errors import UsageError

PROTOCOLS: dict[str, type[Process]] = {
    "fifo": Fifo,
    "vector-clocks": VectorClocks,
    "raynal-schiper-toueg": RaynalSchiperToueg,
    "kshemkalyani-singhal": KshemkalyaniSinghal,
    "central": Central,
    "sequencer": Sequencer,
    "newtop-asymmetric": NewtopAsymmetric,
    "isis": ThreePhase,
    "isis-overlapping": OverlappingThreePhase,
    "two-phase": TwoPhase,
    "lamport": Lamport,
    "newtop-symmetric": NewtopSymmetric,
    "token-ring": TokenRing,
    "token-on-demand": TokenOnDemand,
    "chang-maxemchuk": ChangMaxemchuk,
    "propagation-tree": PropagationTree,
    "propagation-regrouping": PropagationRegrouping,
    "arrow": Arrow,
    "combining": Combining,
    "arrow-combining": ArrowCombining,
    "arrow-counting": ArrowCounting,
    "combining-counting": CombiningCounting,
    "arrow-gaps": ArrowGaps,
    "arrow-joining": ArrowJoining,
    "combining-joining": CombiningJoining,
    "rendezvous": Rendezvous,
    "resending": Resending,
    "virtual-synchrony": VirtualSynchrony,
    "view-synchronous-total": ViewSynchronousTotal,
    "viewstamped": Viewstamped,
    "fifo-total": FifoTotal,
    "causal-total": CausalTotal,
}


def find_protocol(name: str) -> type[Process]:
    """Return the protocol of a name; raises `UsageError` that lists the names."""
    try:
        return PROTOCOLS[name]
    except KeyError:
        raise UsageError(f"there is no protocol {name!r}; there are {', '.join(PROTOCOLS)}") from None


def make_processes(protocol: type[Process], setup: Setup) -> dict[str, Process]:
    """Return a process for each of the set-up; raises `UsageError` where it breaks what the protocol assumes.

    `Process.start` is still to be called on each.
    """
    require_fit(protocol, setup)
    return {name: protocol(name, setup) for name in setup.processes}


def require_fit(protocol: type[Process], setup: Setup) -> None:
    """Raise `UsageError` where a set-up breaks what a protocol assumes; it names the protocols that would fit."""
    try:
        setup.require(protocol.assumes, title=protocol.title)
    except UsageError as error:
        raise UsageError(f"{error}. {_instead(protocol, setup)}") from None


ORDERS = (Guarantee.TOTAL, Guarantee.CAUSAL, Guarantee.FIFO, Guarantee.AGREEMENT)
"""Guarantees from the strongest on: the order in which to suggest a replacement for a protocol that does not fit."""


def _instead(protocol: type[Process], setup: Setup) -> str:
    """Say which protocols fit a set-up, those with all that a protocol promises first."""
    fitting = {name: other for name, other in PROTOCOLS.items() if not setup.broken(other.assumes)}
    same = [name for name, other in fitting.items() if other.guarantees >= protocol.guarantees]
    said = [f"{', '.join(same)} promise{'s' * (len(same) == 1)} as much and would fit"] if same else []
    order = next((order for order in ORDERS if order in protocol.guarantees), None)
    rest = [name for name, other in fitting.items() if order in other.guarantees and name not in same]
    if order is not None and rest:
        what = "agreement" if order is Guarantee.AGREEMENT else f"{order} order"
        said.append(f"{', '.join(rest)} would fit, too, for {what} alone" if same else f"For {what}: {', '.join(rest)}")
    less = [f"{name} ({_strongest(other)})" for name, other in fitting.items()]
    nobody = f"None that promises {order} order fits" if order else "None that promises as much fits"
    return "; ".join(said or [nobody + (f"; with less: {', '.join(less)}" if less else ", nor any other")])


def _strongest(protocol: type[Process]) -> str:
    return next((order.value for order in ORDERS if order in protocol.guarantees), "no order")
