"""The command itself, run as people run it: exit codes, signals, what is printed where."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import trio

from actors import Agent
from actors.errors import Aborted, AgentClosed, Corrupt, Exhausted, OwnedElsewhere, UsageError
from actors.ids import AgentId, RunId, TurnId
from actors.messages import Outcome, Status, failure_of
from actors.models.script import Script, hang
from actors.reports import report_of
from actors.testing.chat_server import serve_chat
from supervisor import _start, open_supervisor
from supervisor.cli_exit import Unheard, code_of_error, code_of_outcome, code_of_report, only
from supervisor.cli_load import Broken, Unusable, load
from supervisor.cli_run import Run, choose_run

ROOT = Path(__file__).parents[2]
REVIEW = str(ROOT / "examples" / "review.py")
COMMAND = [sys.executable, "-c", "import sys; from supervisor._start import main; sys.exit(main())"]
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80", "LINES": "24", "NO_COLOR": "1"}

ONE = """\
from actors import Agent, Script
agent = Agent("one", "Say it.")
def model(args):
    return Script({"one": STEPS}, latency_s=LATENCY)
"""


def callboard(*args: str, cwd: Path | None = None, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(
        [*COMMAND, *args], env=ENVIRON, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False
    )


def one(folder: Path, steps: str, latency: str = "0") -> str:
    """A FILE.py with one agent that plays these steps."""
    path = folder / "one.py"
    path.write_text(ONE.replace("STEPS", steps).replace("LATENCY", latency))
    return str(path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of 24 small files."""
    folder = tmp_path / "project"
    folder.mkdir()
    for n in range(24):
        (folder / f"file_{n:02}.py").write_text(f'"""File {n}."""\n\n\ndef run():\n    pass\n')
    return folder


# -- what goes where ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_answer_goes_to_output_and_the_log_to_error(tmp_path: Path) -> None:
    """Piped, standard output is the answer alone, and plain lines stand on standard error."""
    ran = callboard("run", one(tmp_path, '["It is *five*."]'), "2 + 3?")
    assert (ran.returncode, ran.stdout) == (0, "It is *five*.\n")
    assert re.search(r"^ +\d\.\ds  one  started", ran.stderr, re.MULTILINE)
    assert "\x1b" not in ran.stderr
    assert re.search(r"^1 agent done, \d+ tokens, free, 0:0\d$", ran.stderr.splitlines()[-1])


@pytest.mark.slow
def test_json_lines_are_events_and_the_report_last(tmp_path: Path) -> None:
    """With --json every line of standard output is an object, the last one the report."""
    ran = callboard("run", one(tmp_path, '["It is five."]'), "--json", "2 + 3?")
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    kinds = [line["event"] for line in lines]
    assert ran.returncode == 0
    assert kinds[-1] == "report"
    assert {"agent_started", "turn_started", "response_ended", "turn_ended"} <= set(kinds)
    assert (lines[-1]["status"], lines[-1]["text"], lines[-1]["cost"]) == ("done", "It is five.", "0")


@pytest.mark.slow
def test_a_report_can_be_written_to_a_file(project: Path, tmp_path: Path) -> None:
    """With --output the report is in the file, and standard output stays empty."""
    target = tmp_path / "report.md"
    ran = callboard("run", REVIEW, "--input", str(project), "--output", str(target))
    assert (ran.returncode, ran.stdout) == (0, "")
    assert target.read_text().startswith("| file | lines | findings | verdict |\n")
    assert target.read_text().count("\n| `file_") == 24
    assert f"the report is in {target}" in ran.stderr


