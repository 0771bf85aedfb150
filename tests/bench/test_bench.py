"""The benchmarks run and say what they promise to say; no figure of theirs is judged here."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.bench import (
    bench_abort,
    bench_acceptance,
    bench_fleet,
    bench_import,
    bench_memory,
    bench_records,
    bench_startup,
    bench_turns,
    bench_waits,
    measuring,
    profile_turns,
)
from tests.bench.turn_work import SUBJECTS

if TYPE_CHECKING:
    from types import ModuleType

Said = dict[str, Any]


def said_by(
    script: ModuleType, arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Said:
    """What a script prints, called like from the command line."""
    monkeypatch.setattr(sys, "argv", [str(script.__file__), *arguments.split()])
    script.main()
    (line,) = capsys.readouterr().out.splitlines()
    found: Said = json.loads(line)
    return found


def medians(found: Any) -> list[float]:
    """Every median in what was said, wherever it stands."""
    if not isinstance(found, dict):
        return []
    inside = [number for value in found.values() for number in medians(value)]
    return [*inside, *([found["median"]] if "median" in found else [])]


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        pytest.param(bench_abort, "--rounds 2", id="abort"),
        pytest.param(bench_waits, "--rounds 2 --open 3,30", id="waits"),
        pytest.param(bench_fleet, "--agents 2 --seconds 0.05 --rounds 1", id="fleet"),
        pytest.param(bench_records, "--records 4,12 --rounds 2", id="records"),
        pytest.param(bench_acceptance, "--senders 2 --seconds 0.1 --rounds 1 --busy 1", id="acceptance"),
        pytest.param(bench_startup, "--agents 60 --busy 2 --rounds 1", id="startup"),
        pytest.param(bench_turns, "--rounds 1 --messages 2 --fresh 1", id="turns", marks=pytest.mark.slow),
        pytest.param(bench_import, "--rounds 1", id="import", marks=pytest.mark.slow),
    ],
)
def test_a_bench_prints_one_line_of_json(
    script: ModuleType, arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A benchmark prints one JSON object with its name, the machine, and medians that are all above nothing."""
    found = said_by(script, arguments, monkeypatch, capsys)
    assert found["bench"] == script.__name__.rpartition("bench_")[2]
    assert found["on"]["cpus"] >= 1
    assert medians(found)
    assert min(medians(found)) > 0


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_an_idle_agent_has_no_task(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Agents that were started, and agents that have answered, have no task of Trio's."""
    found = said_by(bench_memory, f"--agents 3 --store {store}", monkeypatch, capsys)
    assert found["started"]["tasks"] == 0
    assert found["settled"]["tasks"] == 0


def test_tasks_are_counted() -> None:
    """The count of tasks sees a task that is there, and sees that it has gone."""

    async def main() -> tuple[int, int, int]:
        before = bench_memory.tasks()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.lowlevel.checkpoint()
            during = bench_memory.tasks()
            nursery.cancel_scope.cancel()
        return before, during, bench_memory.tasks()

    before, during, after = trio.run(main)
    assert during == before + 1
    assert after == before


@pytest.mark.parametrize("subject", sorted(SUBJECTS))
def test_every_subject_does_the_same_work(subject: str) -> None:
    """Each subject of bench_turns.py answers with what the tool gave, and gives its three figures."""
    found = trio.run(bench_turns.measured, subject, 2, 1)
    assert set(found) == {"at_1", "mean"}
    assert min(found.values()) > 0
    assert trio.run(bench_turns.counted, subject)["python"] > 0


def test_profiles_name_the_hot_path(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The profile by bytecodes names the step function of a turn, with its share."""
    monkeypatch.setattr(sys, "argv", ["profile_turns.py", "--opcodes", "--messages", "2", "--lines", "200"])
    profile_turns.main()
    assert "actors/turn.py" in capsys.readouterr().out


def test_ratios_are_taken_pair_by_pair() -> None:
    """A ratio is the median over pairs, not a ratio of medians."""
    assert measuring.ratios([1.0, 10.0, 4.0], [1.0, 5.0, 1.0]) == {"median": 2.0, "min": 1.0, "max": 4.0}


def test_a_child_that_fails_is_an_error() -> None:
    """A child process that fails is not taken for a figure."""
    with pytest.raises(RuntimeError, match="ended with 3"):
        measuring.in_child([sys.executable, "-c", "raise SystemExit(3)"])
