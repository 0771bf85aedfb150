"""The plain values of the core: identifiers, money, tokens, budgets, content, errors as they are kept."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import TYPE_CHECKING, cast

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors import ids
from actors.agent import Agent
from actors.budget import Budget, Dimension, Limits
from actors.changes import AgentRow, CallRow, CallState, KvRow, OutcomeRow, row_key
from actors.compaction import Compaction
from actors.content import File, Image, Pinned, Text, as_content, size_of, text_of
from actors.errors import (
    BY_KIND,
    AgentClosed,
    AnswerUnfit,
    CallboardError,
    DeadLettered,
    Exhausted,
    InDoubt,
    MailboxFull,
    Overloaded,
    Unfinished,
    UsageError,
    WaitCycle,
)
from actors.ids import AgentId, CallId, MessageId, RunId, TurnId
from actors.messages import Asked, Failure, LaneBound, Outcome, ReceiptState, Selection, Status, failure_of
from actors.output import output_spec
from actors.reports import Question, Report, error_of, report_of
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
    owes_response,
    problems,
    record_bytes,
)
from actors.usage import FREE, NOTHING, PICO, Amounts, Price, Usage, dollars, picodollars

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = st.text("abc-_ ", min_size=1, max_size=6)
ORDINALS = st.integers(1, 10**6)
COUNTS = st.integers(0, 10**15)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
AMOUNTS = st.builds(Amounts, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
AGENT, TURN = AgentId("lead"), TurnId("lead:t1")


# -- identifiers -------------------------------------------------------------------------------------------------


@given(NAMES, st.lists(st.tuples(NAMES, ORDINALS), max_size=4))
def test_ids_core_a_path_says_of_whom_it_is(root: str, below: list[tuple[str, int]]) -> None:
    """From the path alone: its tree, its parent, its name, its ordinal; and every id made of it says the agent."""
    path, parent, name, ordinal = ids.child_path("", root, 1), "", root, 1
    for name, ordinal in below:
        parent, path = path, ids.child_path(path, name, ordinal)
    assert ids.tree_of(path) == root
    assert (ids.parent_path(path), ids.name_of(path), ids.ordinal_of(path)) == (parent, name, ordinal)
    turn = ids.turn_id(path, 7)
    made = (turn, ids.run_id(path, 7), ids.request_id(turn, 3), ids.call_id(turn, 3, 0))
    assert len(set(made)) == len(made)
    assert {ids.agent_of(one) for one in made} == {path}


@given(st.lists(st.tuples(NAMES, ORDINALS), unique=True, max_size=8))
def test_ids_core_two_children_never_share_a_path(children: list[tuple[str, int]]) -> None:
    """Name and ordinal are both in the path."""
    assert len({ids.child_path("lead", name, ordinal) for name, ordinal in children}) == len(children)


# -- money and tokens --------------------------------------------------------------------------------------------


@given(st.integers(0, 10**24))
def test_bud_9_core_dollars_and_picodollars_are_each_others_inverse(pico: int) -> None:
    """No figure is rounded on its way in or out, whatever its size, and it is shown without an exponent."""
    shown = dollars(pico)
    assert picodollars(shown) == picodollars(str(shown)) == pico
    assert shown == shown.quantize(Decimal(1)) or "E+" not in str(shown)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (0.5, "never a float"),
        (True, "never a float"),
        ("half", "decimal number"),
        ("", "decimal number"),
        ([], "decimal number"),
        ("NaN", "0 to 10"),
        ("Infinity", "0 to 10"),
        ("-1", "0 to 10"),
        ("1e16", "0 to 10"),
        (10**400, "0 to 10"),
        ("0.0000000000001", "whole in units"),
    ],
)
def test_bud_9_core_money_that_is_not_exact_is_refused(value: object, says: str) -> None:
    """A float, a negative, a text that is no number, and what is finer than a picodollar."""
    with pytest.raises(UsageError, match=says):
        picodollars(value)  # type: ignore[arg-type]  # that is the point


def test_bud_9_core_a_price_is_whole_per_token() -> None:
    """Six decimals per million tokens, and no more."""
    assert Price("0.000001", "0").input == 1
    with pytest.raises(UsageError, match="six decimals"):
        Price("0.0000001", "0")


@given(USAGES, st.integers(0, 10**8), st.integers(0, 10**8), st.none() | st.integers(0, 10**8))
def test_req_7_core_every_token_is_priced_once(usage: Usage, fresh: int, out: int, cached: int | None) -> None:
    """A cost is the sum over the classes, each at its own price, or at that of input where it has none."""

    def per_million(pico: int | None) -> Decimal | None:
        return None if pico is None else dollars(pico * 1_000_000)

    price = Price(dollars(fresh * 1_000_000), dollars(out * 1_000_000), per_million(cached), per_million(cached))
    in_price = fresh if cached is None else cached
    cost = usage.fresh * fresh + (usage.cached + usage.cache_write) * in_price
    assert price.cost(usage) == cost + (usage.visible + usage.reasoning) * out
    assert FREE.cost(usage) == 0


def test_req_7_core_each_class_has_a_price_of_its_own() -> None:
    """Fresh, read from a cache, written to one, and all that comes out, reasoning included."""
    price = Price("1", "20", cached="300", cache_write="4000")
    usage = Usage(fresh=1, cached=1, cache_write=1, visible=1, reasoning=1)
    assert dollars(price.cost(usage) * 1_000_000) == 1 + 300 + 4000 + 2 * 20


@given(USAGES, USAGES)
def test_req_7_core_tokens_add_up_class_by_class(one: Usage, other: Usage) -> None:
    """Nothing is lost or counted twice: input and output are disjoint, and make the total."""
    made = one + other
    assert made.input_tokens == one.input_tokens + other.input_tokens
    assert made.output_tokens == one.output_tokens + other.output_tokens
    assert made.total_tokens == made.input_tokens + made.output_tokens
    assert made.cache_write == one.cache_write + other.cache_write
    assert made.reasoning == one.reasoning + other.reasoning
    assert made.cached == one.cached + other.cached


@given(AMOUNTS, AMOUNTS, AMOUNTS)
def test_bud_2_core_amounts_are_a_group(one: Amounts, other: Amounts, third: Amounts) -> None:
    """What is held and given back leaves nothing behind, in whatever order."""
    assert one + other - other == one
    assert (one + other) + third == one + (other + third)
    assert one - one == NOTHING
    assert (one + other).tokens == one.tokens + other.tokens


# -- budgets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, 1.5, True, "5"])
@pytest.mark.parametrize("name", ["tokens", "agents", "depth"])
def test_bud_1_core_counts_are_whole_numbers(name: str, value: object) -> None:
    """What cannot be counted is refused where the budget is written."""
    with pytest.raises(UsageError, match=f"{name}=.*whole number from 0"):
        Budget(**{name: value})  # type: ignore[arg-type]


def test_bud_1_core_the_limits_of_a_budget_are_those_that_are_set() -> None:
    """Zero is a limit, None is none; money and time are whole inside."""
    assert dict(Budget().limits()) == {}
    assert dict(Budget(usd="0.5", seconds=1.5, tokens=0, depth=2).limits()) == {
        Dimension.COST: PICO // 2,
        Dimension.SECONDS: 1_500_000,
        Dimension.TOKENS: 0,
        Dimension.DEPTH: 2,
    }
    counted = {"tokens", "input_tokens", "output_tokens", "model_calls", "tool_calls", "agents", "depth"}
    for name in counted:
        assert [(found.value, limit) for found, limit in Budget(**{name: 3}).limits()] == [(name, 3)]  # type: ignore[arg-type]


def test_bud_4_core_stages_come_one_after_another() -> None:
    """Soft is not behind critical, and neither is behind the limit."""
    for soft, critical in ((0.9, 0.5), (0.5, 1.1), (-0.1, 0.5)):
        with pytest.raises(UsageError, match="0 <= soft <= critical <= 1"):
            Budget(soft=soft, critical=critical)
    assert Budget(soft=0.5, critical=0.5).critical == 0.5


def test_bud_4_core_what_exhaustion_does_is_one_of_three() -> None:
    """Any other word is refused, with the three."""
    with pytest.raises(UsageError, match="wrap_up, park, fail"):
        Budget(on_exhausted="stop")


WHOLE: dict[str, int] = {one.name: 1 for one in attrs.fields(Limits) if str(one.type) == "int"} | {"repeated_cycles": 2}
WHOLE |= dict.fromkeys(("kept_chars", "output_repairs", "approvals", "hook_messages"), 0)
"""The limits that are counts, and the least of each."""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(name, value) for name in sorted(WHOLE) for value in (1.5, 3.0, math.inf, -1, "3", True, None, 10**15 + 1)],
        *[(name, value) for name in ("first_event_s", "between_events_s", "hard_s") for value in (-1, True, "1", None)],
        *[(name, value) for name in ("turn_s", "approve_s") for value in (0, -1, True, "1", math.inf)],
    ],
)
def test_bounds_core_that_cannot_hold_are_refused(name: str, value: object) -> None:
    """With the name of the bound and what it may be: a count is whole, however it is written; a time is a number."""
    says = "a whole number from" if name in WHOLE else "seconds"
    with pytest.raises(UsageError, match=f"Limits\\({name}=...\\) is {says}"):
        Limits(**{name: value})  # type: ignore[arg-type]


def test_bounds_core_what_can_hold_is_taken() -> None:
    """The least of each count, but nothing below it; and no bound for a time."""
    made = Limits(**WHOLE, hard_s=math.inf, first_event_s=0.5, turn_s=None)  # type: ignore[arg-type]
    assert {name: getattr(made, name) for name in WHOLE} == WHOLE
    for name, least in WHOLE.items():
        with pytest.raises(UsageError, match=f"is a whole number from {least}"):
            Limits(**{name: least - 1})  # type: ignore[arg-type]


@given(st.integers(0, 1_000), st.floats(0, 1))
def test_acc_6_core_a_sender_has_its_share_of_a_lane_and_at_least_one_place(messages: int, share: float) -> None:
    """However small the lane or the share."""
    assert LaneBound(messages=messages, share=share).of_one_sender == max(1, int(messages * share))


# -- content -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 5, [], (), [5], {"text": "a"}])
def test_acc_1_core_what_is_no_message_is_refused(value: object) -> None:
    """Nothing, or what is no text, image or file."""
    with pytest.raises(UsageError, match="a message is text"):
        as_content(value)


@given(st.lists(st.text(max_size=5), min_size=1, max_size=4))
def test_content_core_is_its_parts_in_order(texts: list[str]) -> None:
    """Images and files have no text, and a list is the parts of its items; pinning changes nothing of it."""
    image, file = Image("image/png", data="aGk="), File("a.txt", "text/plain", "aGk=")
    made = as_content(Pinned([*texts, image, file]))
    assert made == (*map(Text, texts), image, file)
    assert text_of(made) == "\n".join(texts)
    assert text_of(made[:1]) == texts[0]


@given(st.text(max_size=8), st.text(max_size=8))
def test_acc_6_core_content_weighs_what_it_takes_as_bytes(text: str, more: str) -> None:
    """Part by part, in UTF-8; half an emoji too."""
    one, other = size_of((Text(text),)), size_of((Text(more),))
    assert size_of((Text(text), Text(more))) == one + other
    assert size_of((Text(text),)) - size_of((Text(""),)) == len(text.encode("utf-8", "surrogatepass"))
    empty = size_of((Image("image/png", data=""),))
    assert size_of((Image("image/png", data="abcd"),)) - empty == 4
    assert size_of((Image("image/png", url="abc"),)) - empty == 3
    named = File("a.txt", "text/plain", "abcd")
    assert size_of((named,)) - size_of((File("", "text/plain", ""),)) == len("a.txt") + len("abcd")


@pytest.mark.parametrize("name", ["model", "effort", "tier"])
def test_sel_1_core_a_choice_is_text(name: str) -> None:
    """An object in its place is refused, with the way to say it."""
    with pytest.raises(UsageError, match=f"Selection\\({name}=...\\) is text or None"):
        Selection(**{name: object()})  # type: ignore[arg-type]


def test_con_1_core_a_receipt_has_come_to_its_end_in_four_states() -> None:
    """And in no other."""
    ends = {ReceiptState.CONSUMED, ReceiptState.WITHDRAWN, ReceiptState.DEAD, ReceiptState.REFUSED}
    assert {state for state in ReceiptState if state.final} == ends


# -- records -----------------------------------------------------------------------------------------------------

WIRE = CallBlock(CallId("lead:t1.1.0"), "w", "look", "{}")


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [
        ((), "an empty response"),
        ((TextBlock("a"), ReasoningBlock("b")), "not in the order"),
        ((WIRE, CallBlock(CallId("lead:t1.1.1"), "w", "look", "{}")), "a call id stands twice"),
        ((WIRE,), "at the end: results of"),
    ],
)
def test_trn_5_core_what_no_provider_takes_is_named(blocks: tuple[object, ...], problem: str) -> None:
    """An empty response, blocks out of order, a wire id that stands twice, a call without a result."""
    record = ResponseRecord(TURN, blocks, Stop.END_TURN, "m")  # type: ignore[arg-type]
    assert any(problem in found for found in problems([record]))


def test_tol_1_core_what_stands_between_a_call_and_its_result_is_named() -> None:
    """A note there makes both problems: it comes too early, and the result too late."""
    response = ResponseRecord(TURN, (WIRE,), Stop.TOOL_CALLS, "m")
    found = problems([response, NoteRecord(TURN, "notice", "hm")])
    assert found == ["record 1: NoteRecord while results of ['lead:t1.1.0'] are owed"]


def test_tol_1_core_a_result_without_its_call_is_named() -> None:
    """One that no call owes, and one that comes before its turn."""
    two = CallBlock(CallId("lead:t1.1.1"), "w2", "look", "{}")
    first, second = (
        ResultRecord(TURN, block.id, block.wire_id, "look", ResultStatus.OK, (Text("a"),)) for block in (WIRE, two)
    )
    assert problems([first]) == ["record 0: result of lead:t1.1.0 where none is owed"]
    found = problems([ResponseRecord(TURN, (WIRE, two), Stop.TOOL_CALLS, "m"), second, first])
    assert found == ["record 1: result of lead:t1.1.1 where ['lead:t1.1.0'] is owed"]


def test_records_weigh_what_they_show() -> None:
    """Reasoning with what a provider keeps in it, calls with their arguments, a summary as it is shown."""
    bare = record_bytes(ResponseRecord(TURN, (), Stop.END_TURN, "m"))

    def of(*blocks: object) -> int:
        return record_bytes(ResponseRecord(TURN, blocks, Stop.END_TURN, "m")) - bare  # type: ignore[arg-type]

    assert of(TextBlock("four")) == of(ReasoningBlock("four")) == 4
    assert of(ReasoningBlock("four", opaque="six666")) == 10
    assert of(WIRE) == len("look{}") + bare
    assert record_bytes(NoteRecord(TURN, "notice", "four")) == 4 + bare
    assert record_bytes(SummaryRecord(TURN, "", 0)) == bare
    shown = SummaryRecord(TURN, "so", 0), SummaryRecord(TURN, "so", 0, handover=True)
    assert [record_bytes(one) - bare for one in shown] == [len(one.shown) for one in shown]
    assert shown[1].shown.startswith("Another model")


def test_rec_1_core_whether_an_answer_is_owed_is_read_from_the_last_record() -> None:
    """A message and a note owe one, a response only with calls that were not cut off, a summary and nothing none."""
    cut = ResponseRecord(TURN, (WIRE,), Stop.INTERRUPTED, "m")
    whole = ResponseRecord(TURN, (WIRE,), Stop.TOOL_CALLS, "m")
    said = ResponseRecord(TURN, (TextBlock("a"),), Stop.END_TURN, "m")
    owing = (MessageRecord(TURN, MessageId("m"), (Text("a"),)), NoteRecord(TURN, "failure", "a"), whole)
    assert all(owes_response(record) for record in owing)
    assert not any(owes_response(record) for record in (None, cut, said, SummaryRecord(TURN, "a", 0)))


# -- rows --------------------------------------------------------------------------------------------------------

OUTCOME = Outcome(path=AGENT, run=RunId("lead:r1"), turn=TURN, status=Status.FAILED, text="so far")


def test_a_row_is_found_by_what_names_it() -> None:
    """Each class by its own key."""
    call = CallId("lead:t1.1.0")
    assert row_key(AgentRow(AGENT, "", "lead", "digest")) == (AGENT,)
    assert row_key(CallRow(call, AGENT, TURN, "look", "{}", CallState.PLANNED)) == (call,)
    assert row_key(OutcomeRow(TURN, AGENT, RunId("lead:r1"), OUTCOME)) == (TURN,)
    assert row_key(KvRow(AGENT, "run", "key", "1")) == (AGENT, "run", "key")


# -- errors and reports ------------------------------------------------------------------------------------------

ERRORS = (
    UsageError("no"),
    Unfinished("no"),
    Exhausted("lead", "tokens", limit=5, spent=4, asked=2),
    AnswerUnfit("no", (("{}", "no x"), ("[]", "no object"))),
    AgentClosed("no", "the message"),
    DeadLettered("no", "m-1", "poison"),
    Overloaded("slower", retry_after_s=1.5, status=429),
    WaitCycle("no"),
    MailboxFull("no"),
    DeadLettered("no"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.kind)
def test_an_error_that_was_kept_is_raised_as_what_it_was(error: CallboardError) -> None:
    """Of its class, with its message and its facts; what a provider's error says of a retry, as numbers."""
    kept = error_of(failure_of(error))
    assert type(kept) is type(error)
    assert str(kept) == str(error)
    for name, value in vars(error).items():
        found = getattr(kept, name)
        assert found == value or str(found) == str(value)
    assert getattr(kept, "retry_after_s", None) == getattr(error, "retry_after_s", None)
    assert getattr(kept, "status", None) == getattr(error, "status", None)


