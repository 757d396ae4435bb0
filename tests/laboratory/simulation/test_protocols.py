"""The classic protocols in adversarial worlds: what they declare holds, what they do not declare does not, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from classic.executions.guarantees import violations
from classic.executions.record import Kind
from classic.executions.stays import stays
from classic.protocols import kshemkalyani_singhal as ks
from classic.protocols import propagation_regrouping as pr
from classic.protocols import virtual_synchrony as vs
from classic.protocols.arrow import Arrow
from classic.protocols.arrow_gaps import ArrowGaps
from classic.protocols.arrow_joining import ArrowJoining
from classic.protocols.catalogue import PROTOCOLS, make_processes
from classic.protocols.combining_joining import CombiningJoining
from classic.protocols.fifo import Fifo
from classic.protocols.lamport import Lamport
from classic.protocols.numbered import Data as FifoData
from classic.protocols.process import Effect, Gap, Guarantee, Message, Process, Scheduled
from classic.protocols.propagation_tree import Down, PropagationTree
from classic.protocols.raynal_schiper_toueg import Data as MatrixData
from classic.protocols.raynal_schiper_toueg import RaynalSchiperToueg
from classic.protocols.rendezvous import Data as Asked
from classic.protocols.rendezvous import Rendezvous
from classic.protocols.resending import Data as Resent
from classic.protocols.resending import Resending
from classic.protocols.sequencer import Data as Unnumbered
from classic.protocols.sequencer import Sequencer
from classic.protocols.setup import Assumption, Setup
from classic.protocols.swap import Follows
from classic.protocols.three_phase import Final, ThreePhase
from classic.protocols.tree_members import Gone, Join, Lock, Welcome
from classic.protocols.two_phase import TwoPhase
from classic.protocols.vector_clocks import Data as VectorData
from classic.protocols.vector_clocks import VectorClocks
from classic.protocols.view_synchronous_total import Place, ViewSynchronousTotal
from classic.protocols.viewstamped import Has, Lead, Moved, Promise, Viewstamped
from classic.protocols.virtual_synchrony import VirtualSynchrony
from classic.stepping import Stepper
from laboratory.protocols.run import judge_protocol, nearest_wrong_claim, refute
from sequencing.checkers import DeliverySequence, History, judge
from sequencing.errors import UsageError

SEEDS = 40
REFUTED_WITHIN = 200


def seeds_that_break(protocol: type[Process], guarantee: Guarantee, *, seeds: int = REFUTED_WITHIN) -> list[int]:
    """The first seed that breaks a guarantee, in a list; an empty one if none does."""
    return [seed for seed, _ in [next(refute(protocol, guarantee, seeds=seeds), (None, None))] if seed is not None]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_declared_guarantee_holds_in_adversarial_worlds(name: str) -> None:
    for seed in range(SEEDS):
        outcome = judge_protocol(PROTOCOLS[name], seed)
        assert outcome.violations == (), f"gamecast lab simulate protocols --protocol {name} --seed {seed}"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_nearest_guarantee_that_is_not_declared_is_refuted_within_200_seeds(name: str) -> None:
    claim = nearest_wrong_claim(PROTOCOLS[name])
    if claim is None:
        assert Guarantee.SYNCHRONOUS in PROTOCOLS[name].guarantees, "there is nothing above it"
    else:
        assert seeds_that_break(PROTOCOLS[name], claim)


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        *(
            (name, Guarantee.CAUSAL)
            for name in ("fifo", "sequencer", "two-phase", "isis-overlapping", "chang-maxemchuk")
        ),
        *((name, Guarantee.TOTAL) for name in ("fifo", "vector-clocks", "raynal-schiper-toueg", "resending")),
        ("kshemkalyani-singhal", Guarantee.TOTAL),
        ("virtual-synchrony", Guarantee.UNIFORM_AGREEMENT),
        *(("view-synchronous-total", g) for g in (Guarantee.UNIFORM_AGREEMENT, Guarantee.CAUSAL)),
        ("arrow-gaps", Guarantee.AGREEMENT),
    ],
)
def test_a_deliberately_wrong_guarantee_is_refuted_within_200_seeds(name: str, claim: Guarantee) -> None:
    assert claim not in PROTOCOLS[name].guarantees
    assert seeds_that_break(PROTOCOLS[name], claim)


FIFO_IS_NEEDED = (
    *("central", "isis", "lamport", "newtop-symmetric", "newtop-asymmetric", "propagation-tree", "combining"),
    *("arrow-combining", "combining-counting", "virtual-synchrony", "arrow-joining", "combining-joining"),
    *("view-synchronous-total", "viewstamped"),
)


@pytest.mark.parametrize("name", FIFO_IS_NEEDED)
def test_who_assumes_fifo_links_breaks_without_them(name: str) -> None:
    runs = (judge_protocol(PROTOCOLS[name], seed, dropping=[Assumption.FIFO_LINKS]) for seed in range(REFUTED_WITHIN))
    assert any(run.violations for run in runs)


NO_CRASHES_ARE_NEEDED = [
    name
    for name, protocol in PROTOCOLS.items()
    # Total order with gaps is no longer live after a crash, but breaks no promise: it makes none of validity.
    if Assumption.NO_CRASHES in protocol.assumes and name != "arrow-gaps"
]


@pytest.mark.parametrize("name", NO_CRASHES_ARE_NEEDED)
def test_who_assumes_no_crashes_breaks_with_them(name: str) -> None:
    runs = (judge_protocol(PROTOCOLS[name], seed, dropping=[Assumption.NO_CRASHES]) for seed in range(REFUTED_WITHIN))
    assert any(run.violations for run in runs)


def test_a_log_that_a_majority_has_needs_one() -> None:
    runs = (judge_protocol(Viewstamped, seed, dropping=[Assumption.MAJORITY_STAYS]) for seed in range(REFUTED_WITHIN))
    found = {violation.guarantee for run in runs for violation in run.violations}
    stopped = {Guarantee.VALIDITY, Guarantee.AGREEMENT, Guarantee.UNIFORM_AGREEMENT}
    assert Guarantee.VALIDITY in found
    assert found <= stopped, "it stops, and gets nothing out of order"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_set_up_that_breaks_an_assumption_is_refused_with_its_name(name: str) -> None:
    everyone = ("a", "b", "c")
    hostile = Setup(
        everyone,
        {"g": ("a", "b"), "h": ("b", "c")},
        open_groups=True,
        fifo_links=False,
        lossy_links=True,
        crashes=True,
        crash_reports=False,
        majority_stays=False,
    )
    with pytest.raises(UsageError, match="assumes") as refused:
        make_processes(PROTOCOLS[name], hostile)
    for assumption in PROTOCOLS[name].assumes:
        assert str(assumption) in str(refused.value)


def test_a_stranger_to_a_closed_group_is_refused_politely() -> None:
    processes = make_processes(Lamport, Setup.of({"g": "ab"}, "abc"))
    with pytest.raises(UsageError, match="closed groups only"):
        processes["c"].publish(Message("m", "c", "g"))


def test_a_seed_gives_the_same_run_every_time() -> None:
    one, other = (judge_protocol(PROTOCOLS["virtual-synchrony"], 7) for _ in range(2))
    assert one.record == other.record


@pytest.mark.parametrize("name", ["resending", "two-phase", "fifo", "causal-total", "arrow"])
def test_the_checkers_of_recorded_sessions_agree_with_those_of_protocols(name: str) -> None:
    for seed in range(25):
        record = judge_protocol(PROTOCOLS[name], seed).record
        sequences = [
            DeliverySequence(
                process,
                messages,
                [record.messages[m].group for m in messages],
                [record.messages[m].sender for m in messages],
            )
            for process, messages in record.deliveries().items()
        ]
        verdict = judge(History.of(sequences))
        found = {v.guarantee for v in violations(record, [Guarantee.UNIFORM_TOTAL, Guarantee.ACYCLIC])}
        assert bool(verdict.inversions) == (Guarantee.UNIFORM_TOTAL in found)
        assert bool(verdict.cycles) == (Guarantee.ACYCLIC in found)


# Protocols broken on purpose, one for each guarantee: the checker that owns it must see it.


class Deaf(Fifo):
    """Never sends."""

    def on_publish(self, message: Message) -> None:
        pass


class Stuttering(Fifo):
    """Delivers everything twice."""

    def deliver(self, message: Message) -> None:
        super().deliver(message)
        super().deliver(message)


class Careless(Fifo):
    """Delivers what comes as it comes."""

    def on_receive(self, source: str, packet: object) -> None:
        assert isinstance(packet, FifoData)
        self.deliver(packet.message)


class ForgetfulClocks(VectorClocks):
    """NodeReads at the sender's own entry only."""

    def _is_next(self, data: VectorData) -> bool:
        sender = self.index[data.message.sender]
        return data.vector[sender] == self.delivered[sender] + 1


