"""What is said of a store, from hand-made rows and records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from actors.changes import AgentRow, CallRow, CallState, Intake, KvRow, OpenTurn
from actors.content import Image, Text
from actors.ids import AgentId, CallId, MessageId, RunId, TurnId, child_path
from actors.messages import Envelope, Failure, Lane, Outcome, Queued, ReceiptState, Status
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    Record,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    TextBlock,
)
from actors.usage import Amounts, Usage
from supervisor.screen_nodes import Look
from supervisor.show_lines import Owed, State, agent_lines, owed_lines, state_of, tree_lines
from supervisor.store.base import StoredAgent

LEAD = AgentId("lead")
TURN = TurnId("lead:t1")


def row(path: str, **facts: object) -> AgentRow:
    """An agent's row."""
    parent = path.rpartition("/")[0]
    made = AgentRow(AgentId(path), parent, path.rpartition("/")[2].partition("#")[0], "d1", turns=1, runs=1)
    return replace(made, **facts)


def ended(path: str, status: Status = Status.DONE, **facts: object) -> Outcome:
    """How its last turn ended."""
    return Outcome(AgentId(path), RunId(f"{path}:r1"), TurnId(f"{path}:t1"), status, **facts)  # type: ignore[arg-type]


def states(rows: list[tuple[AgentRow, Outcome | None]], *, owned: bool = True) -> list[tuple[AgentRow, State]]:
    """Rows with their states."""
    return [(one, state_of(one, last, owned=owned)) for one, last in rows]


def conversation() -> list[Record]:
    """One turn with a call that failed, and an answer."""
    call = CallId("lead:t1.1.0")
    return [
        MessageRecord(TURN, MessageId("m-1"), (Text("Review src/"), Image("image/png", data="x"))),
        ResponseRecord(
            TURN,
            (ReasoningBlock("Hm."), CallBlock(call, "call_1", "read_file", '{"path": "a.py", "first_line": 201}')),
            Stop.TOOL_CALLS,
            "m",
            Usage(fresh=900, visible=40),
        ),
        ResultRecord(TURN, call, "call_1", "read_file", ResultStatus.TIMEOUT, (Text("it took too long\x1b[2J"),)),
        NoteRecord(TURN, "failure", "the server is busy"),
        ResponseRecord(TURN, (TextBlock("One.\nTwo.\nThree.\nFour.\nFive.\nSix."),), Stop.END_TURN, "m"),
    ]


def stored(records: list[Record]) -> StoredAgent:
    """An agent with a bit of everything."""
    envelope = Envelope(MessageId("m-2"), LEAD, Lane.SEND, (Text("And tests?"),))
    open_call = CallRow(CallId("lead:t2.1.0"), LEAD, TURN, "write", '{"path": "b.py"}', CallState.UNKNOWN)
    return StoredAgent(
        row(
            "lead", key="nightly", budget='{"usd":"1"}', usage=Usage(fresh=900, visible=40), spent=Amounts(tool_calls=1)
        ),
        Intake.OPEN,
        len(records),
        (Queued(2, envelope), Queued(3, envelope, ReceiptState.HELD)),
        (open_call,),
    )


def test_a_tree_shows_every_state() -> None:
    """Each agent has a line with its state and what it and all below it used."""
    rows: list[tuple[AgentRow, Outcome | None]] = [
        (row("lead", usage=Usage(fresh=10), open=OpenTurn(2, 1, step=3)), None),
        (row("lead/a", usage=Usage(fresh=100), spent=Amounts(cost=2 * 10**9)), ended("lead/a", text="Fine.")),
        (row("lead/a/deep", usage=Usage(fresh=1000)), ended("lead/a/deep", Status.FAILED, failure=Failure("x", "no"))),
        (row("lead/b", suspended="leaving"), None),
        (row("lead/c", owes=True), None),
        (row("lead/d", turns=0), None),
    ]
    assert [line.plain.rstrip() for line in tree_lines(states(rows), 80, 99)] == [
        "● lead                                in turn 2, step 3            1.1k  $0.0020",
        "├─ ✓ a                                Fine.                        1.1k  $0.0020",
        "│  └─ ✗ deep                          failed: no                   1.0k",
        "├─ ◐ b                                suspended: leaving",
        "├─ ○ c                                owes work",
        "└─ ○ d                                was asked nothing yet",
        "6 agents · 1,110 tokens · $0.0020",
    ]


def test_an_open_turn_that_nobody_owns_was_cut_off() -> None:
    """Where no process has the store, what was under way is shown as cut off; where one has, it is named."""
    rows: list[tuple[AgentRow, Outcome | None]] = [(row("lead", open=OpenTurn(2, 1, step=3)), None)]
    assert tree_lines(states(rows, owned=False), 80, 9)[0].plain.rstrip().endswith("cut off in turn 2, step 3")
    assert tree_lines(states(rows), 80, 9, owner="process 7 (x)")[-1].plain.endswith("in use by process 7 (x)")
    rows = [(row("lead", open=OpenTurn(2, 1, step=3, left=True)), None)]
    assert tree_lines(states(rows, owned=False), 80, 9)[0].plain.rstrip().endswith(" left in turn 2, step 3")


