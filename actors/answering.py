"""What a response is that may be the answer: the answer, or something that only looks like it (TRN-7).

A structured answer comes as text, or as a call of the answer tool (`ANSWER_TOOL`), which runs nothing: it is settled
here. Given beside other calls it is not taken: their results may change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import batch, ending
from .batching import batch_over, settled_tells
from .content import text_of
from .errors import AnswerCut, AnswerRefused, AnswerUnfit, Malformed
from .evolve import evolve
from .fitting import Refusal
from .happenings import ResponseEnded
from .ids import turn_id
from .inputs import Phase
from .moves import Look, Step, Tell, opened
from .ports import ANSWER_TOOL
from .transcript import NoteRecord, ResponseRecord, ResultRecord, ResultStatus, Stop

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .callview import CallView
    from .errors import CallboardError
    from .ids import TurnId
    from .moves import Action, TurnState
    from .output import OutputSpec
    from .ports import Served
    from .transcript import Record


def ended(served: Served, text: str) -> Tell:
    """The event of a whole response."""
    return Tell(
        ResponseEnded,
        {
            "stop": served.response.stop,
            "text": text,
            "usage": served.usage,
            "cost": served.cost,
            "model": served.model,
            "attempt": served.attempts,
        },
    )


def _short(state: TurnState, stop: Stop) -> CallboardError | None:
    """Why a response is no whole answer, whatever it says (TRN-7)."""
    who = state.row.agent
    match stop:
        case Stop.MAX_TOKENS:
            return AnswerCut(
                f"{who}: the answer was cut at the model's output limit; it is not whole. Ask for less at once,"
                " or choose a model or a limit that has room for it"
            )
        case Stop.REFUSAL:
            return AnswerRefused(f"{who}: the model refused to answer")
        case Stop.CONTENT_FILTER:
            return AnswerRefused(f"{who}: the answer was stopped by a content filter of the model's server", "filter")
        case Stop.ERROR:
            return Malformed(f"{who}: the model's server ended the answer with an error; it is not whole")
        case _:
            return None


def answered(state: TurnState, stop: Stop, now: float, tell: Tell) -> Step:
    """A response without calls: the answer, half of one, or one that must be asked for again."""
    text = state.last_text
    if stop is Stop.PAUSE_TURN:
        state.phase = Phase.LOOKING
        return Step(state, (), (tell, Look(sends=False)))
    if state.exhausted is not None:
        return ending.fail(state, state.exhausted, now, tell)
    short = _short(state, stop)
    if short is not None:
        return ending.fail(state, short, now, tell)
    if state.output is not None:
        read = state.output.read(text)
        if isinstance(read, Refusal):
            state.unfit = (*state.unfit, (text, read.text))
            note = f"{_unfit(state, read.text)}\nAnswer again with JSON that fits, and nothing else."
            state.pending = (*state.pending, NoteRecord(_turn(state), _REPAIR, note))
            return _again(state, now, tell)
        text = read.json
    return _taken(state, text, tell)


def _taken(state: TurnState, answer: str, *actions: Action) -> Step:
    """It is the answer; steering that came meanwhile is answered first."""
    state.answer, state.owed, state.unfit, state.phase = answer, False, (), Phase.LOOKING
    return Step(state, (), (*actions, Look(sends=False)))


def _again(state: TurnState, now: float, *actions: Action) -> Step:
    """A structured answer that does not fit is asked for again, a bounded number of times; each costs a request."""
    bound = state.spec.limits.output_repairs
    if len(state.unfit) > bound or state.last_chance is not None:
        assert state.output is not None, "only a typed answer is asked for again"
        tried, why = len(state.unfit), state.unfit[-1][1]
        times = f"{tried} attempt{'s' if tried > 1 else ''}"
        text = f"{state.row.agent}: no answer fits {state.output.name} after {times}: {why}"
        return ending.fail(state, AnswerUnfit(text, state.unfit), now, *actions)
    state.phase = Phase.LOOKING
    return Step(state, (), (*actions, Look(sends=False)))


# -- the answer tool ---------------------------------------------------------------------------------------------


def given(
    state: TurnState, calls: tuple[CallView, ...], stop: Stop, now: float, tell: Tell
) -> Step | tuple[CallView, ...]:
    """What calls mean where a structured answer is owed: the answer, or, with what is none of it refused, a batch."""
    output = state.output
    if output is None or output.offer is None:
        return calls
    if all(_is_answer(call) for call in calls):
        return _by_call(state, output, calls, _short(state, stop), now, tell)
    return _beside(state, output, calls, str(tell.values["text"]))


def _by_call(
    state: TurnState,
    output: OutputSpec,
    calls: tuple[CallView, ...],
    short: CallboardError | None,
    now: float,
    tell: Tell,
) -> Step:
    """A response whose calls are all of the answer tool: the first is the answer, or must be given again."""
    first, *more = calls
    turn, said = _turn(state), first.block.arguments
    read = output.read(said)
    if short is not None:
        first = batch.refuse(turn, first, "Not taken: the answer was cut short.")
    elif isinstance(read, Refusal):
        state.unfit = (*state.unfit, (said, read.text))
        text = f"{_unfit(state, read.text)}\nCall {ANSWER_TOOL} again with JSON that fits."
        first = _settled(turn, first, ResultStatus.ERROR, text)
    else:
        first = _settled(turn, first, ResultStatus.OK, "Taken.")
    rest = [batch.refuse(turn, call, "Not taken: only one answer is.") for call in more]
    state.calls, done, state.last_text = (first, *rest), state.done, said
    actions = (tell, *settled_tells(state.calls))
    batch_over(state, (), ())
    state.done = done  # the answer is no call of a tool
    if state.exhausted is not None or short is not None:
        error = state.exhausted or short
        assert error is not None, "one of the two"
        return ending.fail(state, error, now, *actions)
    return _again(state, now, *actions) if isinstance(read, Refusal) else _taken(state, read.json, *actions)


def _beside(state: TurnState, output: OutputSpec, calls: tuple[CallView, ...], text: str) -> tuple[CallView, ...]:
    """An answer given beside calls is refused where the model reads it: their results may change it.

    As a call of the answer tool it has an error for its result; as text, a notice behind the results.
    """
    turn = _turn(state)
    if text and not isinstance(output.read(text), Refusal):
        state.after_batch = NoteRecord(turn, "notice", _SUPERSEDED)
    return tuple([batch.refuse(turn, call, _SUPERSEDED) if _is_answer(call) else call for call in calls])


def twice(state: TurnState, turn: TurnId, wire_ids: tuple[str, ...]) -> NoteRecord:
    """What the model is told of call ids that it used more than once (TOL-5), behind what it is told already."""
    text = f"The call ids {', '.join(wire_ids)} were used more than once; each was taken once, the first time."
    told = () if state.after_batch is None else (state.after_batch.text,)
    return NoteRecord(turn, "notice", "\n".join((*told, text)))


_SUPERSEDED: Final = (
    "Not taken: this answer was given beside calls, whose results may change it."
    " Give it again, alone, once you have them."
)


def _is_answer(call: CallView) -> bool:
    return call.block.name == ANSWER_TOOL and call.tool is None


def _settled(turn: TurnId, call: CallView, status: ResultStatus, text: str) -> CallView:
    return evolve(call, result=batch.result(turn, call.block, status, text))


# -- what was asked for again ------------------------------------------------------------------------------------


_REPAIR: Final = "repair"


def _turn(state: TurnState) -> TurnId:
    return turn_id(state.row.agent, opened(state).number)


def _unfit(state: TurnState, problem: str) -> str:
    assert state.output is not None, "only a typed answer is asked for again"
    return f"The answer does not fit {state.output.name}: {problem}"


def unfit(records: Iterable[Record], turn: TurnId) -> tuple[tuple[str, str], ...]:
    """The answers of a turn found open that were asked for again, each with what is wrong with it (REC-1)."""
    found: list[tuple[str, str]] = []
    said: ResponseRecord | None = None
    for record in records:
        match record:
            case ResponseRecord():
                said = record
            case NoteRecord(kind=kind, text=text) if kind == _REPAIR and said is not None and record.turn == turn:
                found.append((said.text, _problem(text)))
            case ResultRecord(name=name, status=ResultStatus.ERROR) if said is not None and record.turn == turn:
                if name == ANSWER_TOOL:
                    given = next(block.arguments for block in said.calls if block.id == record.call)
                    found.append((given, _problem(text_of(record.content))))
            case _:
                pass
    return tuple(found)


def _problem(text: str) -> str:
    """What is wrong with an answer, out of what the model was told of it."""
    return text.partition(": ")[2].rpartition("\n")[0]
