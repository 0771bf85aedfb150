"""The board and its pictures, fed with hand-made events."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from actors.happenings import (
    AdmissionWaited,
    AgentCrashed,
    AgentEnded,
    AgentSettled,
    AgentStarted,
    AgentSuspended,
    AttemptDiscarded,
    BudgetStage,
    Event,
    Missed,
    ReasoningDelta,
    RequestFailed,
    RequestStarted,
    ResponseEnded,
    TextDelta,
    ToolEnded,
    ToolProgress,
    ToolStarted,
    ToolStuck,
    TurnEnded,
    TurnStarted,
)
from actors.ids import AgentId, CallId, MessageId, RunId, TurnId, child_path
from actors.messages import Asked, Failure, Outcome, Status
from actors.transcript import Stop
from actors.usage import Usage
from supervisor.screen import Board
from supervisor.screen_layout import ASCII, UNICODE, lay_out_board
from supervisor.screen_lines import PlainLog, json_line, kind_of
from supervisor.screen_live import LiveScreen, json_screen, plain_screen
from supervisor.screen_nodes import Look, Node
from supervisor.screen_words import clean, clean_lines, clock, count, crop, crop_left, crop_path, gist, money

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAD = AgentId("lead")
CALL = CallId("lead:t1.1.0")


def outcome(path: str, status: Status = Status.DONE, **facts: object) -> Outcome:
    """How a turn of an agent ended."""
    return Outcome(AgentId(path), RunId(f"{path}:r1"), TurnId(f"{path}:t1"), status, **facts)  # type: ignore[arg-type]


def answer(path: str, at: float = 0.0, *, tokens: int = 100, cost: int | None = 0) -> ResponseEnded:
    """A response that was counted."""
    return ResponseEnded(
        path=AgentId(path), at=at, stop=Stop.END_TURN, text="", usage=Usage(fresh=tokens), cost=cost, model="m"
    )


def reviewer(ordinal: int) -> AgentId:
    """The path of a reviewer."""
    return child_path("lead", "reviewer", ordinal)


def child(ordinal: int, at: float = 0.0, *, end: Status | None = Status.DONE) -> list[Event]:
    """A reviewer's life; with `end` None it is still asking."""
    path = reviewer(ordinal)
    events: list[Event] = [
        AgentStarted(path=path, at=at, name="reviewer", model="m", key=f"src/file_{ordinal}.py"),
        TurnStarted(path=path, at=at),
        RequestStarted(path=path, at=at, model="m"),
    ]
    if end is not None:
        failure = Failure("broken", "connection refused") if end is Status.FAILED else None
        ended = outcome(path, end, failure=failure, usage=Usage(fresh=100))
        events += [
            answer(path, at + 1),
            TurnEnded(path=path, at=at + 1, outcome=ended),
            AgentSettled(path=path, at=at + 1),
        ]
    return events


def opening() -> list[Event]:
    """The lead has called its tool."""
    return [
        AgentStarted(path=LEAD, name="lead", model="script"),
        TurnStarted(path=LEAD),
        RequestStarted(path=LEAD, model="m"),
        answer("lead"),
        ToolStarted(path=LEAD, call=CALL, name="review_all", arguments='{"parallel": 8}'),
    ]


def fed(events: Iterable[Event]) -> Board:
    """A board that took these events."""
    board = Board()
    for event in events:
        board.apply(event)
    return board


def drawn(board: Board, width: int = 80, height: int = 24) -> list[str]:
    """The picture as text."""
    return [line.plain.rstrip() for line in lay_out_board(board, width, height, now=board.clock)]


# -- the board -------------------------------------------------------------------------------------------------


