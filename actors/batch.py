"""A batch of tool calls: which may ever run, which may start now, and what the model reads about the rest.

It decides over one response's calls; it knows no task, no clock and no store.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from .callview import CallView
from .changes import CallRow, CallState
from .content import Text
from .evolve import evolve
from .fitting import Refusal
from .tools import Effect
from .transcript import ResultRecord, ResultStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .callview import CallOutcome
    from .content import Content
    from .ids import AgentId, CallId, TurnId
    from .tools import Tool, Toolbox
    from .transcript import CallBlock

INVALID: Final = {
    "malformed_json": "The arguments are not valid JSON. Nothing was run. Call again with a JSON object.",
    "not_an_object": "The arguments are JSON but not an object. Nothing was run. Call again with a JSON object.",
    "truncated": "The call was cut off before it was complete. Nothing was run. Call again, with shorter arguments.",
    "no_name": "The call names no tool. Nothing was run.",
    "rejected_by_model_server": "The model server rejected this call. Nothing was run.",
}
_UNREAD: Final = frozenset({"malformed_json", "not_an_object"})
_NAMES, _NAME_CHARS = 50, 64
"""How many names of tools are listed, and how much is shown of one that a model made up."""
MAY_HAVE: Final = "It may have taken effect: check before you repeat it."
LOST: Final = "What became of this call was not kept; its outcome is unknown. " + MAY_HAVE
UNKNOWN: Final = "The host stopped while this call was running; its outcome is unknown. " + MAY_HAVE


class Why(enum.StrEnum):
    """What ended calls that had no end of their own, as the model reads it."""

    ABORT = "The run was aborted"
    STEER = "A newer message interrupted the turn"
    TIME = "The time for this turn was up"
    BUDGET = "The time of the budget was used up"
    FATAL = "A call beside this one failed, which ends the whole batch,"
    HOOK = "A hook of this agent stopped the turn"
    CRASH = "The turn was given up"


def result(turn: TurnId, block: CallBlock, status: ResultStatus, content: Content | str) -> ResultRecord:
    """The record of a call's result."""
    parts = (Text(content),) if isinstance(content, str) else content
    return ResultRecord(turn, block.id, block.wire_id, block.name, status, parts)


def view(turn: TurnId, block: CallBlock, toolbox: Toolbox) -> CallView:
    """A call made ready: its tool and checked arguments, or the result that says why it can never run (TOL-6)."""
    tool = toolbox.get(block.name)
    if block.invalid is not None:
        return _refused(turn, block, _invalid(block, block.invalid, tool))
    if tool is None:
        return _refused(turn, block, f"There is no tool {block.name[:_NAME_CHARS]!r}. Tools: {_names(toolbox)}.")
    parsed = tool.parse(block.arguments)
    if isinstance(parsed, Refusal):
        return _refused(turn, block, parsed.text)
    keys, exclusive = tool.keys(parsed.arguments)
    return CallView(block, CallState.PLANNED, tool, parsed.arguments, keys, exclusive, repaired=parsed.repaired)


def _invalid(block: CallBlock, why: str, tool: Tool[..., object] | None) -> str:
    """What the model is told of a call that may not run whatever its tool; where its text does not read, just why."""
    if tool is not None and why in _UNREAD and isinstance(read := tool.parse(block.arguments), Refusal):
        return read.text
    return INVALID.get(why, f"The call is invalid ({why}). Nothing was run.")


def _names(toolbox: Toolbox) -> str:
    """The names of the tools, as many as a model may be shown."""
    names = sorted(toolbox)
    more = f", and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return (", ".join(names[:_NAMES]) or "none") + more


def _refused(turn: TurnId, block: CallBlock, text: str) -> CallView:
    return CallView(block, CallState.SETTLED, result=result(turn, block, ResultStatus.ERROR, text))


def refuse(turn: TurnId, call: CallView, text: str) -> CallView:
    """The call settled as refused, before it ran."""
    done = result(turn, call.block, ResultStatus.REFUSED, text)
    return evolve(call, state=CallState.SETTLED, result=done)


def start(calls: tuple[CallView, ...], limit: int) -> tuple[tuple[CallView, ...], tuple[CallView, ...]]:
    """Start every planned call that may run now (TOL-4).

    A call waits for earlier unfinished calls that share a key; an exclusive one for all earlier, and all later ones
    for it; at most `limit` run at once.

    Returns:
        The calls with their new states, and those that were started, in call order.
    """
    running = sum(call.state is CallState.STARTED for call in calls)
    busy: set[str] = set()
    unfinished = False
    started: list[CallView] = []
    after = list(calls)
    for index, call in enumerate(calls):
        if call.state is CallState.SETTLED:
            continue
        blocked = (call.exclusive and unfinished) or not busy.isdisjoint(call.keys)
        if call.state is CallState.PLANNED and not blocked and running < limit:
            after[index] = evolve(call, state=CallState.STARTED)
            started.append(after[index])
            running += 1
        if call.exclusive:
            break
        unfinished = True
        busy.update(call.keys)
    return tuple(after), tuple(started)


