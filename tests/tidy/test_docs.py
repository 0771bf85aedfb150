r"""Every block of code in the READMEs runs, and prints what the README says it prints.

A ```python block runs as a program of its own; a ```text block right after it is its output. In a ```console block
each `$ ` line is run and the lines below it are its output; `callboard …` and `python3 dev.py …` are run with the
Python that runs the tests. A ```toml block is parsed. In an output, a line of `...` stands for any lines, and `...`
inside a line for anything. `<!-- not run: REASON -->` on the line before a block leaves it out, and says why;
`<!-- after the block before -->` runs the block before it first, in the same folder.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.tidy.sources import PACKAGES, ROOT, relative

READMES_REQUIRED = True
READMES = (ROOT / "README.md", *(ROOT / package / "README.md" for package in PACKAGES))
TIMEOUT_S = 60
FENCE = re.compile(
    r"^(?:<!-- (?:not run: (?P<reason>[^\n]+)|(?P<after>after the block before)) -->\n+)?"
    r"```(?P<kind>\w+)\n(?P<text>.*?)^```$"
    r"(?:\n+```text\n(?P<output>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One block: where it stands, its kind and text, its output, why it is not run, and what runs before it."""

    where: str
    kind: str
    text: str
    output: str | None
    reason: str | None
    before: "Block | None" = None


class Done(NamedTuple):
    """How a program ended."""

    code: int
    output: str
    errors: str


def blocks(text: str, name: str) -> Iterator[Block]:
    """Every block of a README, in order."""
    block = None
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start("kind")) + 1
        before = block if match["after"] else None
        block = Block(f"{name}:{line}", match["kind"], match["text"], match["output"], match["reason"], before)
        yield block


def all_blocks() -> list[Block]:
    """The blocks of all READMEs that there are."""
    return [block for path in READMES if path.exists() for block in blocks(path.read_text("utf-8"), relative(path))]


def matches(expected: str, output: str) -> bool:
    """Whether an output is what was said, `...` standing for whatever it stands for."""
    patterns = []
    for line in expected.strip("\n").split("\n"):
        if line.strip() == "...":
            patterns.append(r"(?:[^\n]*\n)*?")
        else:
            patterns.append(r"[^\n]*".join(re.escape(part) for part in line.rstrip().split("...")) + r"\n")
    printed = "".join(f"{line.rstrip()}\n" for line in output.strip("\n").split("\n"))
    return re.fullmatch("".join(patterns), printed) is not None


def run(command: list[str], cwd: Path) -> Done:
    """Run a program in a folder of its own, with the checkout importable and no key of any provider."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_TOKEN"))}
    env = kept | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "100", "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        command, cwd=cwd, env=env, timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def command_of(line: str) -> list[str]:
    """What to run for a `$ ` line.

    Raises:
        ValueError: a command that the tests do not know how to run.
    """
    here = Path(sys.executable).parent
    callboard = [sys.executable, "-c", "import sys; from supervisor._start import main; sys.exit(main())"]
    match shlex.split(line, comments=True):
        case ["callboard", *rest]:
            return [*callboard, *rest]
        case ["python3", "dev.py"]:
            return [*callboard, "demo"]
        case ["python3", "dev.py", "callboard", *rest]:
            return [*callboard, *rest]
        case ["python3", "dev.py", name, *rest] if name not in {"test", "lock"} and (here / name).exists():
            return [str(here / name), *rest]
        case _:
            raise ValueError(f"cannot run {line!r} here: put `<!-- not run: REASON -->` before the block")


def sessions(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that follows it."""
    parts = re.split(r"^\$ (.*)\n?", text, flags=re.MULTILINE)
    assert not parts[0].strip(), "a console block begins with a `$ ` line"
    yield from zip(parts[1::2], parts[2::2], strict=True)


def check_output(block: Block, expected: str | None, done: Done) -> None:
    """Fail where a program failed, or printed something else than the README says."""
    assert done.code == 0, f"{block.where}: exit code {done.code}\n{done.output}{done.errors}"
    if expected is not None and expected.strip():
        assert matches(expected, done.output), f"{block.where}: printed\n{done.output}\nand not\n{expected}"