def test_a_small_tree_is_drawn_whole() -> None:
    """A lead with a finished, a failed and a busy child shows each with its key, its figures and its progress."""
    board = fed(
        [
            *opening(),
            *child(1),
            *child(2, end=Status.FAILED),
            *child(3, 1.0, end=None),
            ToolProgress(path=LEAD, at=2.0, call=CALL, name="review_all", text="src/file_1.py", done=2, total=4),
        ]
    )
    assert drawn(board) == [
        "● lead  review_all  ━━━━━━━━━━━━━━━━━━━━━────────────────────── 2/4   300   0:02",
        "├─ ✓ reviewer src/file_1.py                                           100   0:01",
        "├─ ✗ reviewer#2 src/file_2.py         failed: connection refused      100   0:01",
        "└─ ● reviewer#3 src/file_3.py         asks the model                        0:01",
        "! lead/reviewer#2: failed: connection refused",
        "4 agents: 2 at work, 1 done, 1 failed · 300 tokens · free · 0:02",
    ]


def test_what_an_agent_does_follows_its_events() -> None:
    """The activity of an agent is its last call, else what its request is at."""
    board = fed([AgentStarted(path=LEAD, name="lead"), TurnStarted(path=LEAD)])
    said = []
    for event in (
        AdmissionWaited(path=LEAD, model="m"),
        RequestStarted(path=LEAD, model="m"),
        ReasoningDelta(path=LEAD, text="hmm"),
        TextDelta(path=LEAD, text="Hello"),
        AttemptDiscarded(path=LEAD, error="429 slow down", retry_in_s=2.0),
        RequestStarted(path=LEAD, model="m"),
        answer("lead"),
        ToolStarted(path=LEAD, call=CALL, name="read_file", arguments='{"path": "a.py", "first_line": 201}'),
        ToolStarted(path=LEAD, call=CallId("lead:t1.1.1"), name="grep", arguments='{"word": "x"}'),
        ToolEnded(path=LEAD, call=CallId("lead:t1.1.1"), name="grep", status="ok"),
        ToolEnded(path=LEAD, call=CALL, name="read_file", status="ok"),
        TurnEnded(path=LEAD, outcome=outcome("lead", text="All is well.\nReally.")),
    ):
        board.apply(event)
        said.append(board.rows(1)[0].doing)
    assert said == [
        "waits for a place at the model",
        "asks the model",
        "thinking, 3 characters",
        "writing, 8 characters",
        "tries again in 2 s: 429 slow down",
        "asks the model",
        "asks the model",
        "read_file a.py 201",
        "grep (+1) x",
        "read_file a.py 201",
        "asks the model",
        "All is well.",
    ]


@pytest.mark.parametrize(
    ("ended", "look", "doing"),
    [
        (outcome("lead", Status.DONE, text="Fine."), Look.DONE, "Fine."),
        (outcome("lead", Status.DONE, text="\n---\n| a | b |\n\nTwo files: ok."), Look.DONE, "Two files: ok."),
        (outcome("lead", Status.DONE, output='{"file": "a.py", "lines": 3}'), Look.DONE, "file a.py, lines 3"),
        (
            outcome("lead", Status.FAILED, failure=Failure("broken", "refused\nthere")),
            Look.FAILED,
            "failed: refused there",
        ),
        (outcome("lead", Status.EXHAUSTED), Look.FAILED, "exhausted"),
        (outcome("lead", Status.ABORTED), Look.STOPPED, "aborted"),
        (outcome("lead", Status.CLOSED), Look.STOPPED, "closed"),
        (outcome("lead", Status.PARKED), Look.STILL, "parked"),
        (
            outcome("lead", Status.NEEDS_INPUT, question=Asked(MessageId("m"), AgentId("lead/a"), "Which?")),
            Look.STILL,
            "asks: Which?",
        ),
    ],
)
def test_every_outcome_has_a_look(ended: Outcome, look: Look, doing: str) -> None:
    """Each of the outcomes of a turn shows as one look with words that say why."""
    board = fed([TurnStarted(path=LEAD), TurnEnded(path=LEAD, outcome=ended)])
    assert (board.rows(1)[0].look, board.rows(1)[0].doing) == (look, doing)