def ends_all(calls: tuple[CallView, ...], outcome: CallOutcome) -> bool:
    """Whether what a call gave ends all others of the batch: it failed, and its tool says that is fatal (TOL-4)."""
    if outcome.status is ResultStatus.OK:
        return False
    return any(call.block.id == outcome.call and call.tool is not None and call.tool.fatal for call in calls)


def settle(
    calls: tuple[CallView, ...],
    turn: TurnId,
    outcomes: Iterable[CallOutcome],
    so_far: tuple[tuple[CallId, str], ...] = (),
) -> tuple[CallView, ...]:
    """The calls with what these gave; a fatal tool's failure ends all others of the batch (TOL-4).

    `so_far`: what is said of those that this cuts.
    """
    found = {outcome.call: outcome for outcome in outcomes}
    fatal = False
    after = list(calls)
    for index, call in enumerate(calls):
        outcome = found.get(call.block.id)
        if outcome is None or call.state is not CallState.STARTED:
            continue
        done = result(turn, call.block, outcome.status, outcome.content)
        if outcome.trust is not done.trust or call.repaired:
            done = evolve(done, trust=outcome.trust, repaired=call.repaired)
        after[index] = evolve(call, state=CallState.SETTLED, result=done, kept=call.kept or outcome.kept)
        fatal |= outcome.status is not ResultStatus.OK and call.tool is not None and call.tool.fatal
    return stop(tuple(after), turn, Why.FATAL, so_far) if fatal else tuple(after)


def stop(
    calls: tuple[CallView, ...], turn: TurnId, why: Why, so_far: tuple[tuple[CallId, str], ...] = ()
) -> tuple[CallView, ...]:
    """All calls settled: those not started as skipped, and the running ones as aborted, with what they had (ABT-3)."""
    had = dict(so_far)
    after = []
    for call in calls:
        if call.state is CallState.PLANNED or call.state is CallState.AWAITING:
            done = result(turn, call.block, ResultStatus.SKIPPED, f"Not run: {_lower(why)} before this call started.")
            after.append(evolve(call, state=CallState.SETTLED, result=done))
        elif call.state is CallState.STARTED:
            harmless = call.tool is not None and call.tool.effect.harmless
            text = f"{why} while this call was running." + ("" if harmless else f" {MAY_HAVE}")
            done = result(turn, call.block, _CUT[why], text)
            if call.block.id in had and call.tool is not None:
                shown = (Text(f"{text}\n{had[call.block.id]}"),)
                done = evolve(done, content=shown, trust=call.tool.trust)
            after.append(evolve(call, state=CallState.SETTLED, result=done, kept=True))
        else:
            after.append(call)
    return tuple(after)


_TIMES: Final = frozenset({Why.TIME, Why.BUDGET})
_CUT: Final = {why: ResultStatus.TIMEOUT if why in _TIMES else ResultStatus.ABORTED for why in Why}


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def recover(calls: tuple[CallView, ...], turn: TurnId) -> tuple[tuple[CallView, ...], tuple[CallView, ...]]:
    """Calls found open after a restart, by effect class (TOL-2, TOL-3).

    Returns:
        The calls as they stand now, and those to run again at once: `pure`, `idempotent` and children's; a `store`
        call is never found started. A `once` call that had started is settled unknown and never started again.
    """
    after, again = [], []
    for call in calls:
        found = call
        if call.state is CallState.STARTED:
            if is_lost(call):
                done = result(turn, call.block, ResultStatus.UNKNOWN, UNKNOWN)
                found = evolve(call, state=CallState.SETTLED, result=done)
            else:
                found = evolve(call, tries=call.tries + 1)
                again.append(found)
        elif call.state is not CallState.SETTLED and call.tool is None:
            text = f"The tool {call.block.name!r} is no longer there as it was. Nothing was run."
            done = result(turn, call.block, ResultStatus.ERROR, text)
            found = evolve(call, state=CallState.SETTLED, result=done)
        after.append(found)
    return tuple(after), tuple(again)


def is_lost(call: CallView) -> bool:
    """Whether a call found open had started, and never runs again: nobody will know what came of it (TOL-3)."""
    return call.state is CallState.STARTED and (call.tool is None or call.tool.effect is Effect.ONCE)


def results(calls: tuple[CallView, ...]) -> tuple[ResultRecord, ...]:
    """The results that are there, in call order."""
    return tuple(call.result for call in calls if call.result is not None)


def finished(calls: tuple[CallView, ...]) -> bool:
    """Whether every call is settled."""
    return all(call.state is CallState.SETTLED for call in calls)


def row(agent: AgentId, turn: TurnId, call: CallView) -> CallRow:
    """The call as the store keeps it while its batch is open; one that ended unknown outlives it (TOL-3)."""
    block, state = call.block, call.state
    if call.result is not None and call.result.status is ResultStatus.UNKNOWN:
        state = CallState.UNKNOWN
    return CallRow(block.id, agent, turn, block.name, block.arguments, state, call.tries, call.result, call.asking)