@pytest.mark.slow
async def test_a_review_is_the_same_with_a_model_behind_a_server(project: Path, tmp_path: Path) -> None:
    """The command with --model and a chat server that is fed by the same functions writes the same bytes."""
    script = getattr(sys.modules[load(Path(REVIEW)).main.__module__], "SCRIPT")  # noqa: B009
    reports = [tmp_path / "script.md", tmp_path / "server.md"]
    options = [*COMMAND, "run", REVIEW, "--input", str(project), "--plain"]
    async with serve_chat(Script(script)) as server:
        for target, model in zip(reports, ([], ["--model", f"openai-chat:any@{server.url}"]), strict=True):
            command = [*options, "--output", str(target), *model]
            ran = await trio.run_process(command, env=ENVIRON, capture_stderr=True, check=False)
            assert ran.returncode == 0, ran.stderr
        assert len(server.journal) == 2 + 2 * 24
    assert reports[0].read_bytes() == reports[1].read_bytes() != b""


@pytest.mark.slow
def test_a_store_can_be_looked_into_while_it_is_in_use(project: Path, tmp_path: Path) -> None:
    """`callboard show` reads a store that a run owns, says whose it is, and a second run stands beside it."""
    store = str(tmp_path / "review.db")
    process = start("run", REVIEW, "--input", str(project), "--store", store, "--parallel", "2", "--pace", "1")
    try:
        until(process, r"\(file_0[1-9]\.py\)")
        tree = callboard("show", store)
        assert tree.returncode == 0, tree.stderr
        assert re.search(r"^● lead review-1 +in turn 1, step 1", tree.stdout)
        assert f"in use by process {process.pid}" in tree.stdout
        one = callboard("show", store, "lead/reviewer")
        assert "Review file_00.py" in one.stdout
        assert "calls read_file" in one.stdout
        second = callboard("run", REVIEW, "--input", str(project), "--store", store)
        assert second.returncode == 0, second.stderr
        assert re.search(r"lead#2  done", second.stderr)
        unknown = callboard("show", store, "lead/nobody")
        assert unknown.returncode == 2
        assert "no agent lead/nobody" in unknown.stderr
    finally:
        process.kill()
        process.communicate()
    assert "cut off in turn 1" in callboard("show", store).stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "code", "said"), [(None, 3, "there is no store"), (b"not a database at all", 3, "callboard: ")]
)
def test_what_is_no_store_says_so(tmp_path: Path, content: bytes | None, code: int, said: str) -> None:
    """A file that is missing or is no store is one clear line."""
    path = tmp_path / "x.db"
    if content is not None:
        path.write_bytes(content)
    ran = callboard("show", str(path))
    assert (ran.returncode, ran.stdout) == (code, "")
    assert said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


# -- exit codes --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "options", "code", "said"),
    [
        ('["Done."]', (), 0, ""),
        ("[rejected('the key is wrong')]", (), 1, "callboard: one failed: the key is wrong"),
        ('["Done."]', ("--budget", "tokens=1,on_exhausted=fail"), 4, "callboard: one exhausted: budget of"),
        ('["Done."]', ("--model", "gpt-5"), 2, "callboard: "),
        ('["Done."]', ("--model", "openai-chat:gpt-5"), 3, "callboard: "),
        ('["Done."]', ("--model", "openai-chat:x@http://127.0.0.1:9/v1"), 1, "127.0.0.1:9"),
        ('["Done."]', ("--budget", "euros=1"), 2, "callboard: argument --budget: there is no limit named 'euros'"),
        ('["Done."]', ("--resume",), 2, "callboard: --resume goes on with what a store holds"),
        ('["Done."]', ("--store", "/dev/null/x.db"), 3, "callboard: "),
        ('["Done."]', ("--nonsense",), 2, "callboard: unrecognized arguments: --nonsense"),
    ],
)
def test_each_end_has_its_code_and_its_line(
    tmp_path: Path, steps: str, options: tuple[str, ...], code: int, said: str
) -> None:
    """How it ended is the exit code, and one clear line says why; nothing ends in a traceback."""
    path = one(tmp_path, steps)
    source = Path(path)
    source.write_text(source.read_text().replace("import Agent", "import rejected, Agent", steps.startswith("[rej")))
    ran = callboard("run", path, "Do it.", *options)
    assert "Traceback" not in ran.stderr
    assert ran.returncode == code, ran.stderr
    assert said in ran.stderr
    assert sum(line.startswith("callboard: ") for line in ran.stderr.splitlines()) == (code != 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (None, 2, "no such file"),
        ("def (\n", 2, "file.py:1: "),
        ("x = 1\n", 2, "exports neither `async def main(sup, args)` nor `agent = Agent(...)`"),
        ("def main(sup, args): pass\n", 2, "main is not `async def main(sup, args)`"),
        ("import not_there_at_all\n", 3, "needs the module not_there_at_all, which is not installed here"),
        ("1 / 0\n", 1, "ZeroDivisionError: division by zero"),
        ("async def main(sup, args): return 7\n", 2, "main returns a Report or None; got 7"),
        ("async def main(sup, args): raise KeyError('x')\n", 1, "KeyError: 'x'"),
        ("async def main(sup, args): pass\n", 0, ""),
        ("async def main(sup, args): pass\ndef arguments(p): p.add_argument('--model')\n", 2, "every run has already"),
    ],
)
def test_a_file_that_cannot_be_run_says_why(tmp_path: Path, text: str | None, code: int, said: str) -> None:
    """What is wrong with FILE.py is said with the file's name, and no frame of ours stands in a traceback."""
    path = tmp_path / "file.py"
    if text is not None:
        path.write_text(text if "main" not in text else f"from actors import Script\nmodel = Script({{}})\n{text}")
    ran = callboard("run", str(path))
    assert ran.returncode == code, ran.stderr
    assert said in ran.stderr
    assert "supervisor/cli" not in ran.stderr


