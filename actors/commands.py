"""Tools that run a program: an argument list and no shell, in a process group of its own that ends with the call.

    @command(timeout=30, effect="pure", trust="workspace")
    def search(pattern: str, folder: str = ".") -> list[str]:
        '''Search the files of a folder.'''
        return ["grep", "-rn", "--", pattern, folder]

However the call ends (the program's exit, a timeout, a cancellation, an abort, the supervisor's end), the whole group
is told to stop, and killed if it has not within a bounded time. What leaves the group by itself (`setsid`) is not
followed.
"""

from __future__ import annotations

import codecs
import functools
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, cast, final, overload

import attrs
import trio

from .content import Trust
from .errors import UsageError
from .results import Given, compile_output
from .signature import names_beside
from .tool_options import ToolOptions, is_number
from .tools import Tool, make_tool
from .transcript import ResultStatus

if TYPE_CHECKING:
    from typing import Unpack

    from .calling import Context

P = ParamSpec("P")
Argv: TypeAlias = Sequence["str | os.PathLike[str]"]
Declared: TypeAlias = "Tool[P, Any]"

KILLED_S: Final = 2.0
"""How long the end of a killed group is waited for: nothing can refuse it, but the machine may be slow."""
DRAIN_S: Final = 1.0
"""How long output is still read once the group has ended: only a process that left it can hold the pipe open."""
CHUNK_BYTES: Final = 65_536
PROGRESS_CHARS: Final = 2_000
"""How much of what came at once an event shows: the last of it."""
_HIDDEN: Final = "_call"
"""By this name the context is handed over where the function does not take one."""
_POLLS_S: Final = (0.005, 0.01, 0.02, 0.05)


class CommandOptions(ToolOptions, total=False):
    """What `command` may be told beside what `tool` may.

    Attributes:
        cwd: where the program runs; None: where we do.
        env: its whole environment; None: ours. Give one where ours holds what the program must not see.
        stop_s: seconds between the signal to end (SIGTERM) and the kill (SIGKILL), from 0; 2 by default.
        output_bytes: how much of the output is kept, its beginning and its end; 1,000,000 by default.
        trust: of the output; `external` by default.
    """

    cwd: str | Path | None
    env: Mapping[str, str] | None
    stop_s: float
    output_bytes: int


@attrs.frozen
class How:
    """The options of one command, as `CommandOptions` has them."""

    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None
    stop_s: float = 2.0
    output_bytes: int = 1_000_000

    @classmethod
    def read(cls, options: dict[str, Any], where: str) -> How:
        """Take the command's own options out of all.

        Raises:
            UsageError: one cannot be meant.
        """
        how = cls(**{name: options.pop(name) for name in _OWN if name in options})
        if not (is_number(how.stop_s) and how.stop_s >= 0):
            raise UsageError(f"{where}: stop_s= is seconds from 0; got {how.stop_s!r}")
        if type(how.output_bytes) is not int or how.output_bytes < 1:
            raise UsageError(f"{where}: output_bytes= is a whole number from 1; got {how.output_bytes!r}")
        return how


_OWN: Final = tuple(CommandOptions.__annotations__.keys() - ToolOptions.__annotations__.keys())


@overload
def command(fn: Callable[P, Argv], /, **options: Unpack[CommandOptions]) -> Tool[P, Any]: ...
@overload
def command(**options: Unpack[CommandOptions]) -> Callable[[Callable[P, Argv]], Tool[P, Any]]: ...
def command(
    fn: Callable[P, Argv] | None = None, /, **options: Unpack[CommandOptions]
) -> Tool[P, Any] | Callable[[Callable[P, Argv]], Tool[P, Any]]:
    """Make a function that says what to run a tool that runs it; `@command` and `@command(timeout=5)` both work.

    The model reads what the program wrote, both streams as they came, and an exit code that is not 0, which makes the
    result an error. While it runs, what it writes is progress. Its standard input is empty.

    Args:
        fn: a plain function of the tool's arguments; it only says what to run, at once.
        **options: see `CommandOptions` and `ToolOptions`.

    Raises:
        UsageError: something cannot be offered to a model, or cannot be meant.

    If cancelled: the group has ended, or been killed, at most `stop_s` and two seconds later.
    """
    names = names_beside()

    def decorate(function: Callable[P, Argv]) -> Tool[P, Any]:
        return _made(function, dict(options), names)

    return decorate if fn is None else decorate(fn)


def _made(fn: Callable[P, Argv], options: dict[str, Any], names: Mapping[str, object]) -> Tool[P, Any]:
    where = f"command {getattr(fn, '__name__', fn)!r}"
    how = How.read(options, where)
    options.setdefault("trust", Trust.EXTERNAL)  # a program reads files and the network, whatever the tool is called
    made: Any = make_tool(fn, cast("ToolOptions", options), names)
    if made.is_async:
        raise UsageError(f"{where} is async; it only says what to run: write a plain function")
    hidden = made.context or _HIDDEN

    @functools.wraps(fn)
    async def run(*args: Any, **kwargs: Any) -> Given:
        context: Context | None = kwargs.get(hidden) if made.context is not None else kwargs.pop(hidden, None)
        argv = _checked(fn(*args, **kwargs), where)
        output = Kept(how.output_bytes)
        if context is None:
            return await run_command(argv, how, output=output)
        context.so_far = output.text
        return await run_command(argv, how, context.progress, output)

    output = compile_output(made.name, str, where)
    tool: Tool[P, Any] = attrs.evolve(made, fn=run, context=hidden, is_async=True, output=output)
    return tool