class ForgetfulMatrix(RaynalSchiperToueg):
    """Does not learn whom else a message went to."""

    def _learn(self, data: MatrixData) -> None:
        sender = self.index[data.message.sender]
        super()._learn(replace(data, message=replace(data.message, group="me")))
        self.sent[sender][self.me] = max(self.sent[sender][self.me], self.delivered[sender])

    def members(self, message: Message) -> tuple[str, ...]:
        return () if message.group == "me" else super().members(message)


class ForgetfulLogs(ks.KshemkalyaniSinghal):
    """Drops from a message what its destination itself must know (constraint II taken too far)."""

    def _log_for(self, destination: str, to: Iterable[str]) -> ks.Log:
        return ks.without_empty({key: dests - frozenset(to) for key, dests in self.log.items()})


class EverybodyNumbers(Sequencer):
    """Each member numbers for itself."""

    def on_receive(self, source: str, packet: object) -> None:
        if isinstance(packet, Unnumbered):
            self.deliver(packet.message)


class PrintedThreePhase(ThreePhase):
    """Algorithm 6.5 to the letter."""

    def on_receive(self, source: str, packet: object) -> None:
        priority = self.priority
        super().on_receive(source, packet)
        if isinstance(packet, Final):
            self.priority = priority


class PrintedPropagation(PropagationTree):
    """Algorithm 6.6 to the letter: whatever is its sender's next may pass what waits."""

    def on_receive(self, source: str, packet: object) -> None:
        if isinstance(packet, Down) and self.is_primary:
            self.from_senders.append(packet)
            self._take_in_order()
        else:
            super().on_receive(source, packet)


