"""The codec: what is written is read again, old files are read for ever, and nothing else is accepted.

`python -m tests.actors.test_codec` writes the golden files of versions that have none; it never changes one that
stands. Before the first release, delete a file to have it written anew.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors import codec
from actors.changes import AgentRow, Asking, CallRow, CallState, KeptResult, KvRow, OpenTurn, OutcomeRow
from actors.codec import Form, Stored
from actors.content import File, Image, Text, Trust
from actors.errors import Corrupt, InternalError
from actors.ids import AgentId, CallId, MessageId, RunId, TurnId
from actors.kept import TAG, Kept
from actors.messages import (
    Asked,
    CallDone,
    Decision,
    Envelope,
    Failure,
    Lane,
    Outcome,
    Purpose,
    Selection,
    Status,
    Verdict,
)
from actors.transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    ResponseRecord,
    ResultRecord,
    ResultStatus,
    Stop,
    SummaryRecord,
    TextBlock,
)
from actors.usage import Amounts, Usage

GOLDEN = Path(__file__).with_name("golden")
FORMS: tuple[Form[Any], ...] = (codec.RECORD, codec.AGENT, codec.CALL, codec.OUTCOME, codec.KV, codec.ENVELOPE)
AGENT, TURN, CALL = AgentId("lead/child#2"), TurnId("lead/child#2:t3"), CallId("lead/child#2:t3.1.0")
ALL = (
    Text("é \u2028 \ud83d"),
    Image("image/png", data="aGk="),
    Image("image/png", url="u"),
    File("f", "text/plain", "aGk="),
)
USAGE, AMOUNTS = Usage(1, 2, 3, 4, 5), Amounts(1, 2, 10**20, 4, 5, 6)
RESULT = ResultRecord(TURN, CALL, "w1", "read", ResultStatus.TIMEOUT, (Text("late"),), Trust.EXTERNAL, ("paths",))
OUTCOME = Outcome(
    AGENT, RunId("lead/child#2:r1"), TURN, Status.NEEDS_INPUT, text="so far", output="{}", output_type="Verdict",
    usage=USAGE, spent=AMOUNTS,
    cost_known=False, failure=Failure("exhausted", "no more", (("node", "lead"), ("limit", "5"))),
    question=Asked(MessageId("m-2"), AGENT, "which?"), calls=(CallDone(CALL, "read", "ok"),), trust=Trust.EXTERNAL,
)  # fmt: skip

SAMPLES: dict[str, tuple[Form[Any], Any, Any]] = {  # a full value, and one of defaults
    "message": (
        codec.RECORD,
        MessageRecord(TURN, MessageId("m-1"), ALL, AGENT, steer=True, trust=Trust.WORKSPACE, pinned=True),
        MessageRecord(TURN, MessageId("m-1"), (Text("hello"),)),
    ),
    "response": (
        codec.RECORD,
        ResponseRecord(
            TURN,
            (
                ReasoningBlock("hm", "openai:m", '{"s":1}'),
                ReasoningBlock("hm"),
                TextBlock("half", half=True),
                TextBlock("whole"),
                CallBlock(CALL, "w1", "read", "{", "malformed_json"),
                CallBlock(CALL, "w1", "read", "{}"),
            ),
            Stop.TOOL_CALLS,
            "model",
            USAGE,
        ),
        ResponseRecord(TURN, (TextBlock("whole"),), Stop.END_TURN, "model"),
    ),
    "result": (codec.RECORD, RESULT, ResultRecord(TURN, CALL, "w1", "read", ResultStatus.OK, (Text("5"),))),
    "note": (codec.RECORD, NoteRecord(TURN, "failure", "it broke", (MessageId("m1"),)), NoteRecord(TURN, "notice", "")),
    "summary": (
        codec.RECORD,
        SummaryRecord(
            TURN, "all of it", 7, (0, 3), 5, handover=True, model="openai:m", usage=USAGE, trust=Trust.EXTERNAL
        ),
        SummaryRecord(TURN, "", 0),
    ),
    "agent": (
        codec.AGENT,
        AgentRow(
            AGENT, "lead", "child", "digest", owes=True, turns=3, runs=2,
            open=OpenTurn(
                3, 2, 1, asking=True, held=AMOUNTS, tries=1, consumed=(MessageId("m-1"), MessageId("m-2")),
                output="Verdict", alone=True, left=True, skipped=(CALL,), began_us=5,
                lost=(3, 5),
            ),
            usage=USAGE, spent=AMOUNTS, cost_known=False, budget='{"usd":"1"}', key="nightly", task_digest="task",
            suspended="leaving", background=True, started_by=CALL, run_usage=USAGE, run_spent=AMOUNTS,
            summary=7, context=12_000, selection=Selection("openai:m", "high", ""), singly=(MessageId("m-9"),),
            kept=(KeptResult(CALL, "read", 70_000, Trust.EXTERNAL),), trust=Trust.WORKSPACE,
        ),
        AgentRow(AGENT, "lead", "child", "digest"),
    ),
    "call": (
        codec.CALL,
        CallRow(
            CALL, AGENT, TURN, "read", "{}", CallState.SETTLED, 2, RESULT,
            Asking("repeat", '{"path": "a"}', "digest", 5, 6),
        ),
        CallRow(CALL, AGENT, TURN, "read", "{}", CallState.PLANNED),
    ),
    "turn_outcome": (
        codec.OUTCOME,
        OutcomeRow(TURN, AGENT, RunId("lead/child#2:r1"), OUTCOME),
        OutcomeRow(TURN, AGENT, RunId("r"), Outcome(AGENT, RunId("r"), TURN, Status.DONE)),
    ),
    "kv": (codec.KV, KvRow(AGENT, "agent", "k", '{"a": "\\u00e9"}'), KvRow(AGENT, "agent", "", "")),
    "envelope": (
        codec.ENVELOPE,
        Envelope(
            MessageId("m-1"), AGENT, Lane.STEER, ALL, sender=AgentId("lead"), purpose=Purpose.ANSWER, key="k",
            output="Verdict", interrupt=True, trust=Trust.EXTERNAL, target=CALL, reserved=True, reason="why",
            decision=Decision(Verdict.DENIED, "an operator", "not now"),
            select=Selection("openai:m", "", "flex"), pinned=True, expires_ms=1_700_000_000_000,
        ),
        Envelope(MessageId("m-1"), AGENT, Lane.SEND, (Text("hello"),)),
    ),
}  # fmt: skip


def newest(tag: str) -> int:
    """The newest version of a class."""
    return next(len(stored.versions) for stored in codec.STORED if stored.tag == tag)


def golden_lines(tag: str, version: int) -> list[bytes]:
    """The golden file of a version: a full value and one of defaults, a line each."""
    return (GOLDEN / f"{tag}.{version}.jsonl").read_bytes().splitlines()


# -- golden files ------------------------------------------------------------------------------------------------


def test_samples_fill_every_field_of_every_stored_class() -> None:
    """The golden files would miss a field that no sample sets."""
    unset = {(stored.tag, name) for stored in codec.STORED for name in stored.cls.__struct_fields__}
    tags = {stored.cls: stored.tag for stored in codec.STORED}

    def visit(value: Any) -> None:
        if isinstance(value, tuple):
            for item in value:
                visit(item)
        elif type(value) in tags:
            signature = inspect.signature(type(value)).parameters
            for name in type(value).__struct_fields__:
                inner = getattr(value, name)
                if inner != signature[name].default:
                    unset.discard((tags[type(value)], name))
                visit(inner)

    for _, full, _ in SAMPLES.values():
        visit(full)
    assert unset == set()


@pytest.mark.parametrize("tag", SAMPLES)
def test_newest_version_is_written_as_its_golden_file_says(tag: str) -> None:
    """What is written today is byte for byte what the file of its version holds."""
    form, *samples = SAMPLES[tag]
    assert [form.encode(sample) for sample in samples] == golden_lines(tag, newest(tag))


@pytest.mark.parametrize("tag", SAMPLES)
def test_every_version_ever_written_is_read(tag: str) -> None:
    """Each version has its file, and the file of the newest is read as the samples."""
    form, *samples = SAMPLES[tag]
    for version in range(1, newest(tag) + 1):
        assert len([form.decode(line) for line in golden_lines(tag, version)]) == 2
    assert repr([form.decode(line) for line in golden_lines(tag, newest(tag))]) == repr(samples)


def test_defaults_are_left_out() -> None:
    """A row costs what it says: fields that have their default are not written."""
    raw = json.loads(codec.ENVELOPE.encode(SAMPLES["envelope"][2]))
    assert set(raw) == {"#", "id", "to", "lane", "content"}


# -- round trips -------------------------------------------------------------------------------------------------

IDS = st.text(max_size=9)
st.register_type_strategy(str, st.text(st.characters(), max_size=20))
VALUES = st.one_of(
    *[st.builds(cls) for cls in (MessageRecord, ResponseRecord, ResultRecord, NoteRecord)],
    *[st.builds(cls) for cls in (AgentRow, CallRow, OutcomeRow, KvRow, Envelope)],
)


def form_of(value: object) -> Form[Any]:
    """The form that writes a value."""
    return next(form for form in FORMS if type(value) in form._classes)


@given(VALUES)
def test_what_is_written_is_read_again(value: object) -> None:
    """Any value comes back as it was, of the same classes."""
    form = form_of(value)
    again = form.decode(form.encode(value))
    assert again == value
    assert repr(again) == repr(value)  # an enum and its text are equal, and not the same


@given(VALUES, st.data())
def test_damaged_rows_are_corrupt_or_read(value: object, data: st.DataObject) -> None:
    """Whatever is done to the bytes, the answer is a value or `Corrupt`, never another error."""
    form = form_of(value)
    body = bytearray(form.encode(value))
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = form.decode(bytes(body))
    except Corrupt:
        return
    assert type(read) in form._classes


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=3)


@given(VALUES, st.data())
def test_values_of_another_type_are_not_coerced(value: object, data: st.DataObject) -> None:
    """A field of another JSON type is never taken: what is read is written again as it was."""
    form = form_of(value)
    raw = json.loads(form.encode(value))
    raw[data.draw(st.sampled_from(sorted(raw)))] = data.draw(JSON)
    try:
        read = form.decode(json.dumps(raw).encode())
    except Corrupt:
        return
    written = json.loads(form.encode(read))
    assert json.dumps(written | raw, sort_keys=True) == json.dumps(raw, sort_keys=True)


# -- refusals ----------------------------------------------------------------------------------------------------

MESSAGE = '"#":"message","turn":"t","message":"m"'


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "Expecting value"),
        (b"\xff", "the byte 0xff at 0 is in no text"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `#`"),
        (b'{"#":1}', "Expected `str`, got `int` - at `$.#`"),
        (b'{"#":"agent"}', "Invalid value 'agent' - at `$.#`"),
        (b'{"#":"message"}', "missing required field `turn`"),
        (f'{{{MESSAGE},"content":"abc"}}', "Expected `array`, got `str` - at `$.content`"),
        (f'{{{MESSAGE},"content":[3]}}', "Expected `object`, got `int` - at `$.content[0]`"),
        (f'{{{MESSAGE},"content":[{{"text":"x"}}]}}', "missing required field `#` - at `$.content[0]`"),
        (f'{{{MESSAGE},"content":[{{"#":"said","text":"x"}}]}}', "Invalid value 'said' - at `$.content[0].#`"),
        (f'{{{MESSAGE},"content":[{{"#":"text","text":5}}]}}', "Expected `str`, got `int` - at `$.content[0].text`"),
        (f'{{{MESSAGE},"content":[],"steer":1}}', "Expected `bool`, got `int` - at `$.steer`"),
        (f'{{{MESSAGE},"content":[],"trust":"all"}}', "Invalid enum value 'all' - at `$.trust`"),
        (f'{{{MESSAGE},"content":[],"more":1}}', "contains unknown field `more`"),
        (b'{"#":"message.2","turn":"t"}', "version 2 of message: this callboard knows 1 to 1"),
        (b'{"#":"message.x","turn":"t"}', "version x of message"),
        (b'{"#":"message.0","turn":"t"}', "version 0 of message"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_corrupt_with_its_path(body: str | bytes, told: str) -> None:
    """The error says what was met, what would be accepted, and where."""
    with pytest.raises(Corrupt) as caught:
        codec.RECORD.decode(body.encode() if isinstance(body, str) else body)
    assert told in str(caught.value)


def test_numbers_are_whole_numbers() -> None:
    """Neither truth nor a fraction nor text is taken for a number."""
    for wrong in ("true", "1.0", '"1"'):
        body = f'{{"#":"response","turn":"t","blocks":[],"stop":"error","model":"m","usage":{{"fresh":{wrong}}}}}'
        with pytest.raises(Corrupt, match=r"Expected `int`, got `(bool|float|str)` - at `\$\.usage\.fresh`"):
            codec.RECORD.decode(body.encode())


def test_pairs_have_two_parts() -> None:
    """The facts of a failure are pairs."""
    outcome = '{"path":"p","run":"r","turn":"t","status":"failed","failure":{"kind":"k","message":"m","facts":[["a"]]}}'
    body = f'{{"#":"turn_outcome","turn":"t","agent":"a","run":"r","outcome":{outcome}}}'
    with pytest.raises(Corrupt, match=r"Expected `array` of length 2, got 1 - at `\$\.outcome\.failure\.facts\[0\]`"):
        codec.OUTCOME.decode(body.encode())


def test_long_values_are_shortened_in_errors() -> None:
    """A damaged row does not fill the screen."""
    with pytest.raises(Corrupt) as caught:
        codec.RECORD.decode(json.dumps(["x" * 10_000]).encode())
    assert len(str(caught.value)) < 200


def test_a_value_of_no_class_of_the_form_is_our_bug() -> None:
    """A form writes its own classes only."""
    with pytest.raises(InternalError, match="Text is not a record"):
        codec.RECORD.encode(Text("x"))  # type: ignore[arg-type]


# -- versions ----------------------------------------------------------------------------------------------------


class Point(Kept, frozen=True, tag_field=TAG, tag="point.2"):
    x: int
    y: int = 0


class Line(Kept, frozen=True, tag_field=TAG, tag="line"):
    points: tuple[Point, ...]
    first: Point | None = None


def _split(raw: dict[str, Any]) -> dict[str, Any]:
    x, y = raw.pop("at")
    return {**raw, "x": x, "y": y}


POINTS = (Stored(Point, "point", ("one list", "two fields"), (_split,)), Stored(Line, "line"))


def test_old_versions_are_upgraded_and_new_ones_written() -> None:
    """A row without a version is of the first; steps lead from there to the newest, which says its number."""
    form: Form[Point] = Form("point", Point, POINTS)
    assert form.decode(b'{"#":"point","at":[1,2]}') == Point(1, 2)
    assert form.decode(b'{"#":"point.2","x":1}') == Point(1)
    assert json.loads(form.encode(Point(1))) == {"#": "point.2", "x": 1}
    with pytest.raises(Corrupt, match="version 3 of point: this callboard knows 1 to 2"):
        form.decode(b'{"#":"point.3","x":1}')
    with pytest.raises(Corrupt, match="KeyError"):
        form.decode(b'{"#":"point","x":1}')


def test_what_stands_inside_is_upgraded_too() -> None:
    """A class that had no tag is of the first version, wherever it stands: in a sequence, or where it may be absent."""
    form: Form[Line] = Form("line", Line, POINTS)
    body = b'{"#":"line","points":[{"#":"point.2","x":1},{"at":[3,4]}],"first":{"at":[5,6]}}'
    assert form.decode(body) == Line((Point(1), Point(3, 4)), Point(5, 6))


@pytest.mark.parametrize(
    "table",
    [
        (Stored(Point, "point", ("one", "two")),),
        (Stored(Line, "line", ("",)),),
        (Stored(Line, "line", (), ()),),
        (Stored(Line, "line"), Stored(Line, "other")),
        (Stored(Line, "line"), Stored(Text, "line")),
        (Stored(Line, "line"), Stored(Line, "line")),
        (Stored(Point, "point"),),
        (Stored(Amounts, "amounts", ("one", "two"), (_split,)),),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(table: tuple[Stored, ...]) -> None:
    """A version without its step or summary, a tag used twice, and a class that is written otherwise are bugs."""
    with pytest.raises(InternalError):
        codec.check_table(table)


def test_the_table_of_what_is_stored_holds() -> None:
    """Every class is written with the tag that the table says."""
    assert len(codec.check_table(codec.STORED)) == len(codec.STORED)


def test_tags_are_not_class_names() -> None:
    """Renaming a class changes nothing that is stored."""
    assert not {stored.tag for stored in codec.STORED} & {stored.cls.__name__ for stored in codec.STORED}


def test_half_an_emoji_is_written_and_read() -> None:
    """A lone surrogate is kept: models do write one, and no other row is the slower for it."""
    for value in (TextBlock("\ud83d"), TextBlock("\U0001f600")):
        record = ResponseRecord(TURN, (value,), Stop.END_TURN, "model", USAGE)
        assert codec.RECORD.decode(codec.RECORD.encode(record)) == record


def test_golden_rows_of_the_first_form_are_read() -> None:
    """Where the tag stands in its object does not matter: before it stood first, it stood last."""
    for form, *samples in SAMPLES.values():
        for sample in samples:
            raw = json.loads(form.encode(sample))
            raw["#"] = raw.pop("#")
            assert form.decode(json.dumps(raw).encode()) == sample


if __name__ == "__main__":
    for name, (form, *values) in SAMPLES.items():
        path = GOLDEN / f"{name}.{newest(name)}.jsonl"
        if not path.exists():
            path.write_bytes(b"".join(form.encode(value) + b"\n" for value in values))
