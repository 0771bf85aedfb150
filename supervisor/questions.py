"""Questions upward: a child asks an ancestor that waits for it, and is answered through that wait (REE-2).

The ancestor's wait ends with `needs_input` and the question; its answer ends the child's `ask`, and it may wait again.
When the child asked first, by a message that the ancestor has not taken up, and the ancestor begins to wait for the
child only then, the message becomes the question: the outcome does not hang on who was faster.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

import attrs
import trio

from actors.changes import Move
from actors.content import check_text, text_of
from actors.errors import Aborted, CallboardError, Conflict, Unfinished, UsageError
from actors.ids import AgentId, MessageId, name_of, ordinal_of, run_id, tree_of, turn_id
from actors.messages import Asked, Outcome, ReceiptState, Status
from actors.output import output_spec
from actors.tools import Effect, Tool
from actors.waiting import Frame, Wait

from .births import trust_of
from .knots import within
from .replies import Wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from actors.calling import Context
    from actors.letters import Letter
    from actors.reports import Report
    from actors.results import Given

    from .parts import Parts
    from .replies import Taken

ANSWER_SCHEMA: Final = {
    "type": "object",
    "properties": {"answer": {"type": "string", "description": "the answer to its question"}},
    "required": ["answer"],
    "additionalProperties": False,
}
TOOL_NAME_CHARS: Final = 64
_NO_TOOL_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


@attrs.frozen(eq=False)
class Ask:
    """An `ask` of a descendant that waits for its ancestor's answer.

    Attributes:
        frame: of the asker. text: what it asks. output: the name of the type that the answer owes, or None.
        wait: in the graph.
    """

    frame: Frame
    ancestor: AgentId
    text: str
    output: str | None
    wait: Wait


@attrs.define(eq=False)
class Sent:
    """An ask that goes to an ancestor as a message. `message`: its id, once it has `landed` in the mailbox."""

    ask: Ask
    message: MessageId | None = None
    landed: trio.Event = attrs.field(factory=trio.Event)


@attrs.frozen(eq=False)
class Open:
    """A question that an ancestor has.

    Attributes:
        tool: by which the ancestor's model answers this very question.
    """

    asked: Asked
    ask: Ask
    tool: str


@final
class Questions:
    """The questions that descendants have for ancestors here.

    Invariants:
        QUEST-1 an open question has an asker that waits: it is withdrawn with the asker's wait or turn.
        QUEST-2 an ancestor never waits for a branch from which a question to it is open: it is handed the question.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._open: dict[MessageId, Open] = {}
        self._sent: dict[Sent, None] = {}
        self._taking: set[MessageId] = set()

    @property
    def any(self) -> bool:
        """Whether any question is open."""
        return bool(self._open)

    def tool_of(self, question: MessageId) -> str | None:
        """The tool that answers a question, or None where it is open no more."""
        found = self._open.get(question)
        return None if found is None else found.tool

    def takes(self, message: MessageId) -> bool:
        """Whether a message is about to be a question, or is one: its asker hears of nothing but the answer."""
        return message in self._taking or message in self._open

    # -- asking ----------------------------------------------------------------------------------------------------

    async def ask(self, frame: Frame, ancestor: AgentId, letter: Letter, waits: Collection[Wait]) -> Outcome:
        """Complete the ancestor's waits with `needs_input`, and wait for its answer.

        Raises:
            WaitCycle: it waits for the asker in other ways, too; nothing has changed.
            Unfinished: the ancestor ended its turn without answering. Aborted: the asker's turn is over.
        """
        parts = self._parts
        question = parts.kernel.new_message_id()
        with parts.replies.hold(ancestor, waits) as wait:
            assert wait is not None, "an upward question comes from a frame"
            ask = Ask(frame, ancestor, text_of(letter.content), self._output(letter), wait)
            outcome = self._opened(question, ask)
            parts.replies.complete_waits(waits, frame.agent, outcome)
            try:
                _, answer = await parts.replies.first((Wanted(ancestor, question),), held=wait)
            finally:
                self._open.pop(question, None)
        return answer

    def _output(self, letter: Letter) -> str | None:
        if letter.output is None:
            return None
        spec = output_spec(letter.output, "output=")
        self._parts.outputs[spec.name] = spec
        return spec.name

    def _opened(self, question: MessageId, ask: Ask) -> Outcome:
        """Open a question. Returns what the ancestor's wait ends with."""
        child = ask.frame.agent
        asked = Asked(question, child, ask.text)
        self._open[question] = Open(asked, ask, self._answer_name(child, ask.ancestor))
        return self._needs_input(asked)

    def _needs_input(self, asked: Asked) -> Outcome:
        actor = self._parts.kernel.actors[asked.child]
        return Outcome(
            path=asked.child,
            run=run_id(asked.child, actor.row.runs),
            turn=turn_id(asked.child, actor.row.turns),
            status=Status.NEEDS_INPUT,
            text=asked.text,
            question=asked,
            trust=actor.row.trust if actor.loop is None else actor.loop.row.trust,
        )

    @contextmanager
    def by_message(self, frame: Frame, ancestor: AgentId, letter: Letter, wait: Wait) -> Iterator[Callable[..., None]]:
        """An `ask` goes to an ancestor as a message, from before it is sent until its asker waits no more.

        Yields:
            What to call with the message's id, once it is accepted.
        """
        sent = Sent(Ask(frame, ancestor, text_of(letter.content), self._output(letter), wait))
        self._sent[sent] = None

        def landed(message: MessageId) -> None:
            sent.message = message
            sent.landed.set()

        try:
            yield landed
        finally:
            self._sent.pop(sent, None)
            sent.landed.set()
            if sent.message is not None:
                self._open.pop(sent.message, None)

    # -- for whoever waits -----------------------------------------------------------------------------------------

    async def taken(self, waiter: Frame, targets: Sequence[AgentId]) -> Taken | None:
        """A question to the waiter's agent from one of the branches that it is about to wait for (QUEST-2)."""
        if not self._open and not self._sent:
            return None
        while True:
            for found in self._open.values():
                index = _branch(found.ask, waiter, targets)
                if index is not None:
                    return index, self._needs_input(found.asked)
            if not await self._take_up(waiter, targets):
                return None

    async def _take_up(self, waiter: Frame, targets: Sequence[AgentId]) -> bool:
        """Make a question of a message that waits in the waiter's mailbox. Returns whether there was one."""
        actors = self._parts.kernel.actors
        for sent in self._sent:
            ask, message = sent.ask, sent.message
            if _branch(ask, waiter, targets) is None:
                continue
            if message is None:  # on its way into the mailbox, which needs no loop
                await sent.landed.wait()
                return True
            if actors[ask.ancestor].mailbox.has(message):
                del self._sent[sent]
                move = Move(ask.ancestor, (ReceiptState.QUEUED,), ReceiptState.WITHDRAWN, (message,))
                self._taking.add(message)
                try:
                    await self._parts.kernel.commit(tree_of(ask.ancestor), (move,))
                except Conflict:  # a turn has it now, and will answer it
                    return True
                finally:
                    self._taking.discard(message)
                if self._parts.replies.awaited(message):  # else its asker gave up meanwhile
                    self._opened(message, ask)
                return True
        return False

    # -- answering -------------------------------------------------------------------------------------------------

    async def answer(self, question: MessageId, text: str) -> None:
        """Answer a question: the child's `ask` returns.

        Raises:
            UsageError: it is not open any more.
        """
        check_text(text, "an answer")
        await trio.lowlevel.checkpoint_if_cancelled()
        found = self._open.pop(question, None)
        if found is None:
            msg = f"the question {question} is not open: it was answered, or the asker no longer waits"
            raise UsageError(msg)
        parts, ancestor = self._parts, found.ask.ancestor
        parts.graph.end(found.ask.wait)  # from here on the ancestor may wait for the child again
        actor = parts.kernel.actors.get(ancestor)
        turns, runs = (0, 0) if actor is None else (actor.row.turns, actor.row.runs)
        output, frame = found.ask.output, parts.own_frame()
        parts.replies.reply(
            question,
            Outcome(
                ancestor,
                run_id(ancestor, runs),
                turn_id(ancestor, turns),
                Status.DONE,
                text=text,
                output=None if output is None else text,
                output_type=output,
                trust=trust_of(parts, "" if frame is None else frame.agent),
            ),
        )

    def turn_over(self, agent: AgentId) -> None:
        """A turn is over: what its agent was asked in it has no answer to wait for, and what it asked no reader."""
        for found in tuple(self._open.values()):
            if found.ask.ancestor == agent:
                self._fail(found, Unfinished(f"{agent} ended its turn without answering: {found.ask.text}"))
            elif found.asked.child == agent:
                self._fail(found, Aborted(f"the turn of {agent} that asked this is over: {found.ask.text}"))

    def _fail(self, found: Open, error: CallboardError) -> None:
        del self._open[found.asked.id]
        self._parts.graph.end(found.ask.wait)
        self._parts.replies.reply(found.asked.id, error=error)

    # -- by the ancestor's model -----------------------------------------------------------------------------------

    def tools(self, ancestor: AgentId, told: Callable[[Report], Given]) -> tuple[Tool[..., object], ...]:
        """A tool for each open question of an agent. `told`: a report as the model reads it."""
        asked = [found for found in self._open.values() if found.ask.ancestor == ancestor]
        return tuple(self._tool(found, told) for found in sorted(asked, key=lambda one: one.tool))

    def _answer_name(self, child: AgentId, ancestor: AgentId) -> str:
        """A name for the tool that answers this child: `answer_kid_2` for `lead/kid#2`, shortened and made unique."""
        taken = {found.tool for found in self._open.values() if found.ask.ancestor == ancestor}
        taken.update(self._parts.children.tool_names(ancestor))
        ordinal = ordinal_of(child)
        suffix = f"_{ordinal}" if ordinal > 1 else ""
        while True:
            name = f"answer_{_NO_TOOL_NAME.sub('_', name_of(child))}"[: TOOL_NAME_CHARS - len(suffix)] + suffix
            if name not in taken:
                return name
            ordinal += 1
            suffix = f"_{ordinal}"

    def _tool(self, found: Open, told: Callable[[Report], Given]) -> Tool[..., object]:
        child, ancestor = found.asked.child, found.ask.ancestor

        async def run(ctx: Context, answer: str) -> Given:
            if found.asked.id not in self._open:
                msg = f"{child} no longer waits for an answer"
                raise UsageError(msg)
            await self.answer(found.asked.id, answer)
            return told(await ctx.ref(_towards(ancestor, child)).wait_report())

        description = f"Answer the open question of {child} and wait for its report."
        return Tool.internal(found.tool, description, dict(ANSWER_SCHEMA), run, effect=Effect.CHILD, context="ctx")

    def __repr__(self) -> str:
        return f"<Questions {len(self._open)} open, {len(self._sent)} sent>"


def _branch(ask: Ask, waiter: Frame, targets: Sequence[AgentId]) -> int | None:
    """Which target leads to the asker of a question that the waiter's agent is to answer."""
    if ask.ancestor != waiter.agent:
        return None
    return next((at for at, target in enumerate(targets) if within(ask.frame.agent, target)), None)


def _towards(ancestor: AgentId, descendant: AgentId) -> AgentId:
    """The child of an ancestor above, or at, a descendant."""
    rest = descendant[len(ancestor) + 1 :]
    return AgentId(f"{ancestor}/{rest.partition('/')[0]}")