class HastyTwoPhase(TwoPhase):
    """Delivers what is committed without looking at what is not."""

    def _deliver_what_is_certain(self) -> None:
        for waiting in [w for w in self.waiting.values() if w.committed]:
            self.deliver(self.waiting.pop(waiting.message.id).message)


class HastyLamport(Lamport):
    """Waits for one member instead of all."""

    def on_receive(self, source: str, packet: object) -> None:
        super().on_receive(source, packet)
        while self.held and min(self.held)[0] <= max(self.heard.values()):
            self.deliver(self.held.pop(min(self.held)))


class LostArrows(Arrow):
    """Does not note its own message as the value."""

    def on_publish(self, message: Message) -> None:
        value = self.value
        super().on_publish(message)
        self.value = value


class SelfishResending(Resending):
    """Delivers its own messages before it sends them."""

    def on_publish(self, message: Message) -> None:
        if self.name in self.members(message):
            self.seen.add(message.id)
            self.deliver(message)
        self.send_all((m for m in self.members(message) if m != self.name), Resent(message))


class NeverResending(Resending):
    """The lecture's first cut."""

    def on_receive(self, source: str, packet: object) -> None:
        assert isinstance(packet, Resent)
        self.deliver(packet.message)


class SilentGaps(ArrowGaps):
    """Goes on without a word."""

    def effect(self, effect: Effect) -> None:
        if not isinstance(effect, Gap):
            super().effect(effect)


