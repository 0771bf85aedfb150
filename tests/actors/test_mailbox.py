"""What a mailbox in memory holds, and what it lets the next request take."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.agent import Drain
from actors.ids import MessageId
from actors.mailbox import Mailbox, MailboxStatistics
from actors.messages import Lane, Queued, ReceiptState
from tests.actors.turnkit import message, steer


def control(name: str, seq: int = 1) -> Queued:
    """A control message."""
    return message(name, lane=Lane.CONTROL, seq=seq)


def ids(found: tuple[Queued, ...]) -> list[str]:
    """Their ids."""
    return [queued.envelope.id for queued in found]


def test_mail_1_lanes_are_in_order_of_acceptance_whatever_order_they_are_told_in() -> None:
    """Commits of many senders may be told out of order."""
    box = Mailbox([message("c", seq=3), message("a", seq=1), steer("s", 4), message("b", seq=2)])
    assert ids(box.choose(Drain(send="all", steer="all"), sends=True)) == ["s"]
    box.remove([MessageId("s")])
    assert ids(box.choose(Drain(send="all"), sends=True)) == ["a", "b", "c"]
    assert ids(box.waiting) == ["a", "b", "c"]


def test_con_1_core_steering_goes_first_and_sends_only_where_nothing_is_owed() -> None:
    """A send never enters beside steering, nor while an answer is owed."""
    box = Mailbox([message("m", seq=1), steer("s", 2)])
    for sends in (True, False):
        assert ids(box.choose(Drain(), sends=sends)) == ["s"]
    box.remove([MessageId("s")])
    assert box.choose(Drain(), sends=False) == ()
    assert ids(box.choose(Drain(), sends=True)) == ["m"]
    box.remove([MessageId("m")])
    assert box.choose(Drain(), sends=True) == ()


@pytest.mark.parametrize(("mode", "taken"), [("one", ["a"]), ("all", ["a", "b"])])
def test_con_2_core_each_lane_drains_by_its_mode(mode: str, taken: list[str]) -> None:
    """One at a time, or all that wait."""
    sends = Mailbox([message("a", seq=1), message("b", seq=2)])
    assert ids(sends.choose(Drain(send=mode), sends=True)) == taken  # type: ignore[arg-type]
    steers = Mailbox([steer("a", 1), steer("b", 2)])
    assert ids(steers.choose(Drain(steer=mode), sends=False)) == taken  # type: ignore[arg-type]


def test_a_message_that_owes_a_type_of_its_own_is_taken_alone() -> None:
    """Neither with those before it nor with those behind."""
    box = Mailbox([message("a", seq=1), message("b", seq=2, output="Verdict"), message("c", seq=3)])
    drain = Drain(send="all")
    for expected in ("a", "b", "c"):
        taken = box.choose(drain, sends=True)
        assert ids(taken) == [expected]
        box.remove([taken[0].envelope.id])


def test_control_overtakes_and_is_never_chosen() -> None:
    """It is the loop's, not the model's."""
    box = Mailbox([control("w", 1), control("x", 2), message("m", seq=3)])
    assert ids(box.orders) == ["w", "x"]
    assert ids(box.choose(Drain(send="all"), sends=True)) == ["m"]
    assert ids(box.waiting) == ["m"]


def test_abt_4_core_held_messages_ask_for_no_turn_but_come_along() -> None:
    """An abort holds them; a later message takes them with it, in their order."""
    box = Mailbox([message("a", seq=1)])
    assert [box.wants_turn] == [True]
    box.hold([MessageId("a")])
    assert [box.wants_turn] == [False]
    box.add(message("b", seq=2))
    assert [box.wants_turn] == [True]
    assert ids(box.choose(Drain(send="all"), sends=True)) == ["a", "b"]
    assert ids(box.choose(Drain(), sends=True)) == ["a"]


def test_abt_4_core_released_messages_ask_again() -> None:
    """`wake()` queues what was held, and only what it names."""
    box = Mailbox([message("b", seq=2), steer("a", 1)])
    box.hold([MessageId("a"), MessageId("b")])
    assert [box.wants_turn] == [False]
    box.release([MessageId("a")])
    assert [box.wants_turn] == [True]
    assert box.statistics().held == 1
    box.release([MessageId("a"), MessageId("b"), MessageId("gone")])
    assert box.statistics().held == 0


def test_a_message_read_as_held_is_held() -> None:
    """So that a restart does not wake what an abort put to rest."""
    box = Mailbox([Queued(1, message("a").envelope, ReceiptState.HELD)])
    assert not box.wants_turn
    assert box.statistics() == MailboxStatistics(0, 0, 1, 1)


def test_removed_messages_are_forgotten_with_their_hold() -> None:
    """Nothing of them is left; unknown ids do nothing."""
    box = Mailbox([message("a", seq=1), steer("s", 2), control("x", 3), message("b", seq=4)])
    box.hold([MessageId("a")])
    box.remove([MessageId("a"), MessageId("s"), MessageId("x"), MessageId("nobody")])
    assert ids(box.waiting) == ["b"]
    assert box.orders == ()
    assert box.statistics() == MailboxStatistics(0, 0, 1, 0)
    assert not Mailbox().wants_turn


def test_a_mailbox_shows_its_counts() -> None:
    """Held messages count in their lane too."""
    box = Mailbox([message("a", seq=1), steer("s", 2), control("x", 3)])
    box.hold([MessageId("s")])
    assert box.statistics() == MailboxStatistics(control=1, steer=1, send=1, held=1)
    assert repr(box) == "<Mailbox MailboxStatistics(control=1, steer=1, send=1, held=1)>"


# -- told out of order -------------------------------------------------------------------------------------------


def test_mail_3_a_message_told_behind_a_gap_does_not_enter_before_the_store_was_read() -> None:
    """Seqs have no gap: what nobody told of is in the store, and enters first; control overtakes."""
    box = Mailbox()
    box.add(message("b", seq=2))
    assert [box.gap] == [True]
    box.add(control("x", 3))
    assert ids(box.waiting) == []
    assert ids(box.orders) == ["x"]
    assert not box.wants_turn
    found = box.reload([message("a", seq=1), message("b", seq=2), control("x", 3)], 4)
    assert ids(found) == ["a"], "the one that nobody told of"
    assert [box.gap] == [False]
    assert ids(box.waiting) == ["a", "b"]
    assert ids(box.orders) == ["x"]
    box.add(control("x", 3))
    assert ids(box.orders) == ["x"]
    box.add(message("c", seq=4))
    assert ids(box.waiting) == ["a", "b", "c"]
    assert [box.gap] == [False]


def test_mail_3_what_the_missing_one_became_does_not_matter() -> None:
    """It was withdrawn before the store was read: that is known from the store's count, and there is no gap again."""
    box = Mailbox()
    box.add(message("b", seq=2))
    assert [box.gap] == [True]
    assert box.reload([], 3) == ()
    assert [box.gap] == [False]
    box.add(message("c", seq=3))
    assert [box.gap] == [False]
    assert ids(box.waiting) == ["c"]


