"""The review example: what it finds, what it refuses, and that it is the same whoever answers."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trio

from actors.content import Text
from actors.ids import CallId, MessageId, TreeId, turn_id
from actors.models.script import Script
from actors.models.script_steps import hang
from actors.testing.chat_server import serve_chat
from actors.transcript import MessageRecord, ResultRecord, ResultStatus
from supervisor import open_supervisor
from supervisor.store.sqlite import open_sqlite_reader

if TYPE_CHECKING:
    from types import ModuleType

    from actors.reports import Report

EXAMPLE = Path(__file__).parents[2] / "examples" / "review.py"
LEFT = "TO" + "DO"


def load() -> ModuleType:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("review_under_test", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


review: Any = load()

GOOD = '"""A module."""\n\n\ndef run() -> None:\n    """Run."""\n'
BAD = f"""import os

def run():
    try:
        os.remove("x")  # {LEFT}: not here
    except:
        pass

class Thing:
    def method(self):
        pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file of every kind."""
    root = tmp_path / "project"
    (root / "pkg" / "deep").mkdir(parents=True)
    (root / ".hidden").mkdir()
    (root / ".hidden" / "x.py").write_text(BAD)
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "x.py").write_text(BAD)
    (root / "good.py").write_text(GOOD)
    (root / "pkg" / "bad.py").write_text(BAD)
    (root / "pkg" / "deep" / "long.py").write_text(GOOD + "".join(f"x{n} = {n}\n" for n in range(450)))
    (root / "pkg" / "broken.py").write_text("def (\n")
    (root / "empty.py").write_text("\n  \n")
    (root / "binary.py").write_bytes(b"\x7fELF\0\0")
    (root / "logo.png").write_bytes(b"\x89PNG\0\0")
    (root / "latin.py").write_bytes("# Stra\xdfe\n".encode("latin-1"))
    (root / "loop.py").symlink_to(root / "loop.py")
    (root / "notes.txt").write_text(f"# {LEFT}: no source\n")
    (root / "app.js").write_text(f"// {LEFT}: write it\nlet s = '{LEFT}';\nlet x = '{'y' * 200}';\n")
    (root / "a|b.py").write_text(GOOD)
    return root


async def reviewed(folder: Path, *, model: object = None, parallel: int = 8, store: str | None = None) -> Report:
    """The report of a review."""
    args = argparse.Namespace(input=folder, parallel=parallel, output=None, pace=0.0, key="run-1")
    options = {"store": store, "model": model or review.model(args), "agents": review.agents(args)}
    async with open_supervisor(**options) as sup:
        report: Report = await review.main(sup, args)
    return report


EXPECTED = f"""\
| file | lines | findings | verdict |
| --- | ---: | ---: | --- |
| `app.js` | 3 | 2 | minor |
| `a\\|b.py` | 5 | 0 | ok |
| `binary.py` |  |  | skipped: binary |
| `empty.py` |  |  | empty |
| `good.py` | 5 | 0 | ok |
| `latin.py` |  |  | skipped: not UTF-8 text |
| `logo.png` |  |  | skipped: binary |
| `loop.py` |  |  | skipped: not a regular file |
| `pkg/bad.py` | 11 | 6 | needs work |
| `pkg/broken.py` | 1 | 1 | needs work |
| `pkg/deep/long.py` | 455 | 0 | ok |

11 files, 480 lines: 5 not reviewed, 3 ok, 2 needs work, 1 minor.

9 findings: 4 missing docstring, 2 marker, 1 bare except, 1 does not parse, 1 long line.

- `app.js:1` marker: {LEFT}: write it
- `app.js:3` long line: begins with let x = 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy
- `pkg/bad.py:1` missing docstring: the module
- `pkg/bad.py:3` missing docstring: run
- `pkg/bad.py:5` marker: {LEFT}: not here
- `pkg/bad.py:6` bare except: catches everything, Ctrl-C included
- `pkg/bad.py:9` missing docstring: Thing
- `pkg/bad.py:10` missing docstring: method
- `pkg/broken.py:1` does not parse: invalid syntax"""


async def test_a_review_finds_what_is_there(folder: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Every file has its line: what is found in it, or why it was not reviewed; hidden ones and prose have none."""
    report = await reviewed(folder)
    assert report.status == "done"
    assert report.text == EXPECTED


