"""The outbox of one region: the same frame again until its fate is known, and whether that is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sequencing.errors import OutOfMemory, PublishUncertain
from sequencing.frames import FrameKind, PublishedFrame, decode_body
from sequencing.outbox import FATES, Fate, OpenFrame, Outbox
from sequencing.states import IllegalTransition


def outbox(*events: str, node: str = "n1", epoch: int = 3) -> Outbox[str]:
    found: Outbox[str] = Outbox("a", 7, node, epoch)
    for event in events:
        found.frames.append(OpenFrame(True, payloads=[event.encode()], sent_at_ns=[5], tokens=[event]))
    return found


def sent(*, node: str = "n1") -> tuple[Outbox[str], PublishedFrame]:
    found = outbox("one", node=node)
    return found, found.send("p")


def test_a_frame_has_the_numbers_of_its_region_and_connection() -> None:
    found = outbox("one")
    found.next = 4
    frame = found.send("p")
    assert frame == PublishedFrame("a", 3, "p", 7, 4, 1, frame.body, FrameKind.EVENTS)
    assert decode_body(frame.body) == ([5], [b"one"])
    assert (found.sent, list(found.frames)) == (frame, [])


def test_a_marker_is_sent_as_it_is() -> None:
    found: Outbox[str] = Outbox("a", 7, "n1", 3)
    found.frames.append(OpenFrame(True, FrameKind.JOIN, payloads=[b"here"], tokens=["mark"]))
    assert found.send("p") == PublishedFrame("a", 3, "p", 7, 1, 1, b"here", FrameKind.JOIN)


def test_what_was_refused_goes_before_what_waits_and_in_the_epoch_of_now() -> None:
    found = outbox("one", "two")
    first = found.send("p")
    assert found.refuse(first)
    found.move("n2", 4)
    again = found.send("p")
    assert (again.epoch, again.first, again.body) == (4, first.first, first.body)
    assert (found.refused, found.sent) == (None, again)
    found.settle()
    assert decode_body(found.send("p").body)[1] == [b"two"]


def test_it_fails_for_certain_when_all_answers_have_come() -> None:
    found, _ = sent()
    full = OutOfMemory("full")
    taken, error = found.fail(full)
    assert (taken.tokens, error) == (["one"], full)
    assert (found.taken, found.sent, found.refused) == (None, None, None)


def test_it_fails_for_nobody_knows_what_when_an_answer_was_lost() -> None:
    found, frame = sent()
    found.lose_answer()
    found.refuse(frame)
    _, error = found.fail(OutOfMemory("full"))
    assert isinstance(error, PublishUncertain)
    assert str(error).endswith("full; and before that, an answer was lost")
    assert found.refused is None
    found.frames.append(OpenFrame(True, payloads=[b"two"], sent_at_ns=[5], tokens=["two"]))
    found.send("p")
    full = OutOfMemory("full")
    assert found.fail(full)[1] is full, "that was of the one before"


def test_an_error_that_leaves_the_fate_open_is_told_as_it_is() -> None:
    found, _ = sent()
    found.lose_answer()
    lost = PublishUncertain("lost")
    assert found.fail(lost)[1] is lost


@pytest.mark.parametrize("node", ["n1", None])
def test_what_is_under_way_to_a_node_that_begins_anew_may_be_forgotten_there(node: str | None) -> None:
    found, _ = sent()
    assert found.reset(node, is_asked=True)


def test_what_was_not_sent_cannot_be_forgotten() -> None:
    assert not outbox("one").reset("n1", is_asked=True)
    assert not outbox("one").reset(None, is_asked=True)


@pytest.mark.parametrize(("node", "forgotten"), [("n1", True), ("n2", True), ("n3", False), (None, True)])
def test_an_uncertain_frame_may_be_forgotten_by_each_node_that_its_region_has_been_at(
    node: str | None, forgotten: bool
) -> None:
    found, _ = sent()
    found.lose_answer()
    found.move("n2", 4)
    assert found.reset(node, is_asked=False) is forgotten


def test_where_the_region_was_before_the_frame_was_sent_does_not_matter() -> None:
    found = outbox("one")
    found.move("n2", 4)
    found.send("p")
    found.lose_answer()
    assert not found.reset("n1", is_asked=False)
    found.move("n3", 5)
    assert not found.reset("n1", is_asked=False)
    found.settle()
    found.frames.append(OpenFrame(True, payloads=[b"two"], sent_at_ns=[5], tokens=["two"]))
    found.send("p")
    found.lose_answer()
    assert not found.reset("n2", is_asked=False), "that was for the frame before"


@pytest.mark.parametrize("lost", [False, True])
def test_an_answer_that_is_lost_after_a_node_began_anew_is_not_to_be_had_again(lost: bool) -> None:
    """n1 was asked; n2, which n1 would have told what it accepted, begins anew; then n1 says "not here"."""
    found, frame = sent()
    found.move("n2", 4)
    assert not found.reset("n2", is_asked=False)
    if lost:
        found.lose_answer()
    assert found.refuse(frame) is not lost


def test_a_node_that_its_region_never_was_at_may_forget_what_it_likes() -> None:
    found, frame = sent()
    found.move("n2", 4)
    assert not found.reset("n3", is_asked=False)
    found.lose_answer()
    assert found.refuse(frame)


def test_what_was_refused_for_certain_was_accepted_nowhere_before() -> None:
    found, frame = sent()
    found.move("n2", 4)
    found.reset("n2", is_asked=False)
    assert found.refuse(frame), "n1 has answered"
    found.send("p")
    found.lose_answer()
    assert found.refuse(frame), "only n2 can have accepted it, and it knows"


def test_what_waits_to_be_offered_again_is_not_forgotten_by_a_node_that_begins_anew() -> None:
    found, frame = sent()
    found.refuse(frame)
    assert not found.reset("n1", is_asked=False)
    found.send("p")
    found.lose_answer()
    assert found.refuse(frame)


def test_what_a_node_forgot_of_one_frame_does_not_matter_to_the_next() -> None:
    found, _ = sent()
    found.move("n2", 4)
    found.reset("n2", is_asked=False)
    found.settle()
    found.frames.append(OpenFrame(True, payloads=[b"two"], sent_at_ns=[5], tokens=["two"]))
    frame = found.send("p")
    found.lose_answer()
    assert found.refuse(frame)


def test_another_incarnation_goes_on_with_numbers_that_were_not_used() -> None:
    found = outbox("one", "two")
    found.send("p")
    found.settle()
    found.next = 2
    found.renew(8)
    frame = found.send("p")
    assert (frame.incarnation, frame.first) == (8, 2)


def test_each_transition_of_the_table_leads_from_and_to_a_state_that_can_be_reached() -> None:
    reached, before = {Fate.NONE}, set[Fate]()
    while reached != before:
        before = set(reached)
        reached |= {to for (fate, _), to in FATES.items() if fate in reached}
    assert reached == set(Fate)


@pytest.mark.parametrize("act", [lambda box: box.lose_answer(), lambda box: box.settle()])
def test_nothing_can_happen_to_a_frame_that_was_not_sent(act: Callable[[Outbox[str]], object]) -> None:
    with pytest.raises(IllegalTransition, match="Fate: NONE does not allow"):
        act(outbox("one"))


def test_no_second_frame_is_sent_while_one_is_in_flight() -> None:
    found = outbox("one", "two")
    found.send("p")
    with pytest.raises(IllegalTransition, match="Fate: SENT does not allow SEND"):
        found.send("p")
    assert [frame.tokens for frame in found.frames] == [["two"]]