def test_mail_3_a_mailbox_that_was_read_empty_shows_the_first_gap() -> None:
    """What the store had accepted before counts: the next that is told is not taken for the first."""
    box = Mailbox()
    box.reload([], 5)
    box.add(message("b", seq=6))
    assert [box.gap, ids(box.waiting)] == [True, []]
    assert ids(box.reload([message("a", seq=5), message("b", seq=6)], 7)) == ["a"]
    assert ids(box.waiting) == ["a", "b"]


def test_a_message_that_was_read_is_not_taken_twice() -> None:
    """Its sender tells of it after the store was read."""
    box = Mailbox([message("a", seq=4)])
    box.add(message("a", seq=4))
    assert ids(box.waiting) == ["a"]
    box.add(message("b", seq=5))
    box.add(message("b", seq=5))
    assert ids(box.waiting) == ["a", "b"]


def test_a_mailbox_read_anew_has_what_the_store_has() -> None:
    """States and times to live included; what is told again of the time of the read changes nothing more."""
    box = Mailbox()
    for seq, name in enumerate("abc", 1):
        box.add(message(name, seq=seq, expires_ms=seq))
    box.hold([MessageId("a"), MessageId("c")])
    box.add(steer("d", 4))
    box.reload([message("b", seq=2), Queued(3, message("c").envelope, ReceiptState.HELD)], 4)
    assert ids(box.waiting) == ["b", "c"]
    box.add(steer("d", 4))
    box.add(message("c", seq=3))
    assert ids(box.waiting) == ["b", "c", "d"]
    assert box.statistics().held == 1
    assert box.mortal.next_ms is None
    box.add(message("e", seq=5))
    assert ids(box.waiting) == ["b", "c", "d", "e"]
    assert Mailbox([message("a")]).has(MessageId("a"))
    assert not box.has(MessageId("a"))


