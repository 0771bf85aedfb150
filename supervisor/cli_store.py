"""`callboard store check` and `callboard store export`: look after a store without running anything."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import trio

from actors.errors import UnknownPath, UsageError
from actors.ids import AgentId
from actors.transcript import SummaryRecord

from . import cli_exit as codes
from .cli_output import Unwritten, to_output
from .numbered import numbered
from .show_markdown import json_head, json_record, markdown_head, markdown_record
from .store.audit import RULES
from .stores import check_store_file, open_reader

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from actors.changes import AgentRow

    from .cli_options import Parser
    from .store.base import Reader

MOST: Final = 1_000
"""Violations that are printed: behind so many, restoring a copy is what helps."""
TOLD_S: Final = 2.0
"""How often a long check says how far it is."""


def add_store(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the command with its own two."""
    store = commands.add_parser("store", help="look after a store: check it, export a conversation")
    verbs = store.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verbs.add_parser("check", help="verify all that must hold of a store, also while it is in use")
    check.add_argument("store", metavar="STORE", help="the file that --store named")
    export = verbs.add_parser("export", help="write one agent's conversation")
    export.add_argument("store", metavar="STORE", help="the file that --store named")
    export.add_argument("path", metavar="PATH", help="the agent, such as lead/reviewer#2")
    export.add_argument("--format", choices=("jsonl", "md"), default="jsonl", help="one record a line, or Markdown")
    export.add_argument("--output", metavar="FILE", help="write it there, not to standard output")
    export.add_argument("--archived", action="store_true", help="with what compactions have replaced")


def store_command(args: argparse.Namespace) -> int:
    """Carry out `callboard store`.

    Returns:
        The exit code: 0, or 1 where a check has found something.

    Raises:
        UnknownPath: no such agent. StoreError: no such file, it is no store, or cannot be read.
    """
    if args.verb == "check":
        with to_output():
            return _check(args.store)
    with _written(args.output) as file:
        trio.run(_export, args, file)
    return codes.DONE


# -- check -------------------------------------------------------------------------------------------------------


def _check(store: str) -> int:
    began = last = time.monotonic()

    def told(what: str, done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= TOLD_S:
            last = time.monotonic()
            sys.stderr.write(f"callboard: {what}: {done:,} of {total:,}\n")

    count = 0
    broken: set[str] = set()
    for violation in check_store_file(store, told):
        count += 1
        broken.add(violation.rule)
        if count > MOST:
            sys.stdout.write(f"and more: only the first {MOST:,} are shown\n")
            break
        sys.stdout.write(f"{violation}\n")
    if count:
        sys.stderr.write(f"callboard: {store} breaks what must hold:\n")
        sys.stderr.write("".join(f"  [{rule}] {meaning}\n" for rule, meaning in RULES.items() if rule in broken))
        return codes.FAILED
    sys.stdout.write(f"{store}: all that must hold does ({time.monotonic() - began:.1f} s)\n")
    return codes.DONE


# -- export ------------------------------------------------------------------------------------------------------


@contextmanager
def _written(output: str | None) -> Iterator[TextIO]:
    """Where it goes; a file is written whole, or is not there."""
    if output is None:
        with to_output():
            yield sys.stdout
        return
    part = Path(f"{output}.part")
    if not part.parent.is_dir():
        raise UsageError(f"{output} cannot be written: there is no folder {part.parent}; make it first")
    try:
        with part.open("w", encoding="utf-8", errors="replace") as file:
            yield file
        part.replace(output)
    except OSError as error:
        raise Unwritten(f"{output} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # on a disk that cannot be written there is none
            part.unlink(missing_ok=True)


async def _export(args: argparse.Namespace, file: TextIO) -> None:
    agent = AgentId(args.path.strip("/"))
    async with open_reader(args.store) as reader:
        stored = await reader.load_agent(agent)
        if stored is None:
            raise UnknownPath(f"no agent {agent} in {args.store}; `callboard show {args.store}` lists them")
        row, length = stored.row, stored.length
        force = await _in_force(reader, row, length)
        markdown = args.format == "md"
        shown = length if args.archived else force.count(length)
        file.write((markdown_head(row, length, shown) if markdown else json_head(row, reader.id, length)) + "\n")
        async for index, record in numbered(reader, agent, 0 if args.archived else force.first, length):
            archived = not force.has(index)
            if archived and not args.archived:
                continue
            text = markdown_record if markdown else None
            line = text(record, archived=archived) if text else json_record(index, record, archived=archived)
            file.write(line + "\n")


class _Force:
    """Which records are in force: pinned ones, the last summary, and what stands behind what it replaced (CMP-4)."""

    def __init__(self, summary: int, record: SummaryRecord | None, others: frozenset[int]) -> None:
        self._summary = summary
        self._upto = 0 if record is None else record.upto
        self._pinned = frozenset(() if record is None else record.pinned)
        self._others = others  # summaries behind it, which stand for nothing any more
        self.first = min((*self._pinned, self._upto))

    def has(self, index: int) -> bool:
        """Whether one is."""
        return index == self._summary or index in self._pinned or (index >= self._upto and index not in self._others)

    def count(self, length: int) -> int:
        """How many are."""
        inside = {index for index in (*self._pinned, self._summary) if 0 <= index < self._upto}
        return length - self._upto - len(self._others) + len(inside)


async def _in_force(reader: Reader, row: AgentRow, length: int) -> _Force:
    if row.summary < 0:
        return _Force(-1, None, frozenset())
    (summary,) = await reader.read_records(row.agent, row.summary, row.summary + 1)
    assert isinstance(summary, SummaryRecord), "the row names the last summary"
    behind = numbered(reader, row.agent, summary.upto, length)
    others = [index async for index, one in behind if isinstance(one, SummaryRecord) and index != row.summary]
    return _Force(row.summary, summary, frozenset(others))