def test_messages_that_wait_are_told_of_each_agent() -> None:
    """What is over waits again; who works or stands still says so first."""
    assert state_of(row("a"), ended("a"), owned=False, waiting=2) == (Look.WAITING, "2 messages wait")
    assert state_of(row("a", suspended="paused"), None, owned=True, waiting=1) == (
        Look.STILL,
        "paused; 1 message waits",
    )
    assert owed_lines(Owed(0), "x.db", 80) == []
    assert owed_lines(Owed(2), "x.db", 80)[0].plain == "2 agents owe work, and no process goes on:"
    assert len(owed_lines(Owed(2), "x.db", 80)) == 3
    assert owed_lines(Owed(2, 1, 1), "x.db", 80)[3].plain == "  and then a person must act for 1: approve, or wake()"


def test_a_large_tree_fits_the_screen() -> None:
    """A thousand finished agents are counted, and the last of them shown."""
    rows: list[tuple[AgentRow, Outcome | None]] = [(row("lead"), ended("lead"))]
    for n in range(1, 1001):
        path = child_path("lead", "kid", n)
        rows.append((row(path), ended(path)))
    lines = [line.plain.rstrip() for line in tree_lines(states(rows), 80, 10)]
    assert len(lines) == 10
    assert lines[1] == "├─ ✓ kid: 993 done"
    assert lines[-2].startswith("└─ ✓ kid#1000")
    assert len(tree_lines(states(rows), 80, 10_000)) == 1002


def test_one_agent_shows_state_and_conversation() -> None:
    """State first, then the conversation, with nothing in it that commands the terminal."""
    records = conversation()
    kv = [KvRow(LEAD, "agent", f"k{n}", str(n)) for n in range(7)]
    lines = agent_lines(
        stored(records), list(enumerate(records)), state=(Look.DONE, ""), kv=kv, children=2, width=60, limit=40
    )
    assert [line.plain for line in lines] == [
        "lead",
        "  done",
        "  mailbox open: 1 message waiting, 1 held",
        "  1 turn, 1 run, 5 records, 2 children",
        "  900 tokens in, 40 out, free, 1 tool call",
        "  key nightly",
        '  budget {"usd":"1"}',
        "  call write unknown: b.py",
        "  k0 = 0",
        "  k1 = 1",
        "  k2 = 2",
        "  k3 = 3",
        "  k4 = 4",
        "  … 2 more values in its store",
        "─" * 40,
        "   0 asked",
        "     Review src/",
        "     [image image/png]",
        "   1 thought  Hm.",
        "   1 calls read_file  a.py 201",
        "   2 read_file timeout  it took too long\N{REPLACEMENT CHARACTER}[2J",
        "   3 note (failure)  the server is busy",
        "   4 said",
        "     One.",
        "     Two.",
        "     Three.",
        "     Four.",
        "     … 2 more lines",
    ]


def test_what_does_not_fit_is_the_beginning() -> None:
    """On a small screen the end of the conversation stands, and how much is missing is said."""
    records = conversation()
    lines = agent_lines(
        stored(records), list(enumerate(records)), state=(Look.DONE, ""), kv=[], children=0, width=60, limit=17
    )
    plain = [line.plain for line in lines]
    assert len(plain) <= 17
    assert plain[-1] == "     … 2 more lines"
    assert "… 3 earlier records; --all shows everything" in plain


def test_everything_is_whole() -> None:
    """With no limit every line of every text stands there."""
    records = conversation()
    lines = agent_lines(
        stored(records), list(enumerate(records)), state=(Look.DONE, ""), kv=[], children=0, width=10, limit=None
    )
    assert "Six." in [line.plain for line in lines]
    assert '{"path": "a.py", "first_line": 201}' in [line.plain for line in lines]


@given(st.text(max_size=200), st.integers(1, 100), st.integers(10, 40))
def test_any_text_fits(text: str, width: int, limit: int) -> None:
    """Whatever was said, no line is wider than the screen and no more lines come than fit."""
    records: list[Record] = [
        MessageRecord(TURN, MessageId("m"), (Text(text),)),
        ResponseRecord(TURN, (TextBlock(text), CallBlock(CallId("c"), "w", text, text)), Stop.TOOL_CALLS, "m"),
        ResultRecord(TURN, CallId("c"), "w", text, ResultStatus.OK, (Text(text),)),
    ]
    agent = StoredAgent(row("lead", key=text), Intake.OPEN, 3)
    lines = agent_lines(
        agent, list(enumerate(records)), state=(Look.DONE, text and "x"), kv=[], children=0, width=width, limit=limit
    )
    assert len(lines) <= max(limit, 10)
    for line in lines:
        assert cell_len(line.plain) <= width
        assert line.plain.isprintable()
