"""What the command line means."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.budget import Budget
from actors.errors import UsageError
from supervisor.cli_exit import MEANINGS
from supervisor.cli_options import EPILOG, Parser, add_common, common_of, parse_budget, resume_command


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("0.50", Budget(usd="0.50")),
        ("$2", Budget(usd="2")),
        (".5", Budget(usd=".5")),
        ("usd=0.50,tokens=200000", Budget(usd="0.50", tokens=200_000)),
        ("usd=$1, seconds=2.5 ,agents=8", Budget(usd="1", seconds=2.5, agents=8)),
        ("tokens=200_000,soft=0.5,on_exhausted=park", Budget(tokens=200_000, soft=0.5, on_exhausted="park")),
    ],
)
def test_a_budget_is_dollars_or_limits(text: str, budget: Budget) -> None:
    """Dollars alone, or limits by the names that Budget has, make that budget."""
    made = parse_budget(text)
    assert dict(made.limits()) == dict(budget.limits())
    assert (made.soft, made.on_exhausted) == (budget.soft, budget.on_exhausted)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-1",
        "1,5",
        "usd",
        "usd=x",
        "tokens=1.5",
        "tokens=1,tokens=2",
        "euros=1",
        "seconds=-1",
        "on_exhausted=stop",
        "=",
    ],
)
def test_a_wrong_budget_is_refused_in_one_line(text: str) -> None:
    """What is no budget is refused in one line that can be acted on."""
    with pytest.raises(UsageError) as caught:
        parse_budget(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_a_budget_or_a_usage_error(text: str) -> None:
    """No text makes the budget parser fail in another way."""
    try:
        limits = dict(parse_budget(text).limits())
    except UsageError:
        return
    assert all(value >= 0 for value in limits.values())


@given(st.decimals(0, 10**6, places=4).map(lambda d: f"{d:f}"))
def test_dollars_are_exact(text: str) -> None:
    """A dollar amount means exactly what is written."""
    ((_, pico),) = parse_budget(text).limits()
    assert Decimal(pico) == Decimal(text) * 10**12


def test_resume_needs_a_store() -> None:
    """--resume without --store says what is missing."""
    parser = Parser(prog="callboard run")
    add_common(parser)
    with pytest.raises(UsageError, match="--store"):
        common_of(parser.parse_args(["--resume"]))
    assert common_of(parser.parse_args(["--resume", "--store", "x.db"])).resume
    with pytest.raises(UsageError, match="--store"):
        common_of(parser.parse_args(["--resume-path", "a"]))
    named = common_of(parser.parse_args(["--resume-path", "a#2", "--store", "x.db"]))
    assert (named.resume, named.path) == (True, "a#2")


def test_the_help_and_the_readme_list_the_same_exit_codes() -> None:
    """One table says what each code means, in both places."""
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |\n" in readme
        assert f" {code} {meaning} " in " ".join(EPILOG.split())
    assert max(map(len, EPILOG.splitlines())) <= 80


def test_plain_and_json_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """Two ways of showing the same at once are a usage error of one line."""
    parser = Parser(prog="callboard run")
    add_common(parser)
    with pytest.raises(SystemExit) as stop:
        parser.parse_args(["--plain", "--json"])
    assert stop.value.code == 2
    assert capsys.readouterr().err.splitlines()[0] == "callboard: argument --json: not allowed with argument --plain"


def test_the_command_to_resume_can_be_pasted() -> None:
    """The line that is printed is what was typed, quoted, with the root of the run once."""
    said = "callboard run 'a b.py' --store x.db --resume-path 'a#2'"
    typed = ["run", "a b.py", "--store", "x.db"]
    assert resume_command(typed, "a#2") == said
    for before in (["--resume"], ["--resume-path", "a#2"], ["--resume-path=a"]):
        assert resume_command([*typed[:2], *before, *typed[2:]], "a#2") == said


def test_models_are_tried_in_order() -> None:
    """--model given twice is a list to fall back along."""
    parser = Parser(prog="callboard run")
    add_common(parser)
    args = parser.parse_args(["--model", "openai:a", "--model", "openai:b"])
    assert common_of(args).model == ("openai:a", "openai:b")
    assert common_of(SimpleNamespace(**vars(args))).store is None  # type: ignore[arg-type]