def _checked(argv: object, where: str) -> list[str]:
    if isinstance(argv, list | tuple) and argv and all(isinstance(one, str | os.PathLike) for one in argv):
        return [os.fspath(one) for one in argv]
    raise UsageError(f"{where} returns what to run, a list such as ['ls', '-l', folder], with no shell; got {argv!r}")


# -- running -----------------------------------------------------------------------------------------------------


async def run_command(
    argv: Sequence[str], how: How, progress: Callable[[str], None] | None = None, output: Kept | None = None
) -> Given:
    """Run a program to its end, and its group with it.

    Args:
        argv: the program and its arguments; no shell.
        how: where, and within which bounds.
        progress: called with what it writes, as it comes.
        output: takes what it writes; None: nobody else wants it.

    Raises:
        OSError: there is no such program, or it cannot be started.

    If cancelled: the group has ended, or been killed, at most `stop_s` and two seconds later.
    """
    process = await trio.lowlevel.open_process(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=how.cwd,
        env=how.env,
        start_new_session=True,
    )
    output, group = output or Kept(how.output_bytes), _Group(process, how.stop_s)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_read, process, output, progress)
            await _exited(process)
            await group.end()
            nursery.cancel_scope.deadline = trio.current_time() + DRAIN_S
    finally:
        with trio.move_on_after(how.stop_s + KILLED_S + DRAIN_S, shield=True):
            await group.end()
            assert process.stdout is not None, "it was asked for"
            await process.stdout.aclose()
    code = process.returncode
    text = output.text()
    if code == 0:
        return Given(text or "done")
    said = f"[ended by signal {-code}]" if code is not None and code < 0 else f"[exit code {code}]"
    return Given(f"{text}\n{said}" if text else said, ResultStatus.ERROR)


async def _read(process: trio.Process, output: Kept, progress: Callable[[str], None] | None) -> None:
    assert process.stdout is not None, "it was asked for"
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while chunk := await process.stdout.receive_some(CHUNK_BYTES):
        output.take(bytes(chunk))
        if progress is not None and (text := decoder.decode(chunk)):
            progress(text[-PROGRESS_CHARS:])


async def _exited(process: trio.Process) -> None:
    """Wait for the leader's exit; where that can be had, without taking it, so that its number stays the group's."""
    if not hasattr(os, "pidfd_open"):
        await process.wait()
        return
    fd = os.pidfd_open(process.pid)
    try:
        await trio.lowlevel.wait_readable(fd)
    finally:
        os.close(fd)


@final
class _Group:
    """The processes of one command, from its start to the end of the last.

    Invariants:
        GROUP-1 once they have ended nothing is signalled any more: the number may be another's by then.
    """

    def __init__(self, process: trio.Process, stop_s: float) -> None:
        self._process = process
        self._stop_s = stop_s
        self._over = False

    async def end(self) -> None:
        """Ask the group to end, wait at most `stop_s`, kill what is left."""
        if self._over:
            return
        for number, wait_s in ((signal.SIGTERM, self._stop_s), (signal.SIGKILL, KILLED_S)):
            _signal(self._process.pid, number)
            with trio.move_on_after(wait_s) as waiting:
                await self._gone()
            if not waiting.cancelled_caught:
                return

    async def _gone(self) -> None:
        """Wait for the end of the leader, then of all others of its group, of which nobody tells us."""
        await self._process.wait()
        polls = iter(_POLLS_S)
        while _alive(self._process.pid):  # noqa: ASYNC110 - see above
            await trio.sleep(next(polls, _POLLS_S[-1]))
        self._over = True


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # nobody is left, or only what is not ours to end any more
        return


def _alive(group: int) -> bool:
    """Whether a process of the group runs. One that has ended counts as gone, whether or not anybody took its exit."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    found = tuple(Path("/proc").glob("[0-9]*/stat"))
    return not found or any(_runs(path, group) for path in found)


def _runs(path: Path, group: int) -> bool:
    try:
        state, _, its_group = path.read_bytes().rpartition(b")")[2].split()[:3]
    except (OSError, ValueError):  # it ended meanwhile
        return False
    return int(its_group) == group and state not in b"ZX"


# -- output ------------------------------------------------------------------------------------------------------


@final
class Kept:
    """The beginning and the end of what a program wrote, within a bound; twice that is the most it ever holds."""

    def __init__(self, limit_bytes: int) -> None:
        self._half = max(1, limit_bytes // 2)
        self._head = bytearray()
        self._tail = bytearray()
        self._lost = 0

    def take(self, chunk: bytes) -> None:
        """Take what came."""
        room = self._half - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 3 * self._half:
            self._shorten()

    def _shorten(self) -> None:
        over = len(self._tail) - self._half
        if over > 0:
            self._lost += over
            del self._tail[:over]

    def text(self) -> str:
        """What is kept, with a line that says how much is not."""
        self._shorten()
        head, tail = self._head.decode("utf-8", "replace"), self._tail.decode("utf-8", "replace")
        return f"{head}\n[cut: {self._lost:,} bytes are missing here]\n{tail}" if self._lost else head + tail
