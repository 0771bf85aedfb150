"""Review a folder: a lead hands each source file to a reviewer of its own, then sums up in a table.

    callboard run examples/review.py --input FOLDER [--parallel 8] [--output report.md]
    callboard run examples/review.py --input FOLDER --model openai-chat:NAME@http://127.0.0.1:8080/v1
    callboard run examples/review.py --input FOLDER --store review.db      # Ctrl-C, and later the same with --resume

Without `--model` the agents follow a script: plain functions of what a model is asked. They read the real files through
the real tools and report what they find there. With a model everything else stays as it is.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs
import trio

from actors import Agent, Budget, Context, Limits, Script, call, tool
from actors.content import text_of
from actors.models.reading import messages
from actors.transcript import ResultRecord, ResultStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.ports import Model, ModelRequest
    from supervisor import AgentRef, Report, Supervisor

SOURCE = re.compile(
    r"\.(?:py|pyi|js|jsx|ts|tsx|vue|c|h|cc|cpp|cxx|hpp|cs|m|java|kt|scala|go|rs|zig|swift|dart|rb|php|pl|lua|r|jl|ml|hs|ex"
    r"|exs|sh|bash|ps1|sql|html|css)",
    re.IGNORECASE,
)
SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})  # and all that begin with a dot
FILE_BYTES_MAX = 2_000_000
FILES_MAX = 2_000
PAGE_LINES = 200
LINE_CHARS = 2_000
CUT = "… ("
LONG_FUNCTION = 60
LONG_LINE = 160


# ---------------------------------------------------------------------------------------------- what agents hand over


@attrs.frozen
class Finding:
    """Something to look at. `line` counts from 1; `text` says what it is."""

    line: int
    kind: str
    text: str


VERDICTS = ("ok", "minor", "needs work")


@attrs.frozen
class Verdict:
    """What a reviewer answers."""

    file: str
    lines: int
    findings: tuple[Finding, ...]
    verdict: Literal["ok", "minor", "needs work"]


@attrs.frozen
class Row:
    """A line of the table. `verdict`: a reviewer's, or why there is none."""

    file: str
    lines: int
    findings: tuple[Finding, ...]
    verdict: str


# ----------------------------------------------------------------------------------------------------------- the team


def team(folder: Path, parallel: int = 8) -> list[Agent]:
    """The lead and the reviewer, for one folder."""

    @tool(effect="pure")
    def read_file(path: str, first_line: int = 1) -> str:
        """Read a page of a source file, at most 200 lines, each with its number.

        Args:
            path: as the task gives it, relative to the folder under review.
            first_line: the line to begin with, from 1.
        """
        lines = read_lines(folder, path)
        if not 1 <= first_line <= len(lines):
            raise ValueError(f"{path} has the lines 1 to {len(lines)}; there is no line {first_line}")
        page = lines[first_line - 1 : first_line - 1 + PAGE_LINES]
        head = f"{path}: lines {first_line}-{first_line + len(page) - 1} of {len(lines)}"
        return "\n".join([head, *(f"{first_line + n:6}| {shorten(line)}" for n, line in enumerate(page))])

    reviewer = Agent(
        "reviewer",
        "You review one source file. Read all of it with read_file, page by page. Report long functions, markers that"
        " were left behind, bare excepts and missing docstrings, each with its line. The verdict is ok, minor or needs"
        " work.",
        tools=[read_file],
        output=Verdict,
        limits=Limits(result_chars=1_000_000),
    )

    @tool(effect="idempotent")
    async def review_all(ctx: Context) -> list[Row]:
        """Have every source file of the folder reviewed, each by a reviewer of its own; returns a row per file."""
        return await reviewed(ctx, reviewer, folder, parallel)

    lead = Agent(
        "lead",
        "You lead a review. Call review_all once. Then answer with a Markdown table of all rows, in their order: file,"
        " lines, findings, verdict; and below it the findings of each file that has some.",
        tools=[review_all],
        budget=Budget(agents=max(64, parallel)),
        limits=Limits(result_chars=8_000_000),
    )
    return [lead, reviewer]


