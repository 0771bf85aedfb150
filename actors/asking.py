"""Asks a model for the loop: what is to be admitted, the watcher of a request, and what came of it as an input.

It decides nothing: `turn.py` and `compacting.py` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, final

from .compacting import least
from .compaction import NotSummarised, Summarised, plan, request_bytes, summary_request
from .errors import Exhausted, Malformed, ProviderError
from .guarding import goes_on, safely_told
from .happenings import AttemptDiscarded, ReasoningDelta, RequestStarted, TextDelta
from .ids import turn_id
from .inputs import Cut, Failed, Responded
from .messages import Selection
from .moves import opened
from .ports import ANSWER_TOOL, BlockDone, ReasoningPiece, TextPiece, WireCall
from .usage import Amounts

if TYPE_CHECKING:
    from collections.abc import Callable

    from .compaction import Plan
    from .conversation import Conversation
    from .hosting import Host
    from .messages import Queued
    from .moves import Admit, Ask, TurnState
    from .ports import Model, Piece, Ticket
    from .transcript import ReasoningBlock, TextBlock

Admission: TypeAlias = "tuple[tuple[Model, ...], int, int | None]"
"""Who is asked, about how large the request is, and how long its answer may be."""


def admission(host: Host, conversation: Conversation, state: TurnState, action: Admit) -> Admission | None:
    """What is to be admitted; None for a summary of nothing. Raises `UsageError`: no such model."""
    if not action.helper:
        return host.chain(action.selection), host.request_bytes(conversation.window()) + action.extra_bytes, None
    chosen, rule = planned(conversation, state), state.spec.compaction
    return None if chosen is None else (summarisers(host, state), request_bytes(chosen, rule), rule.tokens)


def planned(conversation: Conversation, state: TurnState) -> Plan | None:
    """What a compaction of the conversation as it is committed would replace, or None where it is not worth it."""
    return plan(conversation, state.spec.compaction.keep, owed=state.owed, least=least(state.compacting))


def summarisers(host: Host, state: TurnState) -> tuple[Model, ...]:
    """Who writes the summary. Raises `UsageError` where it is no model that is known."""
    name = state.spec.compaction.model
    return host.chain(state.row.selection if name is None else Selection(model=name))


@final
class Collector:
    """What has come of the response in progress: the gate's watcher, and the source of deltas (TRN-8).

    `quiet`: it is a summary, of which watchers hear its two ends only. `answer`: the whole response, once it is there.
    """

    __slots__ = ("_host", "answer", "attempts", "blocks", "half", "model", "quiet", "ticket")

    def __init__(self, host: Host, ticket: Ticket, *, quiet: bool) -> None:
        self._host = host
        self.quiet = quiet
        self.ticket = ticket
        self.model = ticket.model
        self.answer: Responded | None = None
        self.attempts = 0
        self.blocks: list[ReasoningBlock | TextBlock | WireCall] = []
        self.half: list[str] = []

    def attempt(self, number: int, model_id: str, estimate: int) -> None:
        """An attempt begins: it starts clean (REQ-3)."""
        self.attempts, self.model = number, model_id
        self.blocks, self.half = [], []
        if not self.quiet:
            self._host.tell(RequestStarted, {"model": model_id, "estimate": estimate, "attempt": number})

    def piece(self, piece: Piece) -> None:
        """Something came."""
        if self.quiet:
            return
        match piece:
            case TextPiece(text=text):
                self.half.append(text)
                if self._host.watched():
                    self._host.tell(TextDelta, {"text": text, "attempt": self.attempts})
            case ReasoningPiece(text=text):
                if self._host.watched():
                    self._host.tell(ReasoningDelta, {"text": text, "attempt": self.attempts})
            case BlockDone(block=block):
                self.blocks.append(block)
                if not isinstance(block, WireCall):
                    self.half.clear()
            case _:
                pass  # a sign of life is the gate's

    def discarded(self, error: ProviderError, retry_in_s: float | None) -> None:
        """What came of the attempt is void."""
        self.blocks, self.half = [], []
        values = {"error": f"{error.kind}: {error}", "retry_in_s": retry_in_s, "attempt": self.attempts}
        if not self.quiet:
            self._host.tell(AttemptDiscarded, values)

    def cut(self, now: float, control: tuple[Queued, ...], reason: str | None) -> Cut:
        """Account the request now, once, with what came of it; its stream unwinds afterwards (REQ-7).

        A response that was whole, but was not taken in yet, is kept whole; a request that failed, as what it took.
        """
        ticket, answer = self.ticket, self.answer
        if answer is not None:
            served = answer.served
            return Cut(
                now,
                control,
                reason,
                served.response.blocks,
                usage=served.usage,
                spent=spent_by(answer),
                cost_known=served.cost is not None,
                model=served.model,
            )
        self._host.gate.cut(ticket)
        return Cut(
            now,
            control,
            reason,
            tuple(self.blocks),
            "".join(self.half),
            usage=ticket.usage,
            spent=ticket.charged,
            cost_known=ticket.cost_known,
            model=self.model,
        )


def spent_by(answer: Responded) -> Amounts:
    """What a response took, with the calls that were granted to it: the accounts have counted both (BUD-7)."""
    return answer.spent + Amounts(tool_calls=answer.granted) if answer.granted else answer.spent


async def answered(
    host: Host, conversation: Conversation, action: Ask, collector: Collector, wanted: Callable[[], bool]
) -> Responded | Failed | None:
    """Ask for a response; None where it was cut. `wanted`: whether nothing has cut it since."""
    ticket = collector.ticket
    try:
        request = host.request(conversation.window(), action.step, action.output, toolless=action.toolless)
        served = await host.gate.call(ticket, request, collector)
    except (ProviderError, Exhausted) as error:
        return Failed(host.now(), error, ticket.usage, ticket.charged)
    except BaseException as bug:  # a model is foreign code: its bug fails the turn, not the tree  # noqa: ASYNC103 - what is not ours is told, not raised: our own cancellation goes on
        if goes_on(bug):
            raise
        collector.blocks, collector.half = [], []
        return Failed(host.now(), _raised(bug), ticket.usage, ticket.charged)  # noqa: ASYNC104 - likewise
    finally:
        host.gate.abandon(ticket)
    if served is None:
        return None
    answer_tool = None if action.output is None else ANSWER_TOOL  # a call of it runs nothing, and costs none
    calls = sum(isinstance(block, WireCall) and block.name != answer_tool for block in served.response.blocks)
    granted, short = host.grant_calls(calls) if calls and wanted() else (None, None)
    collector.answer = answer = Responded(host.now(), served, ticket.charged, granted, short)
    return answer


async def summarised(
    host: Host, conversation: Conversation, state: TurnState, collector: Collector
) -> Summarised | NotSummarised | None:
    """Ask for a summary of the conversation as it is now; None where it was cut."""
    ticket, rule = collector.ticket, state.spec.compaction
    try:
        chosen = planned(conversation, state)
        if chosen is None:
            return NotSummarised(host.now(), None)
        turn = turn_id(state.row.agent, opened(state).number)
        room = summarisers(host, state)[0].context_window
        request = summary_request(conversation, chosen, rule, agent=host.agent, turn=turn, limit=room)
        served = await host.gate.call(ticket, request, collector)
    except (ProviderError, Exhausted) as error:
        return NotSummarised(host.now(), error, ticket.usage, ticket.charged, ticket.cost_known)
    except BaseException as bug:  # as above: it ends the compaction  # noqa: ASYNC103 - what is not ours is told, not raised: our own cancellation goes on
        if goes_on(bug):
            raise
        return NotSummarised(host.now(), _raised(bug), ticket.usage, ticket.charged, ticket.cost_known)  # noqa: ASYNC104 - likewise
    finally:
        host.gate.abandon(ticket)
    if served is None:
        return None
    return Summarised(host.now(), served, ticket.charged, chosen, conversation.window().size_bytes)


def _raised(bug: BaseException) -> Malformed:
    raised = Malformed(f"the model raised {safely_told(bug)}", reason="server")
    raised.__cause__ = bug
    return raised