def test_lifecycle_events_change_looks() -> None:
    """A crash, a suspension and a close show even where no turn ended."""
    board = fed([TurnStarted(path=LEAD), AgentSuspended(path=LEAD, reason="leaving")])
    assert board.rows(1)[0].look is Look.STILL
    board.apply(AgentEnded(path=LEAD, reason="over"))
    assert (board.rows(1)[0].look, board.rows(1)[0].doing) == (Look.STOPPED, "closed: over")
    board.apply(AgentCrashed(path=LEAD, error="KeyError: 'x'"))
    assert board.rows(1)[0].look is Look.FAILED
    assert list(board.notes) == ["lead: crashed: KeyError: 'x'"]


def test_notes_keep_the_last_three() -> None:
    """What a person should know stands below the tree, the last three of it."""
    board = fed(
        [
            BudgetStage(path=LEAD, stage="soft", dimension="usd", limit="1.00", spent="0.70"),
            RequestFailed(path=LEAD, error="no route"),
            ToolStuck(path=LEAD, call=CALL, name="sleepy", stack="…"),
            BudgetStage(path=LEAD, stage="exhausted", dimension="usd", limit="1.00", spent="1.00"),
        ]
    )
    assert list(board.notes) == [
        "lead: no answer: no route",
        "lead: sleepy was left behind and still runs",
        "lead: budget exhausted: usd 1.00 of 1.00",
    ]


def test_what_is_said_of_all_trees_is_no_agent() -> None:
    """A stage of the supervisor's own budget is a note; nobody is counted for it."""
    stage = BudgetStage(path=AgentId("/"), stage="soft", dimension="tokens", limit="10", spent="7")
    board = fed([*opening(), stage])
    assert len(board) == len(fed(opening()))
    assert list(board.notes) == ["budget soft: tokens 7 of 10"]


def test_a_finished_agent_that_wakes_up_is_counted_out_again() -> None:
    """A child that is woken by another message is open again, and no longer among the finished."""
    board = fed([*opening(), *(event for n in range(1, 8) for event in child(n))])
    assert any("reviewer: 4 done" in line for line in drawn(board))
    board.apply(TurnStarted(path=reviewer(1)))
    board.apply(TurnStarted(path=reviewer(7)))
    shown = drawn(board)
    assert any("reviewer: 3 done" in line for line in shown)
    assert any("● reviewer src/file_1.py" in line for line in shown)
    assert any("● reviewer#7 src/file_7.py" in line for line in shown)


def test_missed_events_are_said() -> None:
    """A watcher that was too slow says how much it did not see."""
    board = fed([*opening(), Missed(path=AgentId(""), count=7)])
    assert "7 events not shown" in drawn(board)[-1]


def test_cost_is_said_with_what_is_not_known() -> None:
    """Cost is the sum of the prices known; a model without a price is said."""
    board = fed([answer("lead", cost=12_300_000_000)])
    assert "$0.0123" in drawn(board)[-1]
    board.apply(answer("lead", cost=None))
    assert "$0.0123 + unknown" in drawn(board)[-1]
    assert "cost unknown" in drawn(fed([answer("lead", cost=None)]))[-1]


def test_a_thousand_agents_do_not_flood() -> None:
    """A picture of 900 finished and 100 busy agents fits its height and counts what it leaves out."""
    events = [*opening(), *(event for n in range(1, 901) for event in child(n))]
    events += [event for n in range(901, 1001) for event in child(n, end=None)]
    shown = drawn(fed(events))
    assert len(shown) == 24
    assert shown[1].startswith("├─ ✓ reviewer: 900 done")
    assert shown[2].startswith("├─ ● reviewer#901 src/file_901.py")
    assert shown[-2].startswith("└─ ● 80 more at work")
    assert shown[-1].startswith("1,001 agents: 101 at work, 900 done")


