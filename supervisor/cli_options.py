"""The command line as data: what may be written, and what it means. Pure, apart from argparse."""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from typing import TYPE_CHECKING, Final, NoReturn

import attrs

from actors.budget import ON_EXHAUSTED, Budget, Dimension
from actors.errors import UsageError

from .cli_exit import MEANINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

_CODES: Final = "\n".join(
    textwrap.fill(meaning, 79, initial_indent=f"  {code:<4}", subsequent_indent=" " * 6)
    for code, meaning in MEANINGS.items()
)
EPILOG: Final = f"""\
exit codes:
{_CODES}

FILE.py exports `async def main(sup, args) -> Report | None`, or an agent named
`agent`, which is asked TASK; a run that is resumed has its TASK already. It may
export `def arguments(parser)` for options of its own, `model` (used without
--model) and `agents` (whom a stored run is brought back with); these two may be
functions of args. Options of FILE.py stand behind it.
"""


class Parser(argparse.ArgumentParser):
    """An argument parser whose usage errors name the command and the way to its help."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line, and exit with 2."""
        self.exit(2, f"callboard: {message}\n{self.prog} --help says what can be written\n")


@attrs.frozen
class Common:
    """The options that every run has.

    Attributes:
        model: names to try in order; empty for the file's own. store: path or address, or None for memory.
        budget: for the whole run, or None. resume: go on with a run that was cut off. path: of its root, or None for
            the only one there is.
    """

    model: tuple[str, ...] = ()
    store: str | None = None
    budget: Budget | None = None
    resume: bool = False
    plain: bool = False
    json: bool = False
    path: str | None = None


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options that every run has."""
    group = parser.add_argument_group("options of every run")
    group.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="PROTOCOL:NAME[@URL]",
        help="openai-chat:NAME@URL, for any chat-completions server; given again, it is tried when the first fails",
    )
    group.add_argument("--store", metavar="PATH", help="keep everything in this file, so that it can be resumed")
    group.add_argument(
        "--budget", type=budget_argument, metavar="LIMITS", help="dollars, or limits such as usd=0.50,tokens=200000"
    )
    group.add_argument("--resume", action="store_true", help="go on with the run in --store that was cut off")
    group.add_argument(
        "--resume-path", metavar="PATH", help="the same, of several: the one whose root is PATH, such as lead#2"
    )
    how = group.add_mutually_exclusive_group()
    how.add_argument("--plain", action="store_true", help="plain lines, also on a terminal")
    how.add_argument("--json", action="store_true", help="events as JSON lines on standard output, the report last")


def common_of(args: argparse.Namespace) -> Common:
    """The common options out of what was parsed.

    Raises:
        UsageError: they contradict each other.
    """
    resume = args.resume or args.resume_path is not None
    if resume and args.store is None:
        raise UsageError("--resume goes on with what a store holds: name it with --store PATH")
    return Common(tuple(args.model), args.store, args.budget, resume, args.plain, args.json, args.resume_path)


def budget_argument(text: str) -> Budget:
    """The budget that `--budget` names, for argparse."""
    try:
        return parse_budget(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


_DOLLARS: Final = re.compile(r"\$?(\d+(?:\.\d+)?|\.\d+)")
_COUNTS: Final = frozenset(Dimension) - {Dimension.COST, Dimension.SECONDS}


def parse_budget(text: str) -> Budget:
    """A budget from `0.50`, `$0.50` or `usd=0.50,tokens=200000,on_exhausted=park`.

    Raises:
        UsageError: it is none of these.
    """
    if match := _DOLLARS.fullmatch(text.strip()):
        return Budget(usd=match[1])
    limits: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or name in limits:
            raise UsageError(f"{part.strip()!r} is not NAME=LIMIT, once per name; {_accepted()}")
        limits[name] = _limit(name, value)
    return Budget(**limits)  # type: ignore[arg-type]  # each value was made for its name


def _limit(name: str, value: str) -> object:
    try:
        if name == Dimension.COST:
            return value.removeprefix("$")
        if name == Dimension.SECONDS or name in {"soft", "critical"}:
            return float(value)
        if name in _COUNTS:
            return int(value.replace("_", ""))
    except ValueError as error:
        raise UsageError(f"{name}={value!r} is no number; {_accepted()}") from error
    if name == "on_exhausted":
        return value
    raise UsageError(f"there is no limit named {name!r}; {_accepted()}")


def _accepted() -> str:
    names = ", ".join(dimension.value for dimension in Dimension)
    ways = "|".join(ON_EXHAUSTED)
    return f"write dollars such as 0.50, or limits such as usd=0.50,tokens=200000, of: {names}, on_exhausted={ways}"


def resume_command(argv: Sequence[str], path: str) -> str:
    """The line to type to go on with the run that `argv` (without the command itself) started, whose root is `path`."""
    words, kept = iter(argv), ["callboard"]
    for word in words:
        if word == "--resume-path":
            next(words, None)
        elif word != "--resume" and not word.startswith("--resume-path="):
            kept.append(word)
    return shlex.join([*kept, "--resume-path", path])