def check(block: Block, folder: Path) -> None:
    """Run one block in a folder, behind the one that it needs."""
    if block.before is not None:
        check(block.before, folder)
    match block.kind:
        case "python":
            program = folder / "block.py"
            program.write_text(block.text, "utf-8")
            check_output(block, block.output, run([sys.executable, str(program)], folder))
        case "console":
            for line, expected in sessions(block.text):
                check_output(block, expected, run(command_of(line), folder))
        case "toml":
            tomllib.loads(block.text)
        case _:
            pass


@pytest.mark.parametrize("block", all_blocks(), ids=lambda block: block.where)
def test_block_runs(block: Block, tmp_path: Path) -> None:
    """A block of a README runs and prints what the README says."""
    if block.reason:
        pytest.skip(f"{block.where}: {block.reason}")
    check(block, tmp_path)


def test_readmes_are_there() -> None:
    """The project and both packages have a README each, once there is something to read about."""
    if READMES_REQUIRED and all((ROOT / package).is_dir() for package in PACKAGES):
        assert not [relative(path) for path in READMES if not path.exists()]


# ------------------------------------------------------------------------------------------ the tests tested


def only_block(text: str) -> Block:
    """The one block of a made-up README."""
    [block] = blocks(text, "made-up")
    return block


@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint('a')\n```\n\n```text\na\n```\n",
        "```python\nprint('a\\nb\\nc')\n```\n```text\na\n...\n```\n",
        "```python\nprint('took 3.1 s')\n```\n```text\ntook ... s\n```\n",
        "```console\n$ python3 dev.py python -c 'print(1)'\n1\n$ python3 dev.py python -c 'print(2)'\n2\n```\n",
        "```toml\na = 1\n```\n",
    ],
)
def test_a_true_block_passes(tmp_path: Path, text: str) -> None:
    """A block that runs and prints what is said passes."""
    check(only_block(text), tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "```python\nraise SystemExit(1)\n```\n",
        "```python\nimport warnings\nwarnings.warn('old')\n```\n",
        "```python\nprint('a')\n```\n\n```text\nb\n```\n",
        "```python\nprint('a\\nb')\n```\n\n```text\na\n```\n",
        "```console\n$ python3 dev.py python -c 'print(1)'\n2\n```\n",
        "```console\n$ python3 dev.py python -c 'raise SystemExit(3)'\n```\n",
    ],
)
def test_a_false_block_fails(tmp_path: Path, text: str) -> None:
    """A block that fails, warns, or prints something else than is said fails."""
    with pytest.raises(AssertionError):
        check(only_block(text), tmp_path)


@pytest.mark.parametrize("line", ["rm -rf x", "python3 dev.py test", "python3 dev.py lock", "pip install x"])
def test_an_unknown_command_is_refused(line: str) -> None:
    """A command that the tests cannot run is refused with the way to leave it out."""
    with pytest.raises(ValueError, match="not run"):
        command_of(line)


def test_a_reason_leaves_a_block_out() -> None:
    """The comment before a block is its reason not to run."""
    block = only_block("<!-- not run: needs a key -->\n```python\nx\n```\n")
    assert block.reason == "needs a key"


@pytest.mark.parametrize("mark", ["<!-- after the block before -->\n", ""])
def test_a_block_runs_after_the_one_before(tmp_path: Path, mark: str) -> None:
    """What a block leaves in its folder is there for the next one that says so, and for no other."""
    first = "```python\nopen('kept', 'x').close()\n```\n"
    second = f"{mark}```python\nimport os\nprint(os.listdir())\n```\n```text\n...'kept'...\n```\n"
    [_, block] = blocks(first + "Then:\n\n" + second, "made-up")
    with nullcontext() if mark else pytest.raises(AssertionError):
        check(block, tmp_path)


def test_false_toml_fails(tmp_path: Path) -> None:
    """A toml block that is not TOML fails."""
    with pytest.raises(tomllib.TOMLDecodeError):
        check(only_block("```toml\na =\n```\n"), tmp_path)