@pytest.mark.slow
def test_help_says_what_a_file_adds() -> None:
    """The help of a run lists the file's own options beside those of every run."""
    ran = callboard("run", REVIEW, "--help")
    assert ran.returncode == 0
    for word in ("--input FOLDER", "--parallel N", "--store PATH", "--budget LIMITS", "exit codes:"):
        assert word in ran.stdout
    assert callboard("--help").returncode == 0
    assert callboard().returncode == 2
    assert callboard("run").returncode == 2
    assert callboard("dance").stderr.startswith("callboard: ")


async def _nobody(_: str) -> None:
    raise AssertionError


def test_reports_have_codes() -> None:
    """What waits for a person is told from what failed; a run that its budget parks is exhausted, also stored."""
    why = failure_of(Exhausted("lead", "tokens", limit=1, spent=1, asked=1))
    ends = {
        Status.DONE: 0,
        Status.FAILED: 1,
        Status.EXHAUSTED: 4,
        Status.ABORTED: 5,
        Status.CLOSED: 5,
        Status.PARKED: 6,
        Status.NEEDS_INPUT: 6,
    }
    assert set(ends) == set(Status)
    for status, code in ends.items():
        ended = Outcome(path=AgentId("a"), run=RunId("a:r1"), turn=TurnId("a:t1"), status=status)
        assert code_of_outcome(ended) == code
        assert code_of_report(report_of(ended, None, _nobody)) == code
    parked = Outcome(path=AgentId("a"), run=RunId("a:r1"), turn=TurnId("a:t1"), status=Status.PARKED, failure=why)
    assert (code_of_outcome(parked), code_of_report(report_of(parked, None, _nobody))) == (4, 4)


