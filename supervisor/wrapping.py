"""A call inside its hook: what `proceed` does, however often and with whatever arguments it is asked (TOL-13)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, final

import trio

from actors.content import Trust
from actors.errors import UsageError
from actors.guarding import goes_on
from actors.happenings import ToolChanged
from actors.hooks import AroundCall, Refuse
from actors.results import Given
from actors.tools import Parsed
from actors.transcript import ResultStatus
from actors.wrapping import rewritten

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from actors.callview import CallView
    from actors.happenings import Event
    from actors.hooks import Moment
    from actors.running import Around, Run

    Tell = Callable[[type[Event], Mapping[str, object]], None]


@final
class Once:
    """What `proceed` is: the call runs when it is first asked for, and never again (TOL-13).

    ONCE-1 it has begun before anything of it runs; whoever asks later, or meanwhile, gets what came of it.
    """

    def __init__(self, call: CallView, run: Run, tell: Tell) -> None:
        self._call = call
        self._run = run
        self._tell = tell
        self._over: trio.Event | None = None
        self._value: object = None
        self._error: BaseException | None = None

    async def __call__(self, arguments: Mapping[str, object] | None = None) -> object:
        """What the call gives, with the model's arguments or with these. Raises what it raised.

        Raises:
            UsageError: it may not run with these; nothing was run, and it may be asked again.
        """
        if self._over is not None:
            await self._over.wait()
            if self._error is not None:
                raise self._error
            return self._value
        given = None if arguments is None else self._changed(arguments)
        self._over = trio.Event()
        try:
            self._value = await self._run(given)
        except BaseException as error:
            name = self._call.block.name
            cut_off = UsageError(f"{name} was cut off by its hook; it may have taken effect, and is not run again")
            self._error = cut_off if goes_on(error) else error
            raise
        finally:
            self._over.set()
        return self._value

    def _changed(self, arguments: Mapping[str, object]) -> dict[str, object]:
        block = self._call.block
        text, given = rewritten(self._call, arguments)
        self._tell(ToolChanged, {"call": block.id, "name": block.name, "arguments": text})
        return given


def wrapper(
    methods: Sequence[Callable[..., Awaitable[object]]], moment: Callable[[], Moment], call: CallView, tell: Tell
) -> Around:
    """The wrapper of a call that hooks' methods are, outermost first; an inner one sees what an outer one changed."""

    async def layer(run: Run, given: dict[str, object] | None, depth: int) -> object:
        async def within(changed: dict[str, object] | None) -> object:
            inside = given if changed is None else changed
            return await (run(inside) if depth + 1 == len(methods) else layer(run, inside, depth + 1))

        return await methods[depth](moment(), _wrapped(call, given), Once(call, within, tell))

    async def around(run: Run) -> object:
        began = False

        async def really(given: dict[str, object] | None) -> object:
            nonlocal began
            began = True
            return await run(given)

        value = await layer(really, None, 0)
        if not isinstance(value, Refuse):
            return value
        if began:
            text = f"{call.block.name} ran, and a hook withholds its result: {value.reason}"
            return Given(text, ResultStatus.ERROR, Trust.TRUSTED)
        return Given(f"Not run: {value.reason}", ResultStatus.REFUSED, Trust.TRUSTED)

    return around


def _wrapped(call: CallView, given: dict[str, object] | None) -> AroundCall:
    """The call as a hook sees it, with arguments of its own: what it does to them changes no call."""
    if given is not None:
        return AroundCall(call.block.id, call.block.name, copy.deepcopy(given))
    read = None if call.tool is None else call.tool.parse(call.block.arguments)
    return AroundCall(call.block.id, call.block.name, read.arguments if isinstance(read, Parsed) else {})