@pytest.mark.parametrize("parallel", [1, 3, 64])
async def test_the_report_does_not_depend_on_how_many_work_at_once(
    folder: Path, parallel: int, autojump_clock: trio.testing.MockClock
) -> None:
    """One reviewer at a time or all at once: the same report to the byte."""
    assert (await reviewed(folder, parallel=parallel)).text == EXPECTED


async def test_the_report_is_the_same_through_a_chat_server(folder: Path) -> None:
    """With the same functions behind a chat-completions server on loopback, the report is the same to the byte."""
    async with serve_chat(Script(review.SCRIPT)) as server:
        report = await reviewed(folder, model=f"openai-chat:some-model@{server.url}")
        asked = len(server.journal)
    assert report.text == EXPECTED
    assert asked == 2 + 2 * 5 + 3  # the lead; two requests for five short files, three for the long one


async def test_a_reviewer_that_fails_is_a_row(folder: Path, autojump_clock: trio.testing.MockClock) -> None:
    """When a reviewer comes to no verdict, its row says why and all others are there."""

    def stubborn(request: object) -> object:
        return "I'd rather not." if review.messages(request) == ["Review pkg/bad.py"] else review.reviewer_says(request)

    report = await reviewed(folder, model=Script({**review.SCRIPT, "reviewer": stubborn}))
    lines = report.text.splitlines()
    assert report.status == "done"
    (row,) = (line for line in lines if line.startswith("| `pkg/bad.py`"))
    assert row.startswith("| `pkg/bad.py` |  |  | not reviewed: ")
    assert "| `pkg/deep/long.py` | 455 | 0 | ok |" in lines


async def test_a_finished_review_is_not_done_again(folder: Path, tmp_path: Path) -> None:
    """Run again under its key, a finished review asks no model and returns the stored report."""
    store = str(tmp_path / "review.db")
    first = await reviewed(folder, store=store)
    again = await reviewed(folder, store=store, model=Script({}))
    assert again.text == first.text == EXPECTED