@pytest.mark.parametrize("kind", sorted(BY_KIND))
def test_an_error_of_any_kind_is_read_without_its_facts(kind: str) -> None:
    """A store that was written by an older release says less; what it does not say has its default."""
    found = error_of(Failure(kind, "it failed"))
    assert type(found) is BY_KIND[kind]
    assert str(found) == "it failed"


def test_an_error_of_a_kind_that_nobody_knows_is_one_all_the_same() -> None:
    """A newer release may have written it."""
    assert type(error_of(Failure("of tomorrow", "it failed"))) is CallboardError


def test_errors_say_what_they_are_about() -> None:
    """The way round of a cycle, the message that is dead, those that a commit in doubt may have accepted."""
    assert WaitCycle("no", ["a", "b"]).path == ("a", "b")
    dead = DeadLettered("no", "m-1", "poison")
    assert (dead.message, dead.reason) == ("m-1", "poison")
    assert InDoubt("no", ("m-1",)).messages == ("m-1",)


async def test_ree_2_core_a_question_is_answered_through_its_report() -> None:
    """The report says who asks what, and hands the answer on."""
    given: list[str] = []

    async def answer(text: str) -> None:
        given.append(text)

    asked = Asked(MessageId("q"), AgentId("lead/kid"), "which?")
    outcome = Outcome(
        path=AGENT, run=RunId("lead:r1"), turn=TURN, status=Status.NEEDS_INPUT, text="", question=asked, cost_known=True
    )
    report = report_of(outcome, None, answer)
    assert isinstance(report.question, Question)
    assert (report.question.path, report.question.text) == ("lead/kid", "which?")
    await report.question.answer("that one")
    assert given == ["that one"]
    with pytest.raises(Unfinished, match=r"not done but needs_input; it asks: which\?"):
        report.raise_for_status()


