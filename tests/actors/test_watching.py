"""The journal and its watchers, against a list of all that ever happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import UsageError
from actors.happenings import AgentSettled, Event, Missed, ResponseEnded, TextDelta
from actors.ids import AgentId
from actors.journal import ENTRY_BYTES, EventJournal, JournalBound
from actors.transcript import Stop
from actors.usage import NO_USAGE
from actors.watching import Board, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from trio.testing import MockClock

PATHS: Final = tuple(AgentId(path) for path in ("a", "a/b", "a/b/c", "a/b#2", "ab"))
SCOPES: Final = ("", *PATHS)


def inside(path: str, scope: str) -> bool:
    """Whether a scope has an agent."""
    return not scope or path == scope or path.startswith(scope + "/")


def take_all(watcher: Subscription) -> list[Event]:
    """All that it gives now."""
    taken = []
    while (event := watcher._take()) is not None:
        taken.append(event)
    return taken


@attrs.define(eq=False)
class Eye:
    """A watcher and what it must still be given, in order: every kept event of its scope from where it began.

    Attributes:
        due: paths and seqs. before: how many of them are from before it watched.
        spare: deltas that came while it watched, each given or counted as missed.
    """

    watcher: Subscription
    due: list[tuple[str, int]]
    before: int = attrs.field(init=False)
    spare: int = 0

    def __attrs_post_init__(self) -> None:
        """What is due at first is from before."""
        self.before = len(self.due)

    def look(self, event: Event) -> None:
        """It was given an event: the next, or a gap that says how many it skips (WATCH-2)."""
        if isinstance(event, Missed):
            assert event.count is not None
            assert event.count > 0
            watcher, journal = self.watcher, self.watcher._journal
            stop = watcher._opened[0] if self.before else journal.last
            held = journal.held(watcher.path, watcher._passed, stop)
            lost = (self.before or len(self.due)) - held
            assert 0 <= lost <= event.count
            assert not self.before or lost == event.count, "deltas are behind all that was before"
            self.before = min(self.before, held)
            assert event.count - lost <= self.spare
            self.spare -= event.count - lost
            del self.due[:lost]
        elif isinstance(event, TextDelta):
            self.spare -= 1
            assert self.spare >= 0
        else:
            assert (event.path, event.seq) == self.due.pop(0), "in order, without hole or double"
            self.before = max(0, self.before - 1)


@attrs.define(eq=False)
class Life:
    """Everything that happened, and everyone who watches."""

    board: Board
    happened: list[tuple[str, int]] = attrs.field(factory=list)
    eyes: list[Eye] = attrs.field(factory=list)
    left: list[tuple[str, str, int]] = attrs.field(factory=list)

    def emit(self, path: AgentId) -> None:
        """An event that is kept."""
        self.board.tell(AgentSettled, path, {})
        one = (path, sum(agent == path for agent, _ in self.happened) + 1)
        self.happened.append(one)
        for eye in self.eyes:
            if inside(path, eye.watcher.path):
                eye.due.append(one)

    def delta(self, path: AgentId) -> None:
        """One that is not."""
        self.board.tell(TextDelta, path, {"text": "x"})
        for eye in self.eyes:
            if inside(path, eye.watcher.path):
                eye.spare += 1

    def open(self, scope: str, after: tuple[str, int] | None, limit: int) -> None:
        """Watch, from the beginning of the journal or from where an earlier watch had come to."""
        text, start = (None, self.board.journal.first - 1) if after is None else after
        watcher = Subscription(self.board.journal, scope, after=text, follow=True, limit=limit)
        self.board.add(watcher)
        self.eyes.append(Eye(watcher, [one for one in self.happened[start:] if inside(one[0], scope)]))

    def leave(self, eye: Eye) -> None:
        """Stop watching, in whatever state, with its position in hand."""
        self.eyes.remove(eye)
        waiting = len(eye.due)
        scope = eye.watcher.path
        behind = [at for at, one in enumerate(self.happened, 1) if inside(one[0], scope)]
        self.left.append((scope, eye.watcher.position, behind[-waiting - 1] if len(behind) > waiting else 0))
        self.board.remove(eye.watcher)


@given(st.data(), st.integers(0, 40), st.integers(1, 6))
def test_evt_3_watchers_come_and_go_without_hole_or_double(data: st.DataObject, keeps: int, limit: int) -> None:
    """Whatever the interleaving of events, deltas, watchers that come, read, are slow, leave and come back.

    Each is given every kept event from where it began, once and in order; what it is not given, a gap counts exactly.
    """
    life = Life(Board(lambda: 0.0, EventJournal("j", JournalBound(events=keeps))))
    draw = data.draw
    for _ in range(draw(st.integers(0, 60))):
        match draw(st.sampled_from(("emit", "emit", "emits", "delta", "open", "back", "take", "take", "leave"))):
            case "emit":
                life.emit(draw(st.sampled_from(PATHS)))
            case "emits":
                path = draw(st.sampled_from(PATHS))
                for _ in range(draw(st.integers(1, 30))):
                    life.emit(path)
            case "delta":
                life.delta(draw(st.sampled_from(PATHS)))
            case "open":
                life.open(draw(st.sampled_from(SCOPES)), None, limit)
            case "back" if life.left:
                scope, position, start = draw(st.sampled_from(life.left))
                life.open(scope, (position, start), limit)
            case "take" if life.eyes:
                eye = draw(st.sampled_from(life.eyes))
                for _ in range(draw(st.integers(1, 8))):
                    event = eye.watcher._take()
                    if event is not None:
                        eye.look(event)
            case "leave" if life.eyes:
                life.leave(draw(st.sampled_from(life.eyes)))
            case _:
                pass
        statistics = life.board.journal.statistics()
        assert statistics.events <= keeps, "JOURNAL-2"
        assert all(eye.watcher.statistics().waiting <= limit for eye in life.eyes), "WATCH-1"
    for eye in life.eyes:
        while (event := eye.watcher._take()) is not None:
            eye.look(event)
        assert eye.due == [], "nothing is owed to one that has read all"


@given(st.lists(st.integers(0, 3_000), max_size=60), st.integers(0, 20_000))
def test_evt_3_the_journal_is_bounded_in_bytes_too(sizes: list[int], bound: int) -> None:
    """However long the texts are, what is held is within the bound, but for one entry of the usual size."""
    journal = EventJournal("j", JournalBound(events=50, size_bytes=bound))
    for size in sizes:
        values = {"stop": Stop.END_TURN, "text": "x" * size, "usage": NO_USAGE}
        journal.put(ResponseEnded, PATHS[0], 0.0, 1, 1, values)
        statistics = journal.statistics()
        assert statistics.size_bytes <= bound
        assert statistics.events <= 50
        held = list(journal.after(0))
        assert [number for number, _ in held] == list(range(journal.first, journal.last + 1))
        assert sum(len(str(entry[6]["text"])) + ENTRY_BYTES for _, entry in held) == statistics.size_bytes


def test_evt_3_while_nobody_watches_no_event_is_made() -> None:
    """What is put up for an agent that nobody watches is kept as it came: only who reads it makes an event of it."""
    board = Board(lambda: 0.0, EventJournal("j"))
    other = Subscription(board.journal, "other", follow=True)
    board.add(other)
    board.tell(AgentSettled, PATHS[1], {"no such field": 1})
    board.tell(TextDelta, PATHS[1], {"no such field": 1})
    assert other.statistics().waiting == 0
    late = Subscription(board.journal, "a", follow=True)
    with pytest.raises(TypeError):
        late._take()


@pytest.mark.parametrize("after", ["", "x", "j.x.1.a", "other.1.1.a", "j.99.1.a", "j.1", f"j.{'9' * 30}.1.a"])
def test_evt_3_an_unknown_position_is_a_gap_of_unknown_size(after: str) -> None:
    """It is said first, once; then comes what there is, and what happens."""
    board = Board(lambda: 0.0, EventJournal("j"))
    board.tell(AgentSettled, PATHS[0], {})
    watcher = Subscription(board.journal, "a", after=after, follow=True)
    board.add(watcher)
    board.tell(AgentSettled, PATHS[0], {})
    first, *rest = take_all(watcher)
    assert isinstance(first, Missed)
    assert first.count is None
    assert [event.seq for event in rest] == [1, 2]
    empty = Subscription(EventJournal("k"), "a", after=after, follow=True)
    assert [type(event) for event in take_all(empty)] == [Missed]


def test_evt_3_the_position_of_another_scope_goes_on_or_says_that_it_cannot_count() -> None:
    """Held, it is as good as any; too old, what is missing of this scope cannot be told from it."""
    board = Board(lambda: 0.0, EventJournal("j", JournalBound(events=20)))
    everything = Subscription(board.journal, "", follow=True)
    board.add(everything)
    board.tell(AgentSettled, PATHS[0], {})
    board.tell(AgentSettled, PATHS[1], {})
    take_all(everything)
    position = everything.position
    board.tell(AgentSettled, PATHS[1], {})
    (event,) = take_all(Subscription(board.journal, "a/b", after=position, follow=True))
    assert event.seq == 2
    for _ in range(100):
        board.tell(AgentSettled, PATHS[1], {})
    first, *rest = take_all(Subscription(board.journal, "a/b", after=position, follow=True))
    assert isinstance(first, Missed)
    assert first.count is None
    assert rest[-1].seq == 102


def test_evt_3_a_quiet_agent_loses_nothing_to_busy_ones() -> None:
    """A position long fallen out of the journal is no gap where nothing of its scope has fallen out since."""
    board = Board(lambda: 0.0, EventJournal("j", JournalBound(events=20)))
    board.tell(AgentSettled, PATHS[0], {})
    watcher = Subscription(board.journal, "a", follow=True)
    take_all(watcher)
    position = watcher.position
    for _ in range(100):
        board.tell(AgentSettled, AgentId("busy"), {})
    assert take_all(Subscription(board.journal, "a", after=position, follow=True)) == []
    board.tell(AgentSettled, PATHS[0], {})
    (event,) = take_all(Subscription(board.journal, "a", after=position, follow=True))
    assert event.seq == 2


def test_evt_3_a_watch_that_ended_while_it_was_behind_counts_its_own() -> None:
    """What it had not read when it ended and fell out of the journal since is counted; what came later is not its."""
    board = Board(lambda: 0.0, EventJournal("j", JournalBound(events=20)))
    for _ in range(10):
        board.tell(AgentSettled, PATHS[0], {})
    watcher = Subscription(board.journal, "a", follow=True)
    board.add(watcher)
    assert watcher._take() is not None
    board.remove(watcher)
    for _ in range(100):
        board.tell(AgentSettled, PATHS[0], {})
    (gap,) = take_all(watcher)
    assert isinstance(gap, Missed)
    assert gap.count == 9


def test_evt_3_a_bound_and_a_position_are_checked() -> None:
    """What is no bound and no position is refused with the value met."""
    for wrong in (-1, 1.5, True, "9"):
        with pytest.raises(UsageError, match="events="):
            JournalBound(events=wrong)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(UsageError, match="size_bytes="):
        JournalBound(size_bytes=-1)
    with pytest.raises(UsageError, match="got 7"):
        Subscription(EventJournal(), "", after=7, follow=True)  # type: ignore[arg-type]  # on purpose


async def test_evt_2_a_watcher_cancelled_in_the_middle_loses_nothing(autojump_clock: MockClock) -> None:
    """Cancelled at any point of its wait or its step, whoever iterates again gets the next event."""
    board = Board(journal=EventJournal("j"))
    watcher = Subscription(board.journal, "a", follow=True, limit=4)
    board.add(watcher)
    got: list[int] = []

    async def look(scope: trio.CancelScope) -> None:
        with scope:
            async for event in watcher:
                got.append(event.seq)

    for number in range(30):
        async with trio.open_nursery() as nursery:
            scope = trio.CancelScope()
            nursery.start_soon(look, scope)
            for step in range(3):
                if step != number % 3:
                    await trio.lowlevel.checkpoint()
                else:
                    board.tell(AgentSettled, PATHS[0], {})
                    if number % 2:
                        scope.cancel()
            scope.cancel()
    board.remove(watcher)
    got += [event.seq async for event in watcher]
    assert got == list(range(1, 31))


def count_calls(act: Callable[[], None]) -> int:
    """How many functions are called: a cost without noise."""
    import sys  # noqa: PLC0415 - here only

    calls = 0

    def trace(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(trace)
    try:
        act()
    finally:
        sys.setprofile(None)
    return calls


def test_evt_2_who_is_not_watched_pays_nothing_for_who_is() -> None:
    """An event of an agent costs the same beside a watcher of another, or 1,000 of them, of 10,000 agents."""
    board = Board(lambda: 0.0, EventJournal("j"))
    for number in range(10_000):
        board.tell(AgentSettled, AgentId(f"b{number}"), {})

    def act() -> None:
        board.tell(AgentSettled, AgentId("b7/c"), {})
        board.tell(TextDelta, AgentId("b7/c"), {"text": "x"})

    act()
    one = Subscription(board.journal, "b8", follow=True)
    board.add(one)
    beside_one = count_calls(act)
    for number in range(1_000):
        board.add(Subscription(board.journal, f"b{number + 8}", follow=True))
    assert count_calls(act) == beside_one
    take_all(one)
    board.tell(AgentSettled, AgentId("b8/x"), {})
    assert one.statistics().waiting == 1
