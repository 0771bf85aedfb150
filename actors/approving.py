"""Which calls a person is asked about, what is bound to the decision, and what a decision makes of a call (TOL-12).

What runs is what was shown: a digest of the tool's name, its version and the final arguments is kept with the call,
and an approved call is read anew from the conversation, which nothing can change, and compared with it. A call whose
like ended unknown needs approval whatever its tool says (TOL-3).
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from . import batch
from .callview import CallView
from .changes import Asking, CallState
from .evolve import evolve
from .happenings import ApprovalAsked, ApprovalDecided
from .messages import Decision, Verdict
from .moves import Tell
from .tools import Parsed
from .transcript import ResultStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .budget import Limits
    from .callview import AnyTool
    from .changes import CallRow
    from .ids import CallId, TurnId
    from .moves import Action, TurnState
    from .tools import Toolbox
    from .transcript import CallBlock, ResultRecord

TOOL: Final = "tool"
REPEAT: Final = "repeat"
DENIED: Final = "Not approved. Nothing was run."
EXPIRED: Final = "Not approved: nobody decided in time. Nothing was run."
STEERED: Final = "Not approved: a message came instead; read it. Nothing was run."
CHANGED: Final = "Not run: the tool is not the one that was approved any more. Call it again to have it approved anew."


# -- asking ------------------------------------------------------------------------------------------------------


def ask(state: TurnState, turn: TurnId, calls: tuple[CallView, ...], at_s: float) -> tuple[CallView, ...]:
    """The calls of a new batch; those that need approval await it. `at_s`: seconds of the time of day."""
    if not state.unknown and not any(call.tool is not None and call.tool.approve for call in calls):
        return calls
    waiting, after = 0, []
    for call in calls:
        why = _why(state, call)
        if why is None:
            after.append(call)
            continue
        waiting += 1
        if waiting > state.spec.limits.approvals:
            text = f"Not run: {state.spec.limits.approvals} calls wait for approval already. Wait for these."
            after.append(batch.refuse(turn, call, text))
        else:
            after.append(evolve(call, state=CallState.AWAITING, asking=_asking(call, why, at_s, state.spec.limits)))
    return tuple(after)


def _why(state: TurnState, call: CallView) -> str | None:
    """Why a call needs approval, or None."""
    if call.state is not CallState.PLANNED or call.tool is None:
        return None
    if state.unknown and likeness(call.tool, call.block) in {like for like, _ in state.unknown}:
        return REPEAT
    return TOOL if call.tool.needs_approval(call.arguments or {}) else None


def _asking(call: CallView, why: str, at_s: float, limits: Limits) -> Asking:
    tool = call.tool
    assert tool is not None, "only a call that could run is asked about"
    wait = tool.approve_timeout_s if tool.approve_timeout_s is not None else limits.approve_s
    expires = None if wait is None else int((at_s + wait) * 1000)
    return Asking(
        why, json.dumps(tool.final(call.block.arguments)), binding(tool, call.block), int(at_s * 1000), expires
    )


def binding(tool: AnyTool, block: CallBlock) -> str:
    """What a decision on a call is bound to: its tool as it is now, and the arguments as they stand."""
    whole = [block.id, tool.name, tool.version, tool.final(block.arguments)]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]


def bound(call: CallView) -> bool:
    """Whether a call is what its approval was given for, and what was shown to whoever gave it."""
    asking, tool = call.asking, call.tool
    return asking is None or (
        tool is not None
        and binding(tool, call.block) == asking.binding
        and json.dumps(tool.final(call.block.arguments)) == asking.arguments
    )


def found(block: CallBlock, row: CallRow | None, box: Toolbox) -> CallView:
    """A call of an open batch as the store has it.

    One without a row was never started (TOL-2). One that needs approval has a row, so without it that may not run.
    """
    tool = box.get(block.name)
    if row is not None and row.result is not None:
        return CallView(block, CallState.SETTLED, tool, tries=row.tries, result=row.result, kept=True)
    view = CallView(block, CallState.PLANNED)
    if row is not None:
        decided = row.asking is not None and row.state is not CallState.AWAITING
        ran = row.state is CallState.STARTED
        view = CallView(block, row.state, tries=row.tries, asking=row.asking, decided=decided, kept=ran)
    parsed = None if tool is None else tool.parse(block.arguments)
    if tool is None or not isinstance(parsed, Parsed) or (row is None and tool.needs_approval(parsed.arguments)):
        return view
    keys, exclusive = tool.keys(parsed.arguments)
    repaired = parsed.repaired
    return evolve(view, tool=tool, arguments=parsed.arguments, keys=keys, exclusive=exclusive, repaired=repaired)


def unknown_in(rows: Iterable[CallRow], box: Toolbox) -> tuple[tuple[str, CallId], ...]:
    """What is to be remembered of the call rows of an agent that ended unknown."""
    return tuple((likeness(box.get(row.name), row), row.call) for row in rows if row.state is CallState.UNKNOWN)


def recovered(calls: tuple[CallView, ...]) -> tuple[CallView, ...]:
    """The calls found open after a restart; one whose tool is not what was approved has no tool any more."""
    return tuple(
        evolve(call, tool=None)
        if call.asking is not None and call.state in _APPROVED and call.tool is not None and not bound(call)
        else call
        for call in calls
    )


_APPROVED: Final = frozenset({CallState.PLANNED, CallState.STARTED})


# -- repeats of what ended unknown (TOL-3) -----------------------------------------------------------------------


def likeness(tool: AnyTool | None, block: CallBlock | CallRow) -> str:
    """What two calls share that ask for the same: name and arguments, however these are written."""
    given: object = block.arguments
    try:
        fits = tool is not None and isinstance(tool.parse(block.arguments), Parsed)
        given = tool.final(block.arguments) if tool is not None and fits else json.loads(block.arguments or "{}")
    except (ValueError, RecursionError):  # it fitted once, and does not any more: the text is all that is known
        pass
    return f"{block.name} {json.dumps(given, sort_keys=True)}"


def ended_unknown(calls: tuple[CallView, ...]) -> tuple[tuple[str, CallId], ...]:
    """What is to be remembered of calls that ended unknown."""
    return tuple(
        (likeness(call.tool, call.block), call.block.id)
        for call in calls
        if call.result is not None and call.result.status is ResultStatus.UNKNOWN
    )


# -- decisions ---------------------------------------------------------------------------------------------------


def decide(turn: TurnId, call: CallView, decision: Decision) -> CallView:
    """A call that waits, as a decision leaves it: planned, with the very arguments that were shown, or settled."""
    if decision.verdict is not Verdict.APPROVED:
        text = EXPIRED
        if decision.verdict is Verdict.DENIED:
            text = f"Not approved: {decision.message}" if decision.message else DENIED
        return _settled(call, batch.result(turn, call.block, ResultStatus.DENIED, text))
    parsed = None if call.tool is None or not bound(call) else call.tool.parse(call.block.arguments)
    if not isinstance(parsed, Parsed):
        return _settled(call, batch.result(turn, call.block, ResultStatus.REFUSED, CHANGED))
    return evolve(call, state=CallState.PLANNED, arguments=parsed.arguments, decided=True)


def _settled(call: CallView, result: ResultRecord) -> CallView:
    return evolve(call, state=CallState.SETTLED, result=result, decided=True)


def steered(turn: TurnId, calls: tuple[CallView, ...]) -> tuple[CallView, ...]:
    """The calls of a batch that a steer interrupts: it denies what waits for approval (CON-7)."""
    return tuple(
        _settled(call, batch.result(turn, call.block, ResultStatus.DENIED, STEERED))
        if call.state is CallState.AWAITING
        else call
        for call in calls
    )


# -- what is told ------------------------------------------------------------------------------------------------


def asked_tells(calls: tuple[CallView, ...]) -> tuple[Action, ...]:
    """The events of calls that await a decision from now on."""
    return tuple(
        Tell(
            ApprovalAsked,
            {
                "call": call.block.id,
                "name": call.block.name,
                "arguments": call.asking.arguments,
                "why": call.asking.why,
                "asked": call.asking.asked_ms / 1000,
                "expires": None if call.asking.expires_ms is None else call.asking.expires_ms / 1000,
            },
        )
        for call in calls
        if call.asking is not None and call.state is CallState.AWAITING
    )


def decided_tell(call: CallView, decision: Decision) -> Tell:
    """The event of a decision."""
    values = {"verdict": decision.verdict.value, "by": decision.by, "message": decision.message}
    return Tell(ApprovalDecided, {"call": call.block.id, "name": call.block.name, **values})


def steered_tells(calls: tuple[CallView, ...]) -> tuple[Action, ...]:
    """The events of calls that a steer denies."""
    steer = Decision(Verdict.DENIED, "steer", STEERED)
    return tuple(decided_tell(call, steer) for call in undecided(calls))


def undecided(calls: tuple[CallView, ...]) -> tuple[CallView, ...]:
    """Those that await a decision."""
    return tuple(call for call in calls if call.state is CallState.AWAITING)
