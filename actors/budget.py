"""Budgets and limits as people write them."""

from __future__ import annotations

import enum
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import attrs

from .errors import UsageError
from .messages import LaneBound
from .usage import MICROSECONDS, MOST, picodollars

if TYPE_CHECKING:
    from collections.abc import Iterator


class Dimension(enum.StrEnum):
    """What a budget can bound; the names people write in `Budget`."""

    TOKENS = "tokens"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    COST = "usd"
    MODEL_CALLS = "model_calls"
    TOOL_CALLS = "tool_calls"
    SECONDS = "seconds"
    AGENTS = "agents"
    DEPTH = "depth"


def _count(instance: object, field: attrs.Attribute[int | None], value: object) -> None:
    del instance
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST):
        msg = f"Budget({field.name}=...) is a whole number from 0 to 10^15, or None for no limit; got {value!r}"
        raise UsageError(msg)


def _count_field() -> int | None:
    field: int | None = attrs.field(default=None, validator=_count, kw_only=True)
    return field


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@attrs.frozen
class Budget:
    """What an agent and all below it may spend. None is no limit, 0 is nothing left.

    Args:
        usd: dollars, a string, int or Decimal. seconds: in which a turn of the agent runs.
        tokens, input_tokens, output_tokens, model_calls, tool_calls: counts over the whole subtree.
        agents: agents alive below at once. depth: levels below.
        soft, critical: shares of a limit at which the agent, its parent and watchers are told, 0 to 1.
        on_exhausted: what an agent does whose request, or tool call, one of these limits refuses, itself or below:
            `wrap_up` (one last response without tools), `park` (wait for a grant), `fail`. Where several budgets bind,
            the one that refused decides. Time that is up leaves no last response: there `wrap_up` fails, too.
    """

    usd: Decimal | str | int | None = attrs.field(default=None, kw_only=True)
    tokens: int | None = _count_field()
    input_tokens: int | None = _count_field()
    output_tokens: int | None = _count_field()
    model_calls: int | None = _count_field()
    tool_calls: int | None = _count_field()
    seconds: float | None = attrs.field(default=None, kw_only=True)
    agents: int | None = _count_field()
    depth: int | None = _count_field()
    soft: float = attrs.field(default=0.7, kw_only=True)
    critical: float = attrs.field(default=0.9, kw_only=True)
    on_exhausted: str = attrs.field(default="wrap_up", kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse contradictions where the budget is written."""
        if self.usd is not None:
            picodollars(self.usd)
        seconds = self.seconds
        if seconds is not None and not (_is_number(seconds) and 0 <= seconds <= MOST):
            msg = f"Budget(seconds=...) is a number from 0 to 10^15, or None for no limit; got {seconds!r}"
            raise UsageError(msg)
        shares = _is_number(self.soft) and _is_number(self.critical)
        if not (shares and 0 <= self.soft <= self.critical <= 1):
            msg = f"Budget needs 0 <= soft <= critical <= 1; got soft={self.soft!r}, critical={self.critical!r}"
            raise UsageError(msg)
        if self.on_exhausted not in ON_EXHAUSTED:
            msg = f"Budget(on_exhausted=...) is one of {', '.join(ON_EXHAUSTED)}; got {self.on_exhausted!r}"
            raise UsageError(msg)

    def limits(self) -> Iterator[tuple[Dimension, int]]:
        """The limits that are set, in whole units: picodollars, microseconds, counts."""
        if self.usd is not None:
            yield Dimension.COST, picodollars(self.usd)
        if self.seconds is not None:
            yield Dimension.SECONDS, int(self.seconds * MICROSECONDS)
        for dimension in _COUNTED:
            value: int | None = getattr(self, dimension.value)
            if value is not None:
                yield dimension, value


ON_EXHAUSTED: Final = ("wrap_up", "park", "fail")
_COUNTED: Final = (
    Dimension.TOKENS,
    Dimension.INPUT_TOKENS,
    Dimension.OUTPUT_TOKENS,
    Dimension.MODEL_CALLS,
    Dimension.TOOL_CALLS,
    Dimension.AGENTS,
    Dimension.DEPTH,
)


_LANE: Final = LaneBound()
TURN_S: Final = 1_800.0
"""Half an hour: longer than any turn that gets on, and shorter than a night of one that does not."""


@attrs.frozen(kw_only=True)
class Limits:
    """Bounds of one agent. Everything is bounded; raise what your case needs.

    Args:
        model_calls_per_turn: requests in one turn.
        invalid_responses: responses in a row whose every call had invalid arguments.
        identical_failures: calls of one name and arguments that fail in a row.
        repeated_cycles: how often the same calls may give the same results before the model is told, from 2; after
            twice as often no more calls are taken.
        parallel_calls: calls of one batch that run at once.
        calls_per_response: calls taken from one response; the rest are refused with a result.
        result_chars: characters of a tool result that the model is shown.
        kept_chars: characters of longer results that are kept whole beside the conversation, of one agent together; the
            oldest go first, a longer one is not kept, 0 keeps none (TOL-8).
        output_repairs: how often a structured answer may be asked again.
        steer, send: what the lanes hold.
        first_event_s, between_events_s: deadlines of a stream. attempts: tries at one request.
        turn_s: seconds one turn may take, above 0, or None for no limit; while a person is waited for none pass. The
            model is told at a boundary when they are nearly up; then what is under way is cut. Under a virtual clock
            the default is none, unless nothing runs in threads (`inline`): it jumps while one works.
        hard_s: how long a request waits for tools that an abort left behind (REQ-2).
        approvals: calls of one agent that wait for a person at once; more are refused with a result.
        approve_s: seconds until a request for approval counts as denied, where the tool says nothing; None: never.
        hook_messages: messages that hooks may send their own agent in one run, in one process; the next one is refused,
            or a hook that steers at every request would keep the run going for ever (HOK-2).
        poison_limit: crashes in a row after which what a turn had consumed goes to the dead letters, from 1 (CON-6).
    """

    model_calls_per_turn: int = 50
    invalid_responses: int = 3
    identical_failures: int = 4
    repeated_cycles: int = 8
    parallel_calls: int = 8
    calls_per_response: int = 128
    result_chars: int = 64_000
    kept_chars: int = 4_000_000
    output_repairs: int = 2
    steer: LaneBound = _LANE
    send: LaneBound = _LANE
    first_event_s: float = 120.0
    between_events_s: float = 60.0
    attempts: int = 4
    turn_s: float | None = TURN_S
    hard_s: float = 10.0
    approvals: int = 20
    approve_s: float | None = None
    hook_messages: int = 100
    poison_limit: int = 3

    def __attrs_post_init__(self) -> None:
        """Refuse bounds under which nothing could ever happen."""
        for name, least in _COUNTS.items():
            count: object = getattr(self, name)
            if not isinstance(count, int) or isinstance(count, bool) or not least <= count <= MOST:
                raise UsageError(f"Limits({name}=...) is a whole number from {least} to 10^15; got {count!r}")
        for name in ("first_event_s", "between_events_s", "hard_s"):
            time: object = getattr(self, name)
            if not _is_number(time) or not (0 <= time <= MOST or time == math.inf):  # type: ignore[operator]  # a number
                raise UsageError(f"Limits({name}=...) is seconds from 0 to 10^15; got {time!r}")
        for name in ("steer", "send"):
            if not isinstance(getattr(self, name), LaneBound):
                msg = f"Limits({name}=...) is a LaneBound, such as LaneBound(messages=100); got {getattr(self, name)!r}"
                raise UsageError(msg)
        for name in ("approve_s", "turn_s"):
            seconds: object = getattr(self, name)
            if seconds is not None and not (_is_number(seconds) and 0 < seconds <= MOST):  # type: ignore[operator]  # a number
                msg = f"Limits({name}=...) is seconds above 0, up to 10^15, or None for no limit; got {seconds!r}"
                raise UsageError(msg)


_COUNTS: Final = {
    "model_calls_per_turn": 1,
    "invalid_responses": 1,
    "identical_failures": 1,
    "parallel_calls": 1,
    "attempts": 1,
    "poison_limit": 1,
    "calls_per_response": 1,
    "result_chars": 1,
    "repeated_cycles": 2,
    "kept_chars": 0,
    "output_repairs": 0,
    "approvals": 0,
    "hook_messages": 0,
}
"""What is counted, and the least of it."""
DEFAULT_LIMITS: Final = Limits()