class RudeRendezvous(Rendezvous):
    """Sends without asking and without waiting."""

    def _try_to_send(self, message: Message) -> None:
        self.effect(Scheduled(message))
        self.send_all(self.members(message), Asked(message))

    def _take(self, source: str, packet: object) -> None:
        if isinstance(packet, Asked):
            self.deliver(packet.message)


class EmptyFlushes(VirtualSynchrony):
    """Tells the changes and not the messages."""

    def _flush(self) -> None:
        self.send_all(self.members_now, vs.Flush(self.view, self.members_now, *self._changes(), ()))


class HastyViews(VirtualSynchrony):
    """Installs the next view at the first suspicion."""

    def on_suspicion(self, process: str) -> None:
        if not self.halted and process in self.members_now:
            staying = tuple(m for m in self.members_now if m != process)
            self._install(vs.Decided(self.view + 1, staying, (), ()))


class OrderlessFlushes(ViewSynchronousTotal):
    """Tells the messages of a view, and not their order."""

    def order(self) -> tuple[tuple[str, int], ...]:
        return ()


class ShortestOrder(ViewSynchronousTotal):
    """Ends a view by its own order alone."""

    def _finish_flush(self) -> None:
        self.flushes = {m: f if m == self.name else replace(f, order=()) for m, f in self.flushes.items()}
        super()._finish_flush()


class FormerSequencers(ViewSynchronousTotal):
    """Takes the places of a sequencer that it has removed, and that has installed another view."""

    def on_receive(self, source: str, packet: object) -> None:
        if isinstance(packet, Place) and packet.view == self.view and self.members_now:
            source = self.members_now[0]
        super().on_receive(source, packet)


class AloneIsEnough(Viewstamped):
    """Delivers what its own log has."""

    def majority(self) -> int:
        return 1 if self.log_term == self.term else super().majority()


class OwnLogFirst(Viewstamped):
    """Leads with its own log."""

    def _lead(self) -> None:
        self.promises = {m: replace(p, log=tuple(self.log), log_term=0) for m, p in self.promises.items()}
        super()._lead()


class LongestLog(Viewstamped):
    """Leads with the longest log, of whatever term."""

    def _lead(self) -> None:
        self.promises = {m: replace(p, log_term=0) for m, p in self.promises.items()}
        super()._lead()


class OnlyNewMessages(Viewstamped):
    """Leads, and does not append what it received before."""

    def _lead(self) -> None:
        self.waiting.clear()
        super()._lead()


class Unfaithful(Viewstamped):
    """Goes back to a leader that it has promised to leave."""

    def on_receive(self, source: str, packet: object) -> None:
        if isinstance(packet, Lead) and packet.term < self.term:
            self._adopt(packet.term, packet.log)
        super().on_receive(source, packet)


class Secretive(Viewstamped):
    """Does not ask the others to follow."""

    def send(self, to: str, packet: object, *, lossy: bool = False) -> None:
        if not isinstance(packet, Moved):
            super().send(to, packet, lossy=lossy)


class Loyal(Viewstamped):
    """Follows the others to a leader that it suspects, and stays with it."""

    def on_alarm(self, alarm: str) -> None:
        pass


class Fickle(Viewstamped):
    """Leaves each term of a suspect at once; if each member is suspected by one, terms pass on for ever."""

    def _watch_a_suspect(self) -> None:
        self.suspected = dict.fromkeys(self.suspected, 0.0)
        super()._watch_a_suspect()


class Boastful(Viewstamped):
    """Says that its log has what it has not."""

    def send(self, to: str, packet: object, *, lossy: bool = False) -> None:
        super().send(to, replace(packet, length=packet.length + 1) if isinstance(packet, Has) else packet, lossy=lossy)