async def reviewed(ctx: Context, reviewer: Agent, folder: Path, parallel: int) -> list[Row]:
    """Start a reviewer per file, at most `parallel` at once, and gather the rows in order of path."""
    files = await trio.to_thread.run_sync(partial(sorted, source_files(folder)))
    rows: dict[str, Row] = {}
    ctx.progress("", done=0, total=len(files))
    limiter = trio.CapacityLimiter(parallel)

    def took(row: Row) -> None:
        rows[row.file] = row
        ctx.progress(f"{row.file}: {row.verdict}", done=len(rows), total=len(files))

    async def wait_for(path: str, kid: AgentRef) -> None:
        report = await kid.wait_report()
        limiter.release_on_behalf_of(path)
        if isinstance(report.output, Verdict):
            took(Row(path, report.output.lines, report.output.findings, report.output.verdict))
        else:
            took(Row(path, 0, (), f"not reviewed: {report.error or report.status}"))

    async with trio.open_nursery() as nursery:
        for path, obstacle in files:
            if obstacle:
                took(Row(path, 0, (), obstacle))
                continue
            await limiter.acquire_on_behalf_of(path)
            # The key makes this repeatable: after a restart it is the same reviewer, or the report it gave already.
            kid = await ctx.start(reviewer, f"Review {path}", key=path)
            nursery.start_soon(wait_for, path, kid)
    return [rows[path] for path, _ in files]


# -------------------------------------------------------------------------------------------------------- the folder


def source_files(folder: Path) -> Iterator[tuple[str, str]]:
    """The files to review, each with what is in the way of that, or nothing. Other text files are no source."""
    closed: list[OSError] = []
    found = 0
    for here, folders, names in os.walk(folder, onerror=closed.append):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        for path in (Path(here, name) for name in sorted(names) if not name.startswith(".")):
            obstacle = obstacle_of(path)
            if obstacle is None:
                continue
            if not obstacle and shown(path) != path.as_posix():
                obstacle = "skipped: its name has characters that cannot be written"
            found += 1
            if found > FILES_MAX and not obstacle:
                obstacle = f"skipped: only the first {FILES_MAX:,} files are reviewed"
            yield shown(path.relative_to(folder)), obstacle
    for error in closed:
        yield shown(Path(error.filename).relative_to(folder)), f"unreadable: {error.strerror}"


def shown(path: Path) -> str:
    """A path as it is named to agents and people, with signs for what cannot be written."""
    name = path.as_posix()
    return name if name.isprintable() else ascii(name)[1:-1]


def obstacle_of(path: Path) -> str | None:
    """Why a file is not reviewed; empty where it can be; None where it is no source and not worth a line."""
    source = SOURCE.fullmatch(path.suffix) is not None
    try:
        if path.is_symlink() or not path.is_file():
            return "skipped: not a regular file" if source else None
        size = path.stat().st_size
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1 if source else 4_096)
    except OSError as error:
        return f"unreadable: {error.strerror or error}"
    if b"\0" in data:
        return "skipped: binary"
    if not source:
        return None
    if len(data) > FILE_BYTES_MAX:
        return f"skipped: {size / 1e6:.1f} MB are too many"
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "skipped: not UTF-8 text"
    return "" if text.strip() else "empty"


def read_lines(folder: Path, path: str) -> list[str]:
    """The lines of a file below the folder.

    Raises:
        ValueError: the path leads out of it. OSError: it cannot be read.
    """
    inside = folder.resolve()
    file = (inside / path).resolve()
    if not file.is_relative_to(inside):
        raise ValueError(f"{path} is not below the folder under review")
    text = file.read_text("utf-8-sig")  # \r\n and \r are read as \n
    return text.removesuffix("\n").split("\n")


def shorten(line: str) -> str:
    """A line as it is shown to a model: a file in one line of a megabyte is no source that anybody reads."""
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}{CUT}{len(line):,} characters)"


# --------------------------------------------------------------------- the script: what stands in for a model's answers