def test_nested_trees_share_the_room() -> None:
    """Two busy children with many children each are both shown, and no line is lost."""
    events: list[Event] = [TurnStarted(path=LEAD)]
    for team in ("lead/a", "lead/b"):
        events += [TurnStarted(path=AgentId(team))]
        events += [TurnStarted(path=child_path(team, "kid", n)) for n in range(1, 30)]
    shown = drawn(fed(events), height=14)
    assert len(shown) == 14
    assert [line for line in shown if "more at work" in line] == ["│  └─ ● 25 more at work", "   └─ ● 25 more at work"]


# -- invariants, over any history -------------------------------------------------------------------------------

PATHS = st.sampled_from(["lead", "lead/a", "lead/a#2", "lead/a/b", "lead/a/b#2", "lead/c", "other", "other/a/b/c"])
EVENTS = st.one_of(
    st.builds(AgentStarted, path=PATHS, name=st.just("x"), key=st.none() | st.text(max_size=9)),
    st.builds(TurnStarted, path=PATHS),
    st.builds(lambda path, status: TurnEnded(path=path, outcome=outcome(path, status)), PATHS, st.sampled_from(Status)),
    st.builds(AgentSettled, path=PATHS),
    st.builds(AgentEnded, path=PATHS),
    st.builds(AgentCrashed, path=PATHS, error=st.just("boom")),
    st.builds(AgentSuspended, path=PATHS, reason=st.just("leaving")),
    st.builds(answer, PATHS, tokens=st.integers(0, 10_000), cost=st.none() | st.integers(0, 10**12)),
    st.builds(ToolStarted, path=PATHS, call=st.just(CALL), name=st.just("t"), arguments=st.just("{}")),
    st.builds(
        ToolProgress,
        path=PATHS,
        call=st.just(CALL),
        name=st.just("t"),
        done=st.integers(-5, 9),
        total=st.integers(0, 9),
    ),
    st.builds(ToolEnded, path=PATHS, call=st.just(CALL), name=st.just("t"), status=st.just("ok")),
    st.builds(TextDelta, path=PATHS, text=st.text(max_size=5)),
)


def all_nodes(board: Board) -> list[Node]:
    """Every node of a board."""
    return list(board._nodes.values())


@given(st.lists(EVENTS, max_size=60))
def test_board_1_and_2_totals_and_places_hold_after_any_history(events: list[Event]) -> None:
    """Tokens of a node are those of its subtree, and each child is either active or counted once."""
    board = Board()
    spent = dict.fromkeys((str(event.path) for event in events), 0)
    for event in events:
        board.apply(event)
        if isinstance(event, ResponseEnded):
            spent[event.path] += event.usage.total_tokens
    nodes = all_nodes(board)
    assert sum(board.counts.values()) == len(nodes)
    for node in nodes:
        below = sum(tokens for path, tokens in spent.items() if path == node.path or path.startswith(f"{node.path}/"))
        assert node.tokens == below  # BOARD-1
        kids = [kid for kid in nodes if kid.parent is node]
        assert set(node.active) == {kid.path for kid in kids if kid.open}  # BOARD-2
        counted = sum(fold.done + fold.failed for fold in node.folds.values())
        assert counted + len(node.active) == len(kids)
        assert all(fold.done >= 0 and fold.failed >= 0 for fold in node.folds.values())


@given(st.lists(EVENTS, max_size=60), st.integers(1, 30))
def test_board_3_a_picture_keeps_to_its_rows(events: list[Event], limit: int) -> None:
    """However little room there is, no more rows come than were asked for; with room, every agent has its own."""
    board = fed(events)
    assert len(board.rows(limit)) <= limit
    counting = [row for row in board.rows(100) if row.counts]
    shown = [row for row in board.rows(100) if not row.counts]
    assert len(shown) + sum(int(row.name.split()[1]) for row in counting) == len(board)