class Recanting(Viewstamped):
    """Promises, and says that its log is of no term."""

    def send(self, to: str, packet: object, *, lossy: bool = False) -> None:
        super().send(to, replace(packet, log=()) if isinstance(packet, Promise) else packet, lossy=lossy)


MUTANTS = [
    (Deaf, Guarantee.VALIDITY),
    (Stuttering, Guarantee.INTEGRITY),
    (Careless, Guarantee.FIFO),
    (ForgetfulClocks, Guarantee.CAUSAL),
    (ForgetfulMatrix, Guarantee.CAUSAL),
    (ForgetfulLogs, Guarantee.CAUSAL),
    (EverybodyNumbers, Guarantee.TOTAL),
    (PrintedThreePhase, Guarantee.TOTAL),
    (HastyTwoPhase, Guarantee.TOTAL),
    (HastyTwoPhase, Guarantee.ACYCLIC),
    (HastyLamport, Guarantee.TOTAL),
    (LostArrows, Guarantee.VALIDITY),
    (NeverResending, Guarantee.AGREEMENT),
    (SelfishResending, Guarantee.UNIFORM_AGREEMENT),
    (SilentGaps, Guarantee.GAPS),
    (RudeRendezvous, Guarantee.SYNCHRONOUS),
    (EmptyFlushes, Guarantee.VIEW_SYNCHRONY),
    (HastyViews, Guarantee.VIEWS),
    (OrderlessFlushes, Guarantee.TOTAL),
    (ShortestOrder, Guarantee.TOTAL),
    (AloneIsEnough, Guarantee.UNIFORM_AGREEMENT),
    (OwnLogFirst, Guarantee.TOTAL),
    (OnlyNewMessages, Guarantee.VALIDITY),
    (Recanting, Guarantee.AGREEMENT),
]


@pytest.mark.parametrize(("mutant", "guarantee"), MUTANTS)
def test_a_protocol_broken_on_purpose_is_caught(mutant: type[Process], guarantee: Guarantee) -> None:
    assert guarantee in mutant.guarantees
    assert seeds_that_break(mutant, guarantee)


@pytest.mark.parametrize("name", ["arrow-joining", "combining-joining"])
def test_members_of_a_tree_deliver_all_of_the_common_order_while_they_stay_and_may_come_back(name: str) -> None:
    came_back = founders_left = 0
    for seed in range(300):
        record = judge_protocol(PROTOCOLS[name], seed).record
        orders = record.deliveries()
        # Any process that stays delivers the last message of all, and the chain up to it.
        chain = list(dict.fromkeys(m for order in sorted(orders.values(), key=len, reverse=True) for m in order))
        for process, of_one in stays(record).items():
            came_back += len(of_one) > 1
            founders_left += bool(of_one and of_one[0].start < 0 and of_one[0].end)
            if of_one and of_one[0].start < 0 and of_one[0].end is None:
                assert set(orders[process]) == set(chain), f"seed {seed}"
            for stay in of_one:
                events = record.events[max(stay.start, 0) : stay.end]
                mine = [e.message for e in events if e.process == process and e.kind is Kind.RECEIVE]
                for other in orders.values():
                    if mine and mine[0] in other and mine[-1] in other and set(chain) == set(other):
                        assert mine == other[other.index(mine[0]) :][: len(mine)], f"seed {seed}"
    assert (came_back > 100, founders_left > 100) == (True, True)


class UnlockedArrows(ArrowJoining):
    """Leaves without asking."""

    def _go_on_leaving(self) -> None:
        self.agreed.update(self.neighbours)
        super()._go_on_leaving()


class SelfishHeirs(ArrowJoining):
    """Forgets what it kept back for who has left."""

    def _inherit(self, process: str, gone: Gone, kept_back: list[object]) -> None:
        super()._inherit(process, gone, [packet for packet in kept_back if not isinstance(packet, Follows)])