def model(args: argparse.Namespace) -> Model:
    """The model that is asked without `--model`: a script."""
    return Script(SCRIPT, latency_s=(args.pace / 2, args.pace * 3 / 2))


def lead_says(request: ModelRequest) -> object:
    """First call the tool; then make the report of what it returned."""
    results = tool_results(request)
    if not results:
        return call("review_all")
    last = text_of(results[-1].content)
    return report_on(json.loads(last)) if results[-1].status is ResultStatus.OK else f"The review failed: {last}"


def reviewer_says(request: ModelRequest) -> object:
    """Read the first page, then all others at once, then judge the text that came."""
    path = messages(request)[0].removeprefix("Review ")
    results = [text_of(result.content) for result in tool_results(request)]
    if not results:
        return call("read_file", path=path)
    heads = [re.search(r": lines (\d+)-\d+ of (\d+)\n", page) for page in results]
    pages = {int(head[1]): page for head, page in zip(heads, results, strict=True) if head is not None}
    if heads[0] is None:
        return Verdict(path, 0, (Finding(1, "cannot be read", results[0][:200]),), "needs work")
    missing = [first for first in range(1, int(heads[0][2]) + 1, PAGE_LINES) if first not in pages]
    if missing and all(heads):
        return [call("read_file", path=path, first_line=first) for first in missing]
    text = [line for first in sorted(pages) for line in re.findall(r"^ *\d+\| (.*)$", pages[first], re.MULTILINE)]
    return judge(path, text)


SCRIPT = {"lead": lead_says, "reviewer": reviewer_says}


CUT_OFF = frozenset({ResultStatus.ABORTED, ResultStatus.SKIPPED, ResultStatus.UNKNOWN})


def tool_results(request: ModelRequest) -> list[ResultRecord]:
    """The tool results in the conversation, in order; a call that was cut off has none, and is made again."""
    results = (record for record in request.window if isinstance(record, ResultRecord))
    return [result for result in results if result.status not in CUT_OFF]


def judge(path: str, lines: list[str]) -> Verdict:
    """Look through a file, and weigh what was found."""
    found = sorted(findings(path, lines), key=lambda finding: (finding.line, finding.kind, finding.text))
    serious = any(finding.kind in {"bare except", "does not parse"} for finding in found)
    weight: Literal["minor", "needs work"] = "needs work" if serious or len(found) > 5 else "minor"
    return Verdict(path, len(lines), tuple(found), weight if found else "ok")


MARKERS = "|".join(["TO" + "DO", "FIX" + "ME", "XXX", "HACK"])  # in halves, so that this file is not found by itself
MARKER = re.compile(rf"(?:#|//|/\*|--|^\s*\*).*?\b({MARKERS})\b(.*)")


def findings(path: str, lines: list[str]) -> Iterator[Finding]:
    """What is to be found in a file: in every language markers and long lines, in Python more."""
    for number, line in enumerate(lines, 1):
        marker = MARKER.search(line)
        if marker and not any(line[: marker.start()].count(quote) % 2 for quote in "\"'"):  # in no text
            yield Finding(number, "marker", f"{marker[1]}{marker[2][:80]}".rstrip(" */->"))
        if len(line) > LONG_LINE:
            yield Finding(number, "long line", f"begins with {line[:40].strip()}")
    if path.endswith((".py", ".pyi")) and not any(CUT in line[LINE_CHARS:] for line in lines):
        yield from python_findings(lines)


def python_findings(lines: list[str]) -> Iterator[Finding]:
    """Long functions, bare excepts, and what is public and has no docstring."""
    try:
        module = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        yield Finding(getattr(error, "lineno", None) or 1, "does not parse", str(getattr(error, "msg", error)))
        return
    if ast.get_docstring(module) is None:
        yield Finding(1, "missing docstring", "the module")
    yield from (Finding(node.lineno, "missing docstring", node.name) for node in undocumented(module))
    for node in ast.walk(module):
        match node:
            case ast.ExceptHandler(type=None):
                yield Finding(node.lineno, "bare except", "catches everything, Ctrl-C included")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONG_FUNCTION:
                    yield Finding(node.lineno, "long function", f"{node.name} has {length} lines")
            case _:
                pass


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def is_stub(node: Definition) -> bool:
    """Whether a definition only repeats or announces another: an override, an overload, a setter, a body of `...`."""
    decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    body = node.body[0]
    empty = isinstance(body, ast.Expr) and isinstance(body.value, ast.Constant) and body.value.value is ...
    return empty or bool(decorators & {"overload", "override", "setter"})