async def test_a_run_to_go_on_with_is_named_where_there_are_several() -> None:
    """None is chosen in silence: one that is open is told, several are listed, and a path chooses."""
    idle = Agent("idle", "Wait.")
    async with open_supervisor(model=Script({"idle": lambda _: hang()})) as sup:
        assert await choose_run(sup, "job", resume=False, path=None) == Run("job-1")
        with pytest.raises(UsageError, match="there is no run of job in this store to resume"):
            await choose_run(sup, "job", resume=True, path=None)
        await sup.start(idle, "x", key="job-1")
        await sup.start(idle, "x", key="other-7")
        assert await choose_run(sup, "job", resume=True, path=None) == Run("job-1", "idle", "idle (job-1) goes on")
        await sup.start(idle, "x", key="job-10")
        assert (await choose_run(sup, "job", resume=False, path=None)).key == "job-11"
        listed = r"2 runs of job are not finished: idle \(job-1\), idle#3 \(job-10\); say with --resume-path"
        with pytest.raises(UsageError, match=listed):
            await choose_run(sup, "job", resume=True, path=None)
        assert (await choose_run(sup, "job", resume=True, path="/idle#3")).key == "job-10"
        with pytest.raises(UsageError, match=r"no such run in this store; it has idle \(job-1\), idle#3"):
            await choose_run(sup, "job", resume=True, path="idle#2")
        await sup.abort_all("enough")
        for name in ("idle", "idle#3"):
            await (await sup.find(name)).wait_idle()
        chosen = await choose_run(sup, "job", resume=True, path=None)
        assert (chosen.root, chosen.said) == ("idle#3", "idle#3 (job-10) was finished, and its report is there")


def test_errors_have_codes() -> None:
    """Who must act decides the code: the caller 2, the environment 3, the budget 4; abort and close 5, a wait 7."""
    exhausted = Exhausted("lead", "tokens", limit=1, spent=1, asked=1)
    errors = (
        UsageError("x"),
        AgentClosed("x"),
        Unheard("x"),
        Corrupt("x"),
        OwnedElsewhere("x"),
        exhausted,
        Aborted("x"),
        KeyboardInterrupt(),
        KeyError(),
    )
    assert [code_of_error(error) for error in errors] == [2, 5, 7, 3, 3, 4, 5, 130, 1]


def test_one_error_comes_out_of_groups() -> None:
    """Out of nested groups the error that a person can act on is told."""
    inner = UsageError("fix it")
    assert only(BaseExceptionGroup("a", [ExceptionGroup("b", [inner])])) is inner
    assert only(ExceptionGroup("a", [ValueError("noise"), inner])) is inner
    both = ExceptionGroup("a", [ValueError("1"), ValueError("2")])
    assert only(both) is both


def test_loading_leaves_the_files_own_traceback(tmp_path: Path) -> None:
    """A file that raises is told with its own frames; one that lacks a module names it."""
    path = tmp_path / "file.py"
    path.write_text("def f():\n    raise ValueError('here')\nf()\n")
    with pytest.raises(Broken, match=r"(?s)line 3.*line 2, in f.*ValueError: here") as caught:
        load(path)
    assert "importlib" not in str(caught.value)
    path.write_text("import not_there_at_all")
    with pytest.raises(Unusable, match="not_there_at_all"):
        load(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("async def main(): pass", "main is not `async def main"),
        ("async def main(sup): pass", "main is not `async def main"),
        ("async def main(sup, args): pass\ndef arguments(): pass", "arguments is `def arguments"),
        ("async def main(sup, args): pass\ndef model(): pass", "model is `def model"),
        ("async def main(sup, args): pass\ndef agents(): pass", "agents is `def agents"),
    ],
)
def test_what_a_file_exports_takes_what_it_is_given(tmp_path: Path, text: str, says: str) -> None:
    """A function that cannot be called as the command calls it is a usage error, before anything runs."""
    path = tmp_path / "file.py"
    path.write_text(text)
    with pytest.raises(UsageError, match=says):
        load(path)


# -- signals -----------------------------------------------------------------------------------------------------