NAMES = st.text(min_size=1, max_size=90)


@given(NAMES, NAMES, NAMES, st.integers(2, 200), st.sampled_from([UNICODE, ASCII]))
@example("a" * 300, "ß", "漢字" * 60, 80, UNICODE)
@example("\x1b[31mred", "a\u200db", "\u202eevil", 80, UNICODE)
@example("e\u0301" * 80, "🧑‍💻" * 30, "\udcff\udcfe", 80, ASCII)
def test_layout_1_no_line_is_wider_than_the_terminal(
    name: str, key: str, doing: str, width: int, glyphs: object
) -> None:
    """Any names, paths and texts fit any width, and nothing in them can command the terminal."""
    path = AgentId("lead/" + name.replace("/", "|"))
    board = fed(
        [
            *opening(),
            ToolProgress(path=LEAD, call=CALL, name=name, text=doing, done=3, total=10**9),
            AgentStarted(path=path, name=name, key=key),
            TurnStarted(path=path),
            ToolStarted(path=path, call=CALL, name=name, arguments=json.dumps({"a": doing})),
            answer(path, cost=10**15 + 1, tokens=10**9),
            RequestFailed(path=path, error=doing),
        ]
    )
    for line in lay_out_board(board, width, 12, now=100_000.0, glyphs=glyphs, hint="Ctrl-C suspends"):  # type: ignore[arg-type]
        assert cell_len(line.plain) <= width
        assert "\x1b" not in line.plain
        assert "\n" not in line.plain


def test_ascii_pictures_are_ascii() -> None:
    """A terminal without the signs gets a picture in ASCII."""
    board = fed([*opening(), *child(1), *child(2, end=None)])
    lines = [line.plain for line in lay_out_board(board, 80, 24, now=1.0, glyphs=ASCII)]
    assert all(line.isascii() for line in lines)
    assert lines[1].startswith("|- + reviewer src/file_1.py")


# -- words -----------------------------------------------------------------------------------------------------


@given(st.text(max_size=60), st.integers(0, 30))
def test_cropped_text_fits(text: str, width: int) -> None:
    """Cropping keeps to its width, from either side."""
    text = clean(text)
    for cropped in (crop(text, width), crop_left(text, width), crop_path(text, width)):
        assert cell_len(cropped) <= width


def test_words_for_people() -> None:
    """Counts, money, times, paths and arguments read as a person would write them."""
    assert [count(n) for n in (0, 999, 1_000, 9_949, 9_950, 151_300, 999_499, 1_234_567)] == [
        "0", "999", "1.0k", "9.9k", "10k", "151k", "999k", "1.2M",
    ]  # fmt: skip
    assert [money(p) for p in (0, 5_000_000, 12_340_000_000, 250 * 10**12)] == [
        "free",
        "$0.000005",
        "$0.0123",
        "$250.00",
    ]
    assert [clock(s) for s in (-1, 7.9, 754, 3723)] == ["0:00", "0:07", "12:34", "1:02:03"]
    assert crop_path("src/deep/er/module.py", 16) == "…/er/module.py"
    assert gist('{"path": "a.py", "n": 3, "flag": true, "many": ["x", "y"], "deep": {"z": 1}}') == "a.py 3 x y"
    assert gist("not json\nat all") == "not json at all"
    assert clean("a\tb\x1b[0m\nc") == "a b�[0m c"
    assert clean_lines("a\tb\r\n\x1b[2J") == ["a   b", "�[2J"]


# -- lines -----------------------------------------------------------------------------------------------------


