"""The command on a disk that takes no more: a limit of the system on file sizes, set from outside while it runs."""

from __future__ import annotations

import resource
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.supervisor.test_cli import COMMAND, ENVIRON, callboard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux sets another process's limits"),
]

PROGRAM = '''\
"""An agent that asks for one effect after another; each is a line of effects.log beside this file."""
from pathlib import Path

from actors import Agent, Script, call, tool


@tool
async def charge(number: int) -> str:
    """Take effect outside."""
    with Path(__file__).with_name("effects.log").open("a") as log:
        log.write(f"{number}\\n")
    return f"charged {number}"


agent = Agent("till", "Charge.", tools=[charge])


def model(args):
    return Script({"till": [*(call("charge", number=n) for n in range(8)), "all charged"]}, latency_s=0.25)
'''
CHARGED = list(range(8))
FULL = 4096


class Run:
    """A run of the command, with a store and a program of its own."""

    def __init__(self, folder: Path) -> None:
        self.program, self.store = folder / "till.py", folder / "till.db"
        self.program.write_text(PROGRAM)
        self.process = subprocess.Popen(
            [*COMMAND, "run", str(self.program), "go", "--store", str(self.store), "--plain"],
            env=ENVIRON,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def reads(self, text: str) -> None:
        """Read the log up to a line with this text."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return
        msg = f"the run ended with {self.process.wait()} before it said {text!r}"
        raise AssertionError(msg)

    def limit(self, size: int) -> None:
        """From now on a write past so many bytes of a file fails; the log of effects is far shorter."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def ended(self) -> tuple[int, str, str]:
        """Exit code, answer, rest of the log."""
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    @property
    def effects(self) -> list[int]:
        """What took effect, in order."""
        return [int(line) for line in self.program.with_name("effects.log").read_text().split()]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A run, ended whatever happens."""
    run = Run(tmp_path)
    yield run
    run.process.kill()
    run.process.communicate()


def test_a_disk_that_is_full_for_a_while_costs_nothing(run: Run) -> None:
    """The run stands still, says why, and goes on by itself to the same end; every effect is there once."""
    run.reads("charge")
    run.limit(FULL)
    run.reads("store till.db")
    before = run.effects
    run.limit(resource.RLIM_INFINITY)
    code, out, _ = run.ended()
    assert (code, out) == (0, "all charged\n")
    assert run.effects == CHARGED
    assert len(before) < len(CHARGED), "it stood still"


def test_a_disk_that_stays_full_ends_the_command_with_3_and_the_store_owes_the_work(run: Run) -> None:
    """After `hard` seconds it ends with 3 and says what to do; then the work is resumed, and no effect is repeated."""
    run.reads("charge")
    run.limit(FULL)
    code, out, err = run.ended()
    assert (code, out) == (3, "")
    assert "Traceback" not in err
    assert "store till.db" in err
    before = run.effects
    checked = callboard("store", "check", str(run.store))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    again = callboard("run", str(run.program), "go", "--store", str(run.store), "--plain", "--resume")
    assert (again.returncode, again.stdout) == (0, "all charged\n"), again.stderr
    assert run.effects == CHARGED
    assert len(before) < len(CHARGED)