class SilentHosts(CombiningJoining):
    """Welcomes without what it holds."""

    def send(self, to: str, packet: object, *, lossy: bool = False) -> None:
        super().send(to, replace(packet, held=()) if isinstance(packet, Welcome) else packet, lossy=lossy)


class DroppedRuns(CombiningJoining):
    """Leaves with the run that waits."""

    def before_leaving(self) -> None:
        pass


class ForgottenJoins(ArrowJoining):
    """Drops a join when it has left, as all did once."""

    def on_receive(self, source: str, packet: object) -> None:
        if self.link or not isinstance(packet, Join):
            super().on_receive(source, packet)


class Impatient(ArrowJoining):
    """Leaves while its own messages are in flight; when it comes back the next may overtake them."""

    def _go_on_leaving(self) -> None:
        self.unheard = 0
        super()._go_on_leaving()


class Overwhelmed(CombiningJoining):
    """Comes back before its former neighbours know that it has left."""

    def _return(self) -> None:
        self.former = ()
        super()._return()


class Repeating(CombiningJoining):
    """Comes back, and forgets what it has delivered."""

    def _enter(self, host: str, welcome: Welcome) -> None:
        self.delivered = 0
        super()._enter(host, welcome)


class Polite(CombiningJoining):
    """Lets no neighbour go first that has not begun to leave, and waits for its own messages meanwhile."""

    def on_receive(self, source: str, packet: object) -> None:
        if not (isinstance(packet, Lock) and self.leaving and self.name < source):
            super().on_receive(source, packet)


TREE_MUTANTS = [UnlockedArrows, SelfishHeirs, DroppedRuns, SilentHosts, ForgottenJoins, Impatient, Polite, Repeating]


@pytest.mark.parametrize("mutant", [*TREE_MUTANTS, Overwhelmed])
def test_joining_and_leaving_a_tree_carelessly_breaks_promises(mutant: type[Process]) -> None:
    assert breaks_within(mutant, 1000)


class Stranding(VirtualSynchrony):
    """Waits for the reports of crashed members, as all did once."""

    def _is_out_of_reach(self, source: str, offer: vs.Decided) -> bool:
        return False


class Gullible(VirtualSynchrony):
    """Takes decisions of processes that are no members of its view."""

    def on_receive(self, source: str, packet: object) -> None:
        if isinstance(packet, vs.Decided) and self.view and packet.view == self.view + 1 and not self.halted:
            self._install(packet)
        else:
            super().on_receive(source, packet)


class Trusting(VirtualSynchrony):
    """Installs the first view that any member offers."""

    def _accept_offer(self) -> None:
        if self.view == 0 and self.offers:
            self._install(next(iter(self.offers.values())))


class Unwelcoming(VirtualSynchrony):
    """Does not report its decisions to those that join."""

    def send(self, to: str, packet: object, *, lossy: bool = False) -> None:
        if not (isinstance(packet, vs.Decided) and to in packet.joining):
            super().send(to, packet, lossy=lossy)


@pytest.mark.parametrize(("mutant", "seeds"), [(Stranding, 1000), (Unwelcoming, 200)])
def test_views_that_joiners_enter_carelessly_break_promises(mutant: type[Process], seeds: int) -> None:
    assert breaks_within(mutant, seeds)


def first_views_of_a_joiner(protocol: type[VirtualSynchrony]) -> list[tuple[str, ...]]:
    """c decides, tells d and crashes, a decides otherwise; return the views of d."""
    stepper = Stepper(protocol, Setup(("a", "c", "d"), {"all": ("a", "c")}, open_groups=True, crashes=True))
    joining = stepper.processes["d"]
    assert isinstance(joining, VirtualSynchrony)
    stepper.carry_out("d", joining.join())
    for member in "ac":
        stepper.receive(member, "d")
    stepper.receive("c", "a")
    stepper.receive("d", "c")
    stepper.crash("c")
    for process in "ad":
        stepper.suspect(process, "c")
    stepper.settle()
    return [e.members for e in stepper.record.events if e.process == "d" and e.kind is Kind.VIEW]