def test_a_plain_log_says_what_matters() -> None:
    """The log of a small run, to the character."""
    log = PlainLog()
    events = [
        *opening(),
        *child(1),
        ToolProgress(path=LEAD, at=1.0, call=CALL, name="review_all", text="src/file_1.py", done=1, total=3),
        *child(2, 1.0),
        ToolProgress(path=LEAD, at=2.0, call=CALL, name="review_all", text="src/file_2.py", done=2, total=3),
        *child(3, 1.5, end=Status.FAILED),
        ToolProgress(path=LEAD, at=2.5, call=CALL, name="review_all", text="src/file_3.py", done=3, total=3),
        ToolEnded(path=LEAD, at=3.0, call=CALL, name="review_all", status="error", text="it broke\nhere"),
        AttemptDiscarded(path=LEAD, at=3.0, error="429", retry_in_s=1.5),
        TurnEnded(path=LEAD, at=4.0, outcome=outcome("lead", text="Sum.", usage=Usage(fresh=1234))),
    ]
    assert [line for event in events for line in log.lines(event)] == [
        "    0.0s  lead  started  script",
        "    0.0s  lead  review_all 8",
        "    1.0s  lead/reviewer  done  (src/file_1.py)  100 tokens",
        "    1.0s  lead  review_all 1/3  src/file_1.py",
        "    2.0s  lead/reviewer#2  done  (src/file_2.py)  100 tokens",
        "    2.5s  lead/reviewer#3  (src/file_3.py)  failed: connection refused  100 tokens",
        "    2.5s  lead  review_all 3/3  src/file_3.py",
        "    3.0s  lead  review_all error: it broke here",
        "    3.0s  lead  tries again in 1.5 s: 429",
        "    4.0s  lead  done  1,234 tokens",
    ]


def test_json_lines_carry_every_field() -> None:
    """A JSON line says what the event is and all that it holds."""
    line = json_line(TurnEnded(path=LEAD, seq=7, at=1.5, outcome=outcome("lead", text="\u2028x")))
    value = json.loads(line)
    assert "\n" not in line
    assert (value["event"], value["path"], value["seq"], value["outcome"]["status"]) == (
        "turn_ended",
        "lead",
        7,
        "done",
    )
    assert kind_of(ToolStuck(path=LEAD, call=CALL, name="t", stack="")) == "tool_stuck"


# -- the shells ------------------------------------------------------------------------------------------------


async def test_a_line_screen_outlives_its_reader(autojump_clock: trio.testing.MockClock) -> None:
    """When the reader of the lines has gone, events are still taken in and nothing is raised."""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    for screen in (plain_screen(Gone()), json_screen(Gone(), io.StringIO())):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(screen.run)
            for event in opening():
                screen.feed(event)
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        await screen.finish()
        assert len(screen.board) == 1


async def test_json_goes_to_programs_and_words_to_people(autojump_clock: trio.testing.MockClock) -> None:
    """With JSON lines, what a person is told does not stand among them."""
    out, told = io.StringIO(), io.StringIO()
    screen = json_screen(out, told)
    screen.feed(opening()[0])
    screen.tell("suspending")
    await screen.finish()
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["agent_started"]
    assert told.getvalue() == "suspending\n"


async def test_the_live_tree_draws_at_most_ten_times_a_second(autojump_clock: trio.testing.MockClock) -> None:
    """A burst of deltas costs pictures by the clock, not by the delta, and the last picture stays."""
    out = io.StringIO()
    screen = LiveScreen(Console(file=out, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"}))
    drawn_at: list[float] = []
    original = screen.picture

    def picture(now: float) -> list[object]:
        drawn_at.append(trio.current_time())
        return original(now)  # type: ignore[return-value]

    screen.picture = picture  # type: ignore[method-assign,assignment]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(screen.run)
        for event in opening():
            screen.feed(event)
        for _ in range(1_000):
            screen.feed(TextDelta(path=LEAD, text="x"))
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    await screen.finish()
    assert 1 <= len(drawn_at) <= 12  # fewer where the machine is slow at drawing
    assert out.getvalue().count("\x1b[?25l") == out.getvalue().count("\x1b[?25h") == 1  # the cursor is given back
    assert "1 agent at work" in out.getvalue()