async def test_a_review_that_was_cut_off_goes_on(folder: Path, tmp_path: Path) -> None:
    """After a cut in the middle, files with a verdict are not read again, and the report is the whole one."""
    store = str(tmp_path / "review.db")
    asked: list[str] = []

    stuck = trio.Event()

    def stuck_after_six(request: Any) -> object:
        path = review.messages(request)[0]
        asked.append(path)
        if len(asked) > 6:
            stuck.set()
            return hang()
        return review.reviewer_says(request)

    async def first_try() -> None:
        await reviewed(folder, store=store, parallel=2, model=Script({**review.SCRIPT, "reviewer": stuck_after_six}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first_try)
        await stuck.wait()
        await trio.sleep(0.05)
        nursery.cancel_scope.cancel()
    async with open_sqlite_reader(store) as reader:
        rows = await reader.tree_rows(TreeId("lead"))
        finished = {f"Review {row.key}" for row in rows if await reader.outcome(turn_id(row.agent, 1))}
    again: list[str] = []

    def watched(request: Any) -> object:
        again.append(review.messages(request)[0])
        return review.reviewer_says(request)

    report = await reviewed(folder, store=store, parallel=2, model=Script({**review.SCRIPT, "reviewer": watched}))
    assert report.text == EXPECTED
    reviewed_files = ["app.js", "a|b.py", "good.py", "pkg/bad.py", "pkg/broken.py", "pkg/deep/long.py"]
    assert len(finished) >= 2
    assert finished < {f"Review {file}" for file in reviewed_files}
    assert not finished & set(again)
    async with open_sqlite_reader(store) as reader:
        rows = await reader.tree_rows(TreeId("lead"))
    assert [row.key for row in rows] == ["run-1", *reviewed_files]  # nobody was started twice


# -- the parts -------------------------------------------------------------------------------------------------


def test_a_reviewer_cannot_read_outside_its_folder(folder: Path) -> None:
    """A path that leads out of the folder is refused, by dots and by links alike."""
    (folder.parent / "secret.py").write_text("x = 1\n")
    (folder / "link.py").symlink_to(folder.parent / "secret.py")
    for path in ("../secret.py", "/etc/hostname", "link.py", "pkg/../../secret.py"):
        with pytest.raises(ValueError, match="not below"):
            review.read_lines(folder, path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_says_so(folder: Path) -> None:
    """A file without permission is a line, not an end."""
    (folder / "good.py").chmod(0)
    assert review.obstacle_of(folder / "good.py") == "unreadable: Permission denied"


def test_odd_names_are_lines_too(tmp_path: Path) -> None:
    """Names with line breaks or bytes that are no text are named, and not reviewed."""
    (tmp_path / "a\nb.py").write_text("x = 1\n")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.py")).write_text("x = 1\n")
    assert sorted(review.source_files(tmp_path)) == [
        ("\\udcff.py", "skipped: its name has characters that cannot be written"),
        ("a\\nb.py", "skipped: its name has characters that cannot be written"),
    ]


def test_what_is_found_in_python() -> None:
    """Long functions, markers in comments only, bare excepts and undocumented public names, with their lines."""
    long = "def f():\n    '''F.'''\n" + "    x = 1\n" * 60
    code = f"'''M.'''\n{long}try:\n    y = '# {LEFT} no'\nexcept:  # HACK\n    pass\nclass _P:\n    def q(self): ...\n"
    found = {(finding.line, finding.kind) for finding in review.findings("x.py", code.rstrip("\n").split("\n"))}
    assert found == {(2, "long function"), (66, "bare except"), (66, "marker")}


def test_the_report_is_written_whole_or_not(tmp_path: Path) -> None:
    """The file is replaced in one step, and nothing is left beside it."""
    target = tmp_path / "report.md"
    review.write_whole(target, "one\n")
    review.write_whole(target, "two\n")
    assert target.read_bytes() == b"two\n"
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]
    with pytest.raises(OSError, match="No such file"):
        review.write_whole(tmp_path / "missing" / "report.md", "x")


def asked(*results: ResultRecord) -> Any:
    """A request with these results in its conversation."""
    turn = turn_id("lead", 1)
    task = MessageRecord(turn, MessageId("m"), (Text("Review good.py"),))
    return SimpleNamespace(window=(task, *results))


def result(text: str, status: ResultStatus) -> ResultRecord:
    """A tool result."""
    return ResultRecord(turn_id("lead", 1), CallId("c"), "c", "tool", status, (Text(text),))


@pytest.mark.parametrize("status", [ResultStatus.ABORTED, ResultStatus.SKIPPED, ResultStatus.UNKNOWN])
def test_what_was_cut_off_is_asked_again(status: ResultStatus) -> None:
    """The result of a call that was cut off is no answer: neither the lead nor a reviewer takes it for one."""
    cut = result("The call was cut off.", status)
    assert review.lead_says(asked(cut)) == review.call("review_all")
    assert review.lead_says(asked(cut, result("[]", ResultStatus.OK))).startswith("| file |")
    page = result("good.py: lines 1-200 of 201\n     1| x", ResultStatus.OK)
    assert review.reviewer_says(asked(cut)) == review.call("read_file", path="good.py")
    assert review.reviewer_says(asked(page, cut)) == [review.call("read_file", path="good.py", first_line=201)]


def test_a_review_that_failed_is_told() -> None:
    """A tool that failed has no table; its words are the lead's."""
    assert review.lead_says(asked(result("the disk is gone", ResultStatus.ERROR))).endswith("the disk is gone")