def test_a_joiner_takes_no_members_word_alone() -> None:
    assert first_views_of_a_joiner(VirtualSynchrony) == [("a", "d")]
    assert first_views_of_a_joiner(Trusting)[0] == ("a", "c", "d")


class Forgetting(VirtualSynchrony):
    """Takes a decision that follows another view than its own, as all did once."""

    def on_receive(self, source: str, packet: object) -> None:
        if isinstance(packet, vs.Decided) and packet.view == self.view + 1:
            packet = replace(packet, before=self.members_now)
        super().on_receive(source, packet)


def two_second_views(protocol: type[VirtualSynchrony]) -> dict[str, list[tuple[str, ...]]]:
    """a and c crash, and gave d and e different second views; return the views that those two install.

    Under ``gone``: who gave up.
    """
    everyone = ("a", "c", "d", "e")
    stepper = Stepper(protocol, Setup(everyone, {"all": ("a", "c")}, open_groups=True, crashes=True))
    for joiner in "de":
        joining = stepper.processes[joiner]
        assert isinstance(joining, VirtualSynchrony)
        stepper.carry_out(joiner, joining.join())
    for member in "ac":
        stepper.receive(member, "d")
    stepper.receive("c", "a")  # c has all Flushes, and installs a, c, d
    stepper.receive("d", "c")
    stepper.receive("a", "e")
    stepper.suspect("a", "c")  # a installs a, d, e
    stepper.receive("e", "d")  # the wish to join
    stepper.receive("e", "a")
    stepper.suspect("d", "a")  # d trusts c, of whose crash it has not heard
    stepper.receive("d", "e")  # the wish to join
    stepper.suspect("d", "c")  # d installs a third view: d, e
    stepper.receive("e", "d")
    stepper.transit = [p for p in stepper.transit if {p.source, p.to} == {"d", "e"}]
    stepper.settle()
    events = stepper.record.events
    views = {name: [e.members for e in events if e.process == name and e.kind is Kind.VIEW] for name in "de"}
    return views | {"gone": [tuple(sorted(stepper.record.faulty & {"d", "e"}))]}


def test_no_view_follows_another_than_ones_own() -> None:
    right = two_second_views(VirtualSynchrony)
    assert right["d"][0] == ("a", "c", "d")
    assert (right["e"], right["gone"]) == ([("a", "d", "e")], [("e",)])
    for careless in (Forgetting, Gullible):
        assert two_second_views(careless)["e"][1:], "it goes on in a view that it has not come to"


def test_of_two_with_different_views_one_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VirtualSynchrony, "_differ", lambda *_: None)
    assert two_second_views(VirtualSynchrony)["gone"] == [()], "e waits for d, and d for e"


@pytest.mark.parametrize(
    ("mutant", "seeds"),
    [(FormerSequencers, 300), (Secretive, 200), (Fickle, 200), (Unfaithful, 1500), (Boastful, 1500)],
)
def test_total_orders_that_survive_crashes_carelessly_break_promises(mutant: type[Process], seeds: int) -> None:
    assert breaks_within(mutant, seeds)


def brought_to_a_dead_leader(protocol: type[Viewstamped]) -> list[list[str]]:
    """b has crashed, and a, c and d have left a term of it; e does not know, asks them for b's next term, and crashes.

    Returns what those who are left deliver of a message that is published then.
    """
    stepper = Stepper(protocol, Setup(tuple("abcde"), {"all": tuple("abcde")}, crashes=True))
    stepper.suspect("d", "a")
    stepper.settle()
    stepper.crash("b")
    for process in "acd":
        stepper.suspect(process, "b")
    stepper.settle()
    for other in "cde":
        stepper.suspect("a", other)
        stepper.settle()
    stepper.suspect("e", "a")
    for process in "acd":
        stepper.receive(process, "e")
    stepper.crash("e")
    for process in "acd":
        stepper.suspect(process, "e")
    stepper.publish("c", message_id="m")
    stepper.settle(alarms=True)
    return [stepper.delivered(process) for process in "acd"]