def undocumented(scope: ast.Module | ast.ClassDef) -> Iterator[Definition]:
    """Public definitions without a docstring, of the module and of its public classes."""
    for node in scope.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            if ast.get_docstring(node) is None and not is_stub(node):
                yield node
            if isinstance(node, ast.ClassDef):
                yield from undocumented(node)


# --------------------------------------------------------------------------------------------------------- the report


def report_on(rows: list[dict[str, Any]]) -> str:
    """The report in Markdown: a table, a sum, and below it what was found where."""
    verdicts = Counter(row["verdict"] if row["verdict"] in VERDICTS else "not reviewed" for row in rows)
    kinds = Counter(finding["kind"] for row in rows for finding in row["findings"])
    lines = ["| file | lines | findings | verdict |", "| --- | ---: | ---: | --- |", *map(table_line, rows), ""]
    lines.append(f"{many(len(rows), 'file')}, {many(sum(row['lines'] for row in rows), 'line')}: {counted(verdicts)}.")
    if kinds:
        lines += ["", f"{many(sum(kinds.values()), 'finding')}: {counted(kinds)}.", ""]
        for row in rows:
            lines += [finding_line(row["file"], finding) for finding in row["findings"]]
    return "\n".join(lines)


def table_line(row: dict[str, Any]) -> str:
    """A row of the table; figures only where the file was reviewed."""
    figures = [f"{row['lines']:,}", f"{len(row['findings'])}"] if row["verdict"] in VERDICTS else ["", ""]
    cells = [code(row["file"]), *figures, " ".join(row["verdict"].split())]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def finding_line(file: str, finding: dict[str, Any]) -> str:
    """One finding, with its place."""
    return f"- {code(file + ':' + str(finding['line']))} {finding['kind']}: {finding['text']}"


def code(text: str) -> str:
    """Text that Markdown leaves alone: of `__init__` it would make something bold."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def counted(counter: Counter[str]) -> str:
    """What was counted, the most frequent first."""
    return ", ".join(
        f"{number:,} {word}" for word, number in sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    )


def many(number: int, word: str) -> str:
    """A number with its word."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


# --------------------------------------------------------------------------------------------------------- the command


def arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this file, beside those that every run has."""
    parser.add_argument("--input", type=folder_argument, required=True, metavar="FOLDER", help="what to review")
    parser.add_argument(
        "--parallel", type=count_argument, default=8, metavar="N", help="reviewers at once (default: 8)"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the report there, in Markdown")
    parser.add_argument(
        "--pace", type=float, default=0.0, metavar="SECONDS", help="how long the script takes to answer"
    )


def folder_argument(text: str) -> Path:
    """A folder that is there."""
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is {'not a folder' if Path(text).exists() else 'not there'}")
    return Path(text)


def count_argument(text: str) -> int:
    """A number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a number from 1, not {text!r}")
    return int(text)


def agents(args: argparse.Namespace) -> list[Agent]:
    """Whom a stored run is brought back with."""
    return team(args.input, args.parallel)


async def main(sup: Supervisor, args: argparse.Namespace) -> Report:
    """Run the review, and write the report where `--output` says."""
    lead, _ = team(args.input, args.parallel)
    report = await sup.run(lead, f"Review the folder {args.input.name or args.input}.", key=args.key)
    if args.output is not None and report.status == "done":
        write_whole(args.output, report.text + "\n")
    return report


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is whole or not there, never half."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, "utf-8", newline="\n")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
