"""The command `callboard`: run a file, show a store, send to an agent in it, see a demo."""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import trio
from rich.console import Console
from rich.markdown import Markdown

from actors.errors import CallboardError, UsageError
from actors.ids import AgentId, tree_of

from . import cli_exit as codes
from .cli_demo import demo_arguments
from .cli_load import Program, load, own_traceback
from .cli_options import EPILOG, Common, Parser, add_common, common_of, resume_command
from .cli_output import Unread, to_output
from .cli_run import Ending, carry_out
from .cli_send import add_message, message_of, send
from .cli_store import add_store, store_command
from .screen_live import LiveScreen, Screen, json_screen, plain_screen
from .show import show, show_json
from .stores import existing_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.reports import Report


def main(argv: Sequence[str]) -> int:
    """Run the command.

    Args:
        argv: the arguments, without the command itself.

    Returns:
        The exit code, as `callboard --help` lists them.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a replaced stream may lack it
    try:
        return _dispatch(list(argv))
    except SystemExit as stop:  # argparse: help and usage errors
        return stop.code if isinstance(stop.code, int) else codes.USAGE
    except BaseException as error:  # noqa: BLE001, ASYNC103 - the one place where errors become words and codes
        return _explain(codes.only(error))  # noqa: ASYNC104 - likewise


def _explain(error: BaseException) -> int:
    if isinstance(error, Unread):
        return codes.UNREAD
    if isinstance(error, CallboardError):
        _say(f"callboard: {error}")
    elif isinstance(error, KeyboardInterrupt):
        _say("callboard: interrupted")
    else:
        _say(own_traceback(error))
    return codes.code_of_error(error)


def _say(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def _dispatch(argv: Sequence[str]) -> int:
    parser = Parser(
        prog="callboard",
        description="A supervisor for trees of agents: run them, watch them, look what they left.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"callboard {_version()}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="run FILE.py", add_help=False)
    run.add_argument("rest", nargs=argparse.REMAINDER)
    shown = commands.add_parser("show", help="look into a store, also while it is in use")
    shown.add_argument("store", metavar="STORE", help="the file that --store named")
    shown.add_argument("path", metavar="PATH", nargs="?", help="one agent, such as lead/reviewer#2; else the tree")
    shown.add_argument("--json", action="store_true", help="an object for each agent, one a line; README.md lists them")
    shown.add_argument("--all", action="store_true", help="everything, however many lines")
    add_message(commands.add_parser("send", help="send a message to an agent of a store"), steers=False)
    add_message(commands.add_parser("steer", help="the same, joining its run at the next boundary"), steers=True)
    add_store(commands)
    demo = commands.add_parser("demo", help="see a review of callboard's own sources; no key needed")
    add_common(demo)
    args = parser.parse_args(argv[:1] if argv[:1] == ["run"] else argv)
    match args.command:
        case "run":
            return _run(argv[1:], argv)
        case "show":
            if args.json:
                return show_json(args.store, args.path)
            return show(args.store, args.path, whole=args.all)
        case "store":
            return store_command(args)
        case "send" | "steer":
            return send(message_of(args))
        case _:
            return _demo(args, argv)


def _version() -> str:
    try:
        return version("callboard")
    except PackageNotFoundError:
        return "(not installed)"


# -- run ---------------------------------------------------------------------------------------------------------


def _run(rest: Sequence[str], argv: Sequence[str]) -> int:
    """Two readings of the line: the first finds FILE.py, the second knows what FILE.py added."""
    finder = Parser(prog="callboard run", add_help=False)
    _add_run(finder, nargs="?")
    found, _ = finder.parse_known_args(rest)
    parser = Parser(
        prog="callboard run" if found.file is None else f"callboard run {found.file}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_run(parser)
    if found.file is None:
        parser.parse_args(rest)
        raise UsageError("callboard run needs a FILE.py")
    program = load(Path(found.file))
    if program.arguments is not None:
        try:
            program.arguments(parser)
        except argparse.ArgumentError as error:
            raise UsageError(f"{program.path}: arguments(parser) adds what every run has already: {error}") from error
    if program.main is None:
        told = f"what {program.path} is asked; not needed with --resume"
        if found.resume or found.resume_path is not None:
            parser.add_argument("task", metavar="TASK", nargs="?", help=told)
            return _perform(program, parser.parse_intermixed_args(rest), argv)  # TASK may stand behind options, or not
        parser.add_argument("task", metavar="TASK", help=told)
    return _perform(program, parser.parse_args(rest), argv)


def _add_run(parser: argparse.ArgumentParser, nargs: str | None = None) -> None:
    parser.add_argument("file", metavar="FILE.py", nargs=nargs, help="what to run; options of its own stand behind it")
    add_common(parser)


def _demo(args: argparse.Namespace, argv: Sequence[str]) -> int:
    common = common_of(args)
    with tempfile.TemporaryDirectory(prefix="callboard-") as folder:
        path, own = demo_arguments(Path(folder), paced=_live(common))
        program = load(path)
        assert program.arguments is not None
        parser = Parser(prog="callboard demo")
        _add_run(parser)
        program.arguments(parser)
        return _perform(program, parser.parse_args([str(path), *own, *argv[1:]]), argv)


def _perform(program: Program, args: argparse.Namespace, argv: Sequence[str]) -> int:
    common = common_of(args)
    if common.resume and common.store is not None:
        existing_store(common.store)
    screen = _screen(common)
    ending = trio.run(carry_out, program, args, common, screen)
    if ending.interrupted and (ending.report is None or ending.report.status != "done"):
        return _interrupted(common, argv, ending.root)
    if ending.report is None:
        return codes.DONE
    return _deliver(ending, args, common, argv)


def _interrupted(common: Common, argv: Sequence[str], root: str | None) -> int:
    if common.store is None:
        _say("callboard: interrupted; nothing was kept (with --store PATH a run can be resumed)")
    elif root is None:
        _say("callboard: interrupted before the run began, and nothing was kept; the same command starts it")
    else:
        _say(f"callboard: interrupted; go on with\n  {resume_command(argv, root)}")
    return codes.INTERRUPTED


def _parked(common: Common, argv: Sequence[str], root: str) -> None:
    """It waits for a person, and none sits here."""
    kept = "nothing was kept (with --store PATH it can be)"
    if common.store is not None:
        kept = f"there, go on with\n  {resume_command(argv, root)}"
    _say(f"callboard: on a terminal you are asked; {kept}")


def _deliver(ending: Ending, args: argparse.Namespace, common: Common, argv: Sequence[str]) -> int:
    report = ending.report
    assert report is not None
    if problem := codes.words_for_report(report):
        _say(f"callboard: {problem}")
    if report.status == "parked" and codes.code_of_report(report) != codes.EXHAUSTED:
        _parked(common, argv, ending.root or tree_of(AgentId(report.path)))
    if common.json:
        _print(json_report(report))
    elif getattr(args, "output", None) and report.status == "done":
        _say(f"callboard: the report is in {args.output}")
    elif report.text:
        _print_text(report.text, pretty=_live(common))
    return codes.code_of_report(report)


def _print_text(text: str, *, pretty: bool) -> None:
    if pretty:
        Console().print(Markdown(text))
    else:
        _print(text)


def _print(text: str) -> None:
    with to_output():
        sys.stdout.write(text + "\n")


def json_report(report: Report) -> str:
    """A report as the last JSON line. `cost`: dollars as text, null where no price is known."""
    value = {
        "event": "report",
        "status": report.status,
        "text": report.text,
        "output": report.output,
        "tokens": report.usage.total_tokens,
        "cost": None if report.cost is None else f"{report.cost:f}",
        "path": report.path,
        "run": report.run,
        "error": None if report.error is None else str(report.error),
        "question": None if report.question is None else report.question.text,
    }
    return msgspec.json.encode(value, enc_hook=str).decode()


def _live(common: Common) -> bool:
    return not (common.plain or common.json) and sys.stdout.isatty() and not Console().is_dumb_terminal


def _screen(common: Common) -> Screen:
    if common.json:
        return json_screen(sys.stdout, sys.stderr)
    if _live(common):
        return LiveScreen(Console(), "Ctrl-C ends it" if common.store is None else "Ctrl-C suspends")
    return plain_screen(sys.stderr)