def test_a_suspected_leader_that_is_silent_is_left_also_for_the_second_time() -> None:
    assert brought_to_a_dead_leader(Viewstamped) == [["m"]] * 3
    assert brought_to_a_dead_leader(Loyal) == [[]] * 3


def two_changes_of_leader(protocol: type[Viewstamped]) -> dict[str, list[str]]:
    """Return what each delivered: a appends two that reach no other, b leads and has one delivered, then c leads."""
    stepper = Stepper(protocol, Setup(tuple("abcde"), {"all": tuple("abcde")}, crashes=True))

    def settle_without(cut_off: str) -> None:
        while stepper.transit:
            packet = stepper.transit[0]
            if packet.source in cut_off or packet.to in cut_off:
                stepper.transit.remove(packet)
            else:
                stepper.advance()

    for message in ("lost 1", "lost 2"):
        stepper.publish("a", message_id=message)
    for process in "bcd":
        stepper.suspect(process, "a")
    settle_without("a")
    stepper.publish("b", message_id="kept")
    settle_without("ae")
    assert stepper.delivered("b") == stepper.delivered("c") == ["kept"]
    stepper.crash("b")
    for process in "cad":
        stepper.suspect(process, "b")
    settle_without("e")
    return {process: stepper.delivered(process) for process in "acd"}


def test_a_new_leader_takes_the_log_of_the_latest_term_and_not_the_longest() -> None:
    right, wrong = two_changes_of_leader(Viewstamped), two_changes_of_leader(LongestLog)
    assert right["a"] == right["c"] == right["d"] == ["kept"]
    assert wrong["a"][0] == "lost 1"


class HastyEpochs(pr.PropagationRegrouping):
    """Switches epochs without having delivered what was sent."""

    def on_receive(self, source: str, packet: object) -> None:
        super().on_receive(source, pr.Closed(packet.epoch, ()) if isinstance(packet, pr.Closed) else packet)


class BusyRegistrar(pr.PropagationRegrouping):
    """Drops requests while processes switch."""

    def on_receive(self, source: str, packet: object) -> None:
        if not (isinstance(packet, pr.Interest) and self.switching):
            super().on_receive(source, packet)


class Punctual(pr.PropagationRegrouping):
    """Drops what comes from the next epoch."""

    def on_receive(self, source: str, packet: object) -> None:
        if not (isinstance(packet, pr.DownIn | pr.HandIn) and packet.epoch > self.epoch):
            super().on_receive(source, packet)


class Restless(pr.PropagationRegrouping):
    """Publishes in the old epoch after it has said how much it sent."""

    def on_publish(self, message: Message) -> None:
        announced, self.next = self.next, None
        super().on_publish(message)
        self.next = announced


@pytest.mark.parametrize("mutant", [HastyEpochs, BusyRegistrar, Punctual, Restless])
def test_groups_that_change_carelessly_break_promises(mutant: type[Process]) -> None:
    assert breaks_within(mutant, REFUTED_WITHIN)


def breaks_within(mutant: type[Process], seeds: int) -> bool:
    """Whether a run breaks a promise, or one of the protocol's own assertions."""

    def breaks(seed: int) -> bool:
        try:
            return bool(judge_protocol(mutant, seed).violations)
        except (AssertionError, KeyError, ValueError):
            return True

    return any(breaks(seed) for seed in range(seeds))


def test_delivering_before_sending_on_breaks_only_the_uniform_flavour() -> None:
    assert not seeds_that_break(SelfishResending, Guarantee.AGREEMENT)


def test_algorithm_6_6_as_printed_breaks_total_order_and_the_mended_one_does_not() -> None:
    assert seeds_that_break(PrintedPropagation, Guarantee.TOTAL, seeds=2000)
    assert not seeds_that_break(PropagationTree, Guarantee.TOTAL, seeds=600)