def start(*args: str, stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """Start the command."""
    return subprocess.Popen([*COMMAND, *args], env=ENVIRON, stdout=stdout, stderr=stderr, text=True)


def until(process: subprocess.Popen[str], pattern: str) -> str:
    """Read its standard error until a line matches."""
    assert process.stderr is not None
    seen = ""
    for line in process.stderr:
        seen += line
        if re.search(pattern, line):
            return seen
    pytest.fail(f"{pattern!r} did not come:\n{seen}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_suspends_and_resume_goes_on(project: Path, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C leaves a store that owes the work; the printed command goes on and repeats no finished review."""
    store, target = tmp_path / "review.db", tmp_path / "report.md"
    options = ["--input", str(project), "--parallel", "2", "--store", str(store), "--output", str(target)]
    process = start("run", REVIEW, *options, "--pace", "0.1")
    until(process, r"review_all +[3-9]/24|\(file_0[3-9]\.py\)")
    process.send_signal(number)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 130, rest
    assert "suspending; Ctrl-C again aborts" in rest
    assert "callboard: interrupted; go on with" in rest
    assert not target.exists()
    line = rest.strip().splitlines()[-1].strip()
    assert line == f"callboard run {REVIEW} {' '.join(options)} --pace 0.1 --resume-path lead"
    shown = callboard("show", str(store)).stdout
    before = shown.count("✓ reviewer")
    assert before >= 3
    resumed = callboard("run", REVIEW, *options, "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert target.read_text().count("\n| `file_") == 24
    read = [event for event in map(json.loads, resumed.stdout.splitlines()) if event["event"] == "tool_started"]
    files = {json.loads(event["arguments"]).get("path") for event in read if event["name"] == "read_file"}
    assert len(files) <= 24 - before
    assert callboard("show", str(store)).stdout.count("✓ reviewer") == 24


@pytest.mark.slow
def test_two_signals_abort(tmp_path: Path) -> None:
    """A second Ctrl-C does not wait for what runs, and still ends in order."""
    path = tmp_path / "sleepy.py"
    path.write_text(
        "import trio\nfrom actors import Agent, Script, call, tool\n"
        "@tool\nasync def sleep() -> str:\n    '''Sleep.'''\n"
        "    await trio.sleep(40)\n    return 'slept'\n"
        "agent = Agent('one', 'Sleep.', tools=[sleep])\nmodel = Script({'one': [call('sleep'), 'Done.']})\n"
    )
    process = start("run", str(path), "--store", str(tmp_path / "x.db"), "Sleep.")
    until(process, r"one  sleep")
    process.send_signal(signal.SIGINT)
    until(process, "suspending")
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=30)
    assert process.returncode == 130, rest
    assert "aborting" in rest
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_a_way_to_resume_is_named_only_where_there_is_one(tmp_path: Path) -> None:
    """Interrupted before its run is in the store, the command says so instead of a line that would be refused."""
    path, store = tmp_path / "early.py", tmp_path / "s.db"
    path.write_text(
        "import sys, trio\nasync def main(sup, args):\n    print('waits', file=sys.stderr, flush=True)\n"
        "    await trio.sleep(60)\n"
    )
    process = start("run", str(path), "--store", str(store))
    until(process, "waits")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=20)
    assert process.returncode == 130, rest
    assert "before the run began" in rest
    assert "--resume" not in rest


def test_ctrl_c_during_the_imports_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What takes time is imported where Ctrl-C is caught, and it ends with 130."""

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert _start.main() == 130
    assert capsys.readouterr().err == "callboard: interrupted\n"


def test_the_commands_start_imports_nothing_that_takes_time() -> None:
    """Before `main` runs neither the actors nor the loop are imported; the package has all its names all the same."""
    code = (
        "import sys; from supervisor import _start; assert not {'actors', 'trio', 'attrs'} & set(sys.modules);"
        "import supervisor; assert all(getattr(supervisor, name) for name in supervisor.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], env=ENVIRON, check=True, timeout=30)


@pytest.mark.slow
def test_without_a_store_one_signal_ends_it(tmp_path: Path) -> None:
    """In memory there is nothing to suspend into: one Ctrl-C aborts, and says what would have helped."""
    process = start("run", one(tmp_path, '["Done."]', "30"), "Do it.")
    until(process, "one  started")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=20)
    assert process.returncode == 130, rest
    assert "nothing was kept (with --store PATH a run can be resumed)" in rest


@pytest.mark.slow
def test_code_that_blocks_the_loop_can_be_ended(tmp_path: Path) -> None:
    """A third Ctrl-C ends the process even where nothing can be heard any more."""
    path = tmp_path / "blocked.py"
    path.write_text(
        "import sys, time\nfrom actors import Script\nmodel = Script({})\n"
        "async def main(sup, args):\n    print('blocked', file=sys.stderr, flush=True)\n    time.sleep(60)\n"
    )
    process = start("run", str(path))
    until(process, "blocked")
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    process.communicate(timeout=10)
    assert process.returncode == -signal.SIGINT


# -- a terminal --------------------------------------------------------------------------------------------------


def on_terminal(*args: str, interrupt_at: str | None = None) -> tuple[int, str]:
    """Run the command on a terminal of 80 by 24; what came out of it."""
    main, side = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *args], env=ENVIRON, stdin=side, stdout=side, stderr=side, start_new_session=True
    )
    os.close(side)
    seen = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([main], [], [], 0.1)[0]:
            try:
                data = os.read(main, 65536)
            except OSError:
                break
            if not data:
                break
            seen += data
            if interrupt_at is not None and interrupt_at.encode() in seen:
                process.send_signal(signal.SIGINT)
                interrupt_at = None
    code = process.wait(timeout=10)
    os.close(main)
    return code, seen.decode()


@pytest.mark.slow
def test_on_a_terminal_there_is_a_live_tree(project: Path) -> None:
    """On a terminal the tree is drawn with its bar, no line is too wide, and the cursor is given back."""
    code, seen = on_terminal("run", REVIEW, "--input", str(project), "--pace", "0.05")
    assert code == 0, seen
    assert "review_all" in seen
    assert "━" in seen
    assert "reviewer: " in seen
    assert seen.count("\x1b[?25l") == seen.count("\x1b[?25h")
    for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen).replace("\r", "\n").split("\n"):
        assert len(line) <= 80


@pytest.mark.slow
def test_on_a_terminal_ctrl_c_suspends_too(project: Path, tmp_path: Path) -> None:
    """Ctrl-C in the live tree leaves the last picture, the command to go on, and a visible cursor."""
    store = str(tmp_path / "review.db")
    code, seen = on_terminal(
        "run", REVIEW, "--input", str(project), "--pace", "0.2", "--store", store, interrupt_at="━"
    )
    assert code == 130, seen
    assert "go on with" in seen
    assert seen.rindex("\x1b[?25h") > seen.rindex("\x1b[?25l")


@pytest.mark.slow
def test_plain_and_dumb_terminals_get_lines(project: Path) -> None:
    """With --plain, or on a terminal that cannot move its cursor, plain lines come."""
    code, seen = on_terminal("run", REVIEW, "--input", str(project), "--plain")
    assert code == 0
    assert "\x1b" not in seen
    assert "review_all 24/24" in seen


# -- the start ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_other_supervisor_is_named(tmp_path: Path) -> None:
    """Where PyPI's process manager is mixed into the package, the command says so and exits with 3."""
    package = tmp_path / "supervisor"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "supervisord.py").write_text("")
    shutil.copy(ROOT / "supervisor" / "_start.py", package)
    ran = subprocess.run(
        COMMAND,
        env={**ENVIRON, "PYTHONPATH": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ran.returncode == 3
    assert "PyPI's process manager (supervisord.py)" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_wheel_carries_every_package() -> None:
    """The list of packages is the folders there are, and the examples inside ours, where the demo looks for them."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {path.parent.relative_to(ROOT) for top in ("actors", "supervisor") for path in (ROOT / top).rglob("*.py")}
    assert sorted(listed) == sorted([*(".".join(path.parts) for path in there), "supervisor.examples"])


@pytest.mark.slow
def test_the_demo_reviews_our_own_sources() -> None:
    """The demo needs no key and no folder, and its table has our own files."""
    ran = callboard("demo")
    assert ran.returncode == 0, ran.stderr
    assert "| `actors/agent.py` | " in ran.stdout
    assert "| `supervisor/screen.py` | " in ran.stdout
    assert "not reviewed" not in ran.stdout
