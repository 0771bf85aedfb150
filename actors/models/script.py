"""A model that plays a script: for tests, examples and a first try without a key.

One script serves a whole tree. It is keyed by agent and by the agent's own requests, never by global order, so it
plays the same whatever runs beside it. It streams, counts tokens and can take time, as a model behind a network does.
"""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

import trio
from msgspec.structs import replace

from actors.errors import ProviderError, Rejected, UsageError
from actors.ids import name_of
from actors.ports import BlockDone, ReportedUsage, Response, WireCall
from actors.transcript import ResponseRecord

from .reading import last_message, results
from .script_steps import (
    Scene,
    ScriptedCall,
    Step,
    Steps,
    answer,
    as_scene,
    as_steps,
    broken,
    call,
    hang,
    malformed,
    overflow,
    overloaded,
    rejected,
    shown,
    thought,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.ports import Emit, ModelRequest, Piece
    from actors.transcript import ReasoningBlock, TextBlock

__all__ = [
    "Script",
    "Step",
    "Steps",
    "answer",
    "broken",
    "call",
    "hang",
    "malformed",
    "overflow",
    "overloaded",
    "rejected",
    "thought",
]

BYTES_PER_TOKEN: Final = 4
KEPT_SCENES: Final = 256
"""How many texts and calls that functions gave are kept ready: few enough to look like nothing."""


class _Play:
    """Where one agent is in its script. `steps`: empty where one function is asked for every request."""

    __slots__ = ("calls", "key", "place", "requests", "steps", "tool_bytes", "tools", "whole")

    def __init__(self, key: str, script: Steps, request: ModelRequest) -> None:
        self.key = key
        self.whole = script if callable(script) else None
        self.steps: Sequence[Step] = () if callable(script) else script
        self.place = _resumed_at(self.steps, request.window.responses)
        self.calls = sum(len(record.calls) for record in request.window if isinstance(record, ResponseRecord))
        self.requests = 0
        self.tools: object = None
        self.tool_bytes = 0

    def asked_bytes(self, request: ModelRequest) -> int:
        """About how many bytes the request has."""
        if request.tools is not self.tools:
            self.tools = request.tools
            self.tool_bytes = sum(len(tool.name) + len(tool.description) + len(tool.schema) for tool in request.tools)
        return len(request.instructions) + request.window.size_bytes + self.tool_bytes + sum(map(len, request.notes))


def _resumed_at(steps: Sequence[Step], responses: int) -> int:
    """The place behind so many answered steps: an error is a step too, but left no response in the conversation."""
    place = 0
    while responses > 0 and place < len(steps):
        step = steps[place]
        responses -= not (isinstance(step, Scene) and step.fails)
        place += 1
    return place


@final
class Script:
    """A model that plays steps: an `actors.ports.Model`.

    Args:
        steps: per agent name (`reviewer`) or whole path (`lead/reviewer#2`, which goes first) its steps, or one
            function that is asked for every request. Each agent plays its own script from the start; one that is
            resumed goes on behind the responses that stand in its conversation.
        name: the bare model name, by which it is priced.
        latency_s: seconds a request takes, or a range out of which `seed` draws; 0 takes none.
        delta_chars: characters per streamed piece of text; 0 streams each block in one piece.
        seed: of the drawn latencies.

    Invariants:
        SCRIPT-1 what an agent is answered depends on its own requests only, never on another agent's.
    """

    __slots__ = (
        "_delta",
        "_latency",
        "_plays",
        "_problems",
        "_ready",
        "_seed",
        "_steps",
        "context_window",
        "free",
        "id",
        "name",
    )

    def __init__(
        self,
        steps: Mapping[str, Steps],
        *,
        name: str = "script",
        latency_s: float | tuple[float, float] = 0,
        delta_chars: int = 24,
        seed: int = 0,
        context_window: int | None = None,
    ) -> None:
        if not isinstance(steps, Mapping):
            raise UsageError(f'Script takes a dict such as {{"agent": ["Hello."]}}; got {steps!r}')
        low, high = latency_s if isinstance(latency_s, tuple) else (latency_s, latency_s)
        if not 0 <= low <= high or delta_chars < 0:
            raise UsageError(
                f"Script takes latency_s from 0, or (least, most), and delta_chars from 0;"
                f" got {latency_s!r} and {delta_chars!r}"
            )
        self._steps = {agent: as_steps(agent, script, delta_chars) for agent, script in steps.items()}
        self._latency = (low, high)
        self._delta = delta_chars
        self._seed = seed
        self._plays: dict[str, _Play] = {}
        self._ready: dict[str | ScriptedCall, Scene] = {}  # of what functions gave
        self._problems: list[str] = []
        self.id = f"script:{name}"
        self.name = name
        self.free = True
        self.context_window = context_window

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        """Play the agent's next step.

        Args:
            request: what is asked.
            emit: called for each piece.

        Raises:
            ProviderError: the step is one, or the script has no step for the request.

        If cancelled: the step is played; the next request gets the next one.
        """
        play = self._plays.get(request.agent) or self._begin(request)
        play.requests += 1
        scene = await self._scene(play, request)
        blocks, pieces = _made(scene, play)
        if self._latency[1]:
            await self._stream(pieces, emit, self._seconds(request, play))
        else:
            await trio.lowlevel.checkpoint()
            for piece in pieces:
                emit(piece)
        if scene.end is not None:
            if not isinstance(scene.end, ProviderError):
                await trio.sleep_forever()
            raise copy.copy(scene.end)  # one step may be played by many agents, and each raise adds its traceback
        return self._response(scene, blocks, play, request)

    def assert_done(self) -> None:
        """Check that the script was played to its end by every agent that played it, and by nobody else.

        Raises:
            AssertionError: it lists the steps that were not played and the requests that had no step.
        """
        left = list(self._problems)
        played = {play.key for play in self._plays.values()}
        for path, play in self._plays.items():
            left += [f"{path}: not played: {shown(step)}" for step in play.steps[play.place :]]
        for key, script in self._steps.items():
            if key not in played:
                left.append(f"{key}: never asked" + ("" if callable(script) else f"; {len(script)} steps not played"))
        if left:
            raise AssertionError("the script is not done:\n" + "\n".join(f"- {line}" for line in left))

    def __repr__(self) -> str:
        return f"<Script {self.name} for {', '.join(self._steps)}, {len(self._plays)} playing>"

    # -- inside ------------------------------------------------------------------------------------------------

    def _begin(self, request: ModelRequest) -> _Play:
        name = name_of(request.agent)
        key = request.agent if request.agent in self._steps else name
        script = self._steps.get(key)
        if script is None:
            raise self._unexpected(request, f"it has no steps for {name!r}; it has some for {', '.join(self._steps)}")
        play = self._plays[request.agent] = _Play(key, script, request)
        return play

    async def _scene(self, play: _Play, request: ModelRequest) -> Scene:
        if play.whole is not None:
            step: Step = play.whole
        elif play.place < len(play.steps):
            step = play.steps[play.place]
            play.place += 1
        else:
            raise self._unexpected(request, f"all {len(play.steps)} steps of {play.key!r} are played")
        if isinstance(step, Scene):
            return step
        assert callable(step), "what is no scene was left as a function"
        try:
            given = step(request)
            given = await given if inspect.isawaitable(given) else given
            return self._made_ready(given)
        except ProviderError as error:
            return as_scene(error, self._delta)
        except Exception as error:
            self._problems.append(f"{request.agent}: the step {shown(step)} failed: {type(error).__name__}: {error}")
            raise Rejected(f"the script's step for {request.agent} failed: {error!r}", reason="script") from error

    def _made_ready(self, given: Step) -> Scene:
        """What a function gave as a scene; what is often given, the same text or call, is made ready once."""
        if type(given) is not str and type(given) is not ScriptedCall:
            return as_scene(given, self._delta)
        known = self._ready.get(given)
        if known is None:
            if len(self._ready) >= KEPT_SCENES:
                self._ready.clear()
            known = self._ready[given] = as_scene(given, self._delta)
        return known

    def _unexpected(self, request: ModelRequest, why: str) -> Rejected:
        seen = results(request)
        asked = f"the results of {', '.join(one.name for one in seen)}" if seen else repr(last_message(request)[:200])
        self._problems.append(f"{request.agent}: unexpected request, asked {asked}")
        return Rejected(
            f"the script has no step left for {request.agent}, which was asked {asked}: {why}; add one", reason="script"
        )

    async def _stream(self, pieces: Sequence[Piece], emit: Emit, seconds: float) -> None:
        """Emit with the time spread evenly, half of it before the first piece."""
        await trio.sleep(seconds / 2)
        for piece in pieces:
            await trio.sleep(seconds / 2 / len(pieces))
            emit(piece)

    def _seconds(self, request: ModelRequest, play: _Play) -> float:
        low, high = self._latency
        if high == low:
            return low
        return random.Random(f"{self._seed}:{request.agent}:{play.requests}").uniform(low, high)  # noqa: S311 - no secret

    def _response(
        self,
        scene: Scene,
        blocks: tuple[TextBlock | ReasoningBlock | WireCall, ...],
        play: _Play,
        request: ModelRequest,
    ) -> Response:
        given = scene.given
        if given is not None and given.usage is not None:
            return given
        reasoning = _tokens(scene.reasoned)
        usage = ReportedUsage(_tokens(play.asked_bytes(request)), _tokens(scene.said) + reasoning, 0, reasoning, 0)
        if given is not None:
            return replace(given, usage=usage)
        return Response(blocks, scene.stop, usage, self.name, f"{request.agent}~{play.requests}")


def _made(scene: Scene, play: _Play) -> tuple[tuple[TextBlock | ReasoningBlock | WireCall, ...], Sequence[Piece]]:
    """The blocks and the pieces of a scene, its calls with their ids."""
    if scene.blocks is not None and len(scene.parts) == 1:
        return scene.blocks, scene.parts[0].pieces
    blocks: list[TextBlock | ReasoningBlock | WireCall] = []
    pieces: list[Piece] = []
    for part in scene.parts:
        block = part.block
        if isinstance(block, ScriptedCall):
            play.calls += 1
            block = WireCall(block.wire_id or f"call_{play.calls}", block.name, block.arguments, block.invalid)
            pieces.append(BlockDone(block))
        else:
            pieces += part.pieces
        blocks.append(block)
    return tuple(blocks), pieces


def _tokens(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)