@pytest.mark.parametrize("known", [True, False])
def test_bud_9_core_a_report_says_what_it_cost_where_that_is_known(known: bool) -> None:  # noqa: FBT001 - parametrized
    """None is no price, and not nothing."""
    spent = Amounts(cost=PICO // 2)
    outcome = Outcome(
        path=AGENT, run=RunId("lead:r1"), turn=TURN, status=Status.DONE, text="", spent=spent, cost_known=known
    )
    report = report_of(outcome, None, nobody)
    assert report.cost == (Decimal("0.5") if known else None)
    assert report.raise_for_status() is report


async def nobody(text: str) -> None:
    """Nobody asked."""
    raise AssertionError(text)


def test_a_report_that_is_not_done_raises_what_ended_it() -> None:
    """The run's own error, where it has one; where it has none, that it is not done."""
    told = failure_of(AnswerUnfit("no", (("{}", "no x"),)))
    made = Outcome(path=AGENT, run=RunId("lead:r1"), turn=TURN, status=Status.FAILED, text="", failure=told)
    with pytest.raises(AnswerUnfit) as caught:
        report_of(made, None, nobody).raise_for_status()
    assert caught.value.attempts == (("{}", "no x"),)
    assert json.loads(dict(told.facts)["attempts"]) == [["{}", "no x"]]
    bare: Report = report_of(OUTCOME, None, nobody)
    assert bare.error is None
    with pytest.raises(Unfinished, match=r"lead is not done but failed$"):
        bare.raise_for_status()


def test_tol_8_core_an_agent_that_keeps_no_results_may_have_a_tool_of_the_readers_name() -> None:
    """The name is only taken while the reader is offered."""
    from actors.pages import READER  # noqa: PLC0415
    from actors.tools import tool  # noqa: PLC0415

    @tool(name=READER)
    def mine(reference: str) -> str:
        """Read."""
        return reference

    with pytest.raises(UsageError, match="two tools are named"):
        Agent("lead", model="script:x", tools=[mine])
    assert Agent("lead", model="script:x", tools=[mine], limits=Limits(kept_chars=0)).tools == (mine,)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: Limits(steer=5),  # type: ignore[arg-type]
            r"Limits\(steer=...\) is a LaneBound",
        ),
        (lambda: LaneBound(messages=-1), r"LaneBound\(messages=...\) is a whole number from 0"),
        (lambda: LaneBound(share=2), r"LaneBound\(share=...\) is a number from 0 to 1"),
        (lambda: Compaction(model="\ud800"), r"Compaction\(model=...\) is text that UTF-8 can hold"),
        (
            lambda: Compaction(instructions=5),  # type: ignore[arg-type]
            r"Compaction\(instructions=...\) is text",
        ),
        (lambda: Text(cast("str", 3)), r"Text\(text\) takes a text; got Text\(text=3\)"),
        (lambda: Image(cast("str", None), data="eA=="), "takes texts"),
        (lambda: Image("image/png", data=cast("str", b"x")), "takes texts"),
        (lambda: Image("image/png", url=cast("str", 5)), "takes texts"),
        (lambda: File("name", "text/plain", cast("str", b"x")), "takes texts"),
        (lambda: File("n", cast("str", None), "x"), "takes texts"),
        (lambda: as_content(Image("image/png")), "takes texts"),
    ],
)
def test_acc_2_what_no_store_could_read_back_is_refused(make: Callable[[], object], says: str) -> None:
    """A bound that is none, a text that UTF-8 cannot hold, a part without its fields: refused where it is written."""
    with pytest.raises(UsageError, match=says):
        make()


def test_an_answer_is_read_as_it_was_stored() -> None:
    """Text is itself, a value is of its type, and what does not fit the type any more is none."""
    assert output_spec(str, "a test").kept('"say \\"hey\\""') == 'say "hey"'
    assert output_spec(list[int], "a test").kept("[1,2]") == [1, 2]
    assert output_spec(list[int], "a test").kept('["x"]') is None