STEP = st.tuples(st.sampled_from(["add", "add", "remove", "hold", "release"]), st.integers(0, 5))


@given(
    st.permutations(range(1, 7)),
    st.lists(st.sampled_from(Lane), min_size=6, max_size=6),
    st.lists(STEP, max_size=20),
    st.sampled_from(["one", "all"]),
    st.booleans(),
)
def test_a_mailbox_is_its_messages_sorted(
    order: list[int],
    lanes: list[Lane],
    steps: list[tuple[str, int]],
    mode: str,
    sends: bool,  # noqa: FBT001
) -> None:
    """Against a dictionary that is sorted at every question."""
    box = Mailbox()
    told: dict[int, Queued] = {}
    gone: set[int] = set()
    held: set[str] = set()
    for verb, number in steps:
        seq = order[number]
        one = message(str(number), lane=lanes[number], seq=seq)
        if verb == "add" and seq == len(told) + 1:
            told[seq] = one
            box.add(one)
        elif verb == "remove" and seq in told:
            gone.add(seq)
            held.discard(str(number))
            box.remove([one.envelope.id])
        elif verb == "hold" and seq in told and seq not in gone and lanes[number] is not Lane.CONTROL:
            held.add(str(number))
            box.hold([one.envelope.id])
        elif verb == "release":
            assert box.statistics().held == len(held)
            box.release([MessageId(one) for one in held])
            assert box.statistics().held == 0
            held = set()
        seen = [told[seq] for seq in sorted(told) if seq not in gone]
        waiting = [queued for queued in seen if queued.envelope.lane is not Lane.CONTROL]
        steers = [queued for queued in waiting if queued.envelope.lane is Lane.STEER]
        assert list(box.waiting) == waiting
        assert list(box.orders) == [queued for queued in seen if queued.envelope.lane is Lane.CONTROL]
        assert box.wants_turn == any(queued.envelope.id not in held for queued in waiting)
        source = steers or (waiting if sends else [])
        chosen = box.choose(Drain(mode, mode), sends=sends)  # type: ignore[arg-type]
        assert list(chosen) == (source if mode == "all" else source[:1])
        assert box.statistics().held == len(held)


# -- messages with a time to live ------------------------------------------------------------------------------------


def test_mail_4_what_has_expired_is_chosen_by_nobody_and_asks_for_no_turn() -> None:
    """From the mark on it is as good as dead, but owed until that is written; what left is marked no more."""
    box = Mailbox([message("a", seq=1, expires_ms=10), message("b", seq=2), message("c", seq=3, expires_ms=20)])
    assert box.mortal.next_ms == 10
    assert box.mortal.expire(9) == ()
    assert box.mortal.expire(10) == ("a",)
    assert ids(box.choose(Drain(send="all"), sends=True)) == ["b", "c"]
    box.remove([MessageId("b")])
    assert box.mortal.expire(30) == ("a", "c")
    assert not box.wants_turn
    assert box.choose(Drain(), sends=True) == ()
    box.remove([MessageId("a"), MessageId("c")])
    assert [box.mortal.next_ms] == [None]
    assert not box.mortal.expired


def test_mail_4_a_held_message_expires_too() -> None:
    """Neither mark asks for a turn; a message that has neither does."""
    box = Mailbox([message("a", seq=1, expires_ms=10), message("b", seq=2)])
    box.hold([MessageId("b")])
    assert box.wants_turn
    box.mortal.expire(10)
    assert not box.wants_turn


def test_con_6_core_a_message_on_its_last_try_enters_alone() -> None:
    """Whatever the mode of its lane: as the head alone, and never behind another."""
    for make in (message, steer):
        box = Mailbox([make("a", seq=1), make("b", seq=2), make("c", seq=3)])
        both = Drain(steer="all", send="all")
        assert ids(box.choose(both, sends=True, singly=(MessageId("b"),))) == ["a"]
        assert ids(box.choose(both, sends=True, singly=(MessageId("a"),))) == ["a"]
        assert ids(box.choose(both, sends=True, singly=(MessageId("c"),))) == ["a", "b"]
        assert ids(box.choose(both, sends=True)) == ["a", "b", "c"]
