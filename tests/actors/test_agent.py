"""Agents as frozen data: what is refused where they are written, digests, the registry, and typed answers."""

import dataclasses
import json
import subprocess
import sys
from decimal import Decimal
from typing import Any, Literal, TypedDict

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import given

from actors.agent import Agent, Child, Drain, Prompt, closure
from actors.budget import Budget, Limits
from actors.compaction import Compaction
from actors.errors import UsageError
from actors.fitting import Refusal
from actors.hooks import Hooks, guard
from actors.models.script import Script
from actors.output import Answer, output_spec
from actors.tools import tool


@attrs.frozen
class Verdict:
    """What a review comes to."""

    file: str
    score: int
    cost: Decimal = Decimal(0)


class Guessed:
    """Takes what it is not given."""

    async def settled(self, at: object, report: object) -> None:
        """Never called."""


class NotAsync:
    """Forgets to be async."""

    def before_turn(self, at: object) -> None:
        """Never called."""


class Misspelt(Hooks):
    """A method that would be silently never called."""

    async def befor_turn(self, at: object) -> None:
        """Never."""


class LateGuard(Hooks):
    """A guard where nothing is left to guard."""

    @guard
    async def settled(self, at: object) -> None:
        """Too late."""


@dataclasses.dataclass
class Finding:
    line: int


class Summary(TypedDict):
    text: str


def plain(path: str) -> str:
    """Read a file."""
    return path


read_file = tool(plain, name="read_file")


def test_an_agent_needs_a_name_only() -> None:
    """Everything else has a default; lists become tuples, text a prompt, a child its wrapper."""
    agent = Agent("lead")
    assert (agent.instructions, agent.tools, agent.children, agent.model) == (Prompt(""), (), (), ())
    assert (agent.drain, agent.limits, agent.output_spec) == (Drain("all", "one"), Limits(), None)
    reviewer = Agent("reviewer", "Review.", tools=[read_file], output=Verdict)
    lead = Agent(
        "lead",
        Prompt("Hand out.", "v2"),
        children=[reviewer, Child(agent, background=True, budget=Budget(usd="0.10"))],
        model=["openai:a", Script({})],
        drain={"send": "all"},
        effort="high",
    )
    assert [child.name for child in lead.children] == ["reviewer", "lead"]
    assert (lead.children[0].background, lead.children[0].restart, lead.children[1].background) == (
        False,
        "transient",
        True,
    )
    assert (len(lead.model), lead.drain, Agent("x", model="openai:a").model) == (2, Drain("all", "all"), ("openai:a",))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        lead.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "a/b"}, "the agent name 'a/b' cannot be used"),
        ({"name": "a#2"}, "without `/`, `#`"),
        ({"name": ""}, "1 to 64 characters"),
        ({"name": " a"}, "no space at its ends"),
        ({"name": "a\n"}, "control characters"),
        ({"name": "x" * 65}, "1 to 64"),
        ({"name": 5}, "the agent name 5"),
        ({"instructions": 5}, "instructions= is Prompt; got 5"),
        ({"tools": [plain]}, "plain is a plain function: decorate it with @tool"),
        ({"tools": [5]}, "tools= takes tools; got 5"),
        ({"tools": read_file}, "tools= is a list"),
        ({"tools": "read_file"}, "tools= is a list"),
        ({"tools": [Agent("b")]}, "'b' in tools= is an agent; list it in children="),
        ({"children": [plain]}, "children= takes Agent or Child"),
        ({"children": Agent("b")}, "children= is a list"),
        ({"children": [Agent("two words")]}, "offered to the model as a tool of its name"),
        ({"model": 5}, "model= is 'protocol:name'"),
        ({"model": [""]}, "model= is 'protocol:name'"),
        ({"effort": 5}, "effort= is str or None; got 5"),
        ({"tier": 5}, "tier= is str or None"),
        ({"output": complex}, "agent 'a', output=: the type complex cannot be used"),
        ({"output": Verdict("f", 1)}, "cannot be used"),
        ({"budget": 5}, "budget= is Budget or None; got 5"),
        ({"limits": {}}, "limits= is Limits; got {}"),
        ({"hooks": Hooks}, "hooks= is an object: write Hooks()"),
        ({"hooks": 5}, "is no hook"),
        ({"hooks": object()}, "hooks= is a Hooks"),
        ({"hooks": Misspelt()}, "Misspelt.befor_turn is no hook"),
        ({"hooks": Guessed()}, "called with 1 arguments, write `async def settled(self, at)`"),
        ({"hooks": NotAsync()}, "is no async method; write `async def before_turn(self, at)`"),
        ({"hooks": LateGuard()}, "LateGuard.settled cannot be a guard"),
        ({"drain": "all"}, "drain= is a Drain or a dict"),
        ({"drain": {"steal": "all"}}, "drain= is a Drain or a dict"),
        ({"drain": {"send": "some"}}, "Drain(send=...) is 'one' or 'all'; got 'some'"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(options: dict[str, Any], says: str) -> None:
    """The error names the agent and the field, the value met, and what would be accepted."""
    with pytest.raises(UsageError) as caught:
        Agent(**{"name": "a", **options})
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"agent": "b"}, "Child(agent) takes an Agent; got 'b'"),
        ({"restart": "always"}, "agent 'b': restart= is one of permanent, transient, temporary; got 'always'"),
        ({"grace": -1}, "grace= is seconds from 0"),
        ({"grace": True}, "grace= is seconds from 0"),
        ({"background": 1}, "background= is True or False"),
        ({"budget": "1.00"}, "budget= is a Budget or None"),
    ],
    ids=str,
)
def test_a_child_that_cannot_be_meant_is_refused(options: dict[str, Any], says: str) -> None:
    """Each field of a child is judged where it is written."""
    with pytest.raises(UsageError) as caught:
        Child(**{"agent": Agent("b"), **options})
    assert says in str(caught.value)


def test_prompts_are_text() -> None:
    """A prompt and its version are two texts."""
    with pytest.raises(UsageError, match="takes two texts; got 2"):
        Prompt("x", 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tools", "children", "says"),
    [
        (["a", "a"], [], "two tools are named 'a': the tool of .*plain and the tool of .*plain"),
        (["a"], ["a"], "two tools are named 'a': the tool of .*plain and the child 'a'"),
        ([], ["a", "a"], "two tools are named 'a': the child 'a' and the child 'a'"),
        (["answer_a"], ["a"], "two tools are named 'answer_a': .* and the answer to the child 'a'"),
    ],
)
def test_tol_9_tools_and_children_share_one_set_of_names(tools: list[str], children: list[str], says: str) -> None:
    """A clash between tools, children and the answers to children is refused, naming both."""
    with pytest.raises(UsageError, match=says):
        Agent("lead", tools=[tool(plain, name=name) for name in tools], children=[Agent(name) for name in children])


# -- digests and the registry ------------------------------------------------------------------------------------


def make(**changed: Any) -> Agent:
    """An agent in which one thing is changed."""
    return Agent(**{"name": "lead", "instructions": "Go.", "tools": [read_file], "children": [Agent("b")], **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"instructions": "Stop."},
        {"instructions": Prompt("Go.", "v2")},
        {"tools": []},
        {"tools": [tool(plain, name="read_file", effect="pure")]},
        {"tools": [tool(plain, name="read_file", approve=True)]},
        {"tools": [tool(plain, name="read_file", timeout=3)]},
        {"tools": [tool(plain, name="read_file", description="Read.")]},
        {"children": []},
        {"children": [Child(Agent("b"), background=True)]},
        {"children": [Child(Agent("b"), budget=Budget(usd="1"))]},
        {"model": "openai:a"},
        {"effort": "low"},
        {"tier": "flex"},
        {"output": Verdict},
        {"output": str},
        {"budget": Budget(tokens=5)},
        {"budget": Budget(usd=Decimal("0.5"))},
        {"limits": Limits(parallel_calls=1)},
        {"drain": Drain(send="all")},
        {"hooks": Hooks()},
        {"compaction": Compaction(keep=0.1)},
    ],
    ids=str,
)
def test_the_digest_changes_with_all_that_matters(changed: dict[str, Any]) -> None:
    """Equal specs have equal digests, whichever object holds them; one difference is enough for another."""
    assert make().digest == make().digest
    assert make(**changed).digest != make().digest
    assert make(**changed).digest == make(**changed).digest


def test_the_digest_tells_amounts_apart() -> None:
    """Two budgets of one kind are two specs."""
    one, other = (make(budget=Budget(usd=Decimal(amount))) for amount in ("0.5", "0.6"))
    assert one.digest != other.digest


def test_the_digest_is_the_same_in_every_process() -> None:
    """No address, no hash seed and no order of a set gets into it."""
    code = (
        "from actors.agent import Agent, Child\nfrom actors.budget import Budget\nfrom actors.tools import tool\n"
        "from actors.hooks import Hooks\n"
        "def f(a: set[str], b: int = 1) -> None: 'F.'\n"
        "child = Child(Agent('b'), budget=Budget(usd='1'))\n"
        "options = {'tools': [tool(f, resource=lambda b: b)], 'output': dict[str, int], 'hooks': Hooks()}\n"
        "print(Agent('a', 'x', children=[child], **options).digest)"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1
    assert len(runs.pop().strip()) == 64


def test_the_registry_holds_all_agents_below() -> None:
    """Children's children are found; one object, or an equal one, may stand in many places."""
    leaf = Agent("leaf")
    lead = Agent("lead", children=[Agent("a", children=[leaf]), Agent("b", children=[Agent("leaf")])])
    found = closure([lead, lead, leaf])
    assert sorted(found) == ["a", "b", "lead", "leaf"]
    assert found["lead"] is lead
    assert closure([]) == {}
    with pytest.raises(TypeError):
        found["lead"] = leaf  # type: ignore[index]


def test_two_different_agents_of_one_name_are_refused() -> None:
    """Also where the difference lies below: a stored agent is brought back by its name."""
    with pytest.raises(UsageError, match="two different agents are named 'leaf'"):
        closure([Agent("a", children=[Agent("leaf", "x")]), Agent("b", children=[Agent("leaf", "y")])])
    deep = [Agent("a", children=[Agent("b", children=[Agent("c", text)])]) for text in ("x", "y")]
    with pytest.raises(UsageError, match="two different agents are named 'a'"):
        closure(deep)
    with pytest.raises(UsageError, match="agents= takes agents; got 5"):
        closure([5])  # type: ignore[list-item]


# -- typed answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "text", "value", "kept"),
    [
        (Verdict, '{"file": "a.py", "score": 3}', Verdict("a.py", 3), '{"file":"a.py","score":3}'),
        (Verdict, 'Sure:\n```json\n{"file": "a", "score": 3}\n```\nDone.', Verdict("a", 3), None),
        (
            Verdict,
            'Such as {"file": 1}; so {"file": "a", "score": 3, "cost": "0.5"}.',
            Verdict("a", 3, Decimal("0.5")),
            None,
        ),
        (
            Verdict,
            '```\n{"file": "old", "score": 1}\n```\n```\n{"file": "new", "score": 2}\n```',
            Verdict("new", 2),
            None,
        ),
        (Finding, '{"line": 3}', Finding(3), None),
        (Finding, '```\n{"line": 3}\n```\n```json\n{"line": \n```', Finding(3), None),
        (Finding, 'First {"line": 3}, no: {"line": 4}.', Finding(4), None),
        (Summary, '{"text": "x"}', {"text": "x"}, None),
        (list[Finding], '[{"line": 3}]', [Finding(3)], '[{"line":3}]'),
        (list[Finding], '{"answer": [{"line": 3}]}', [Finding(3)], '[{"line":3}]'),
        (list[int], "The lines are [1, 2].", [1, 2], "[1,2]"),
        (int, '{"answer": 5}', 5, "5"),
        (int, "5", 5, "5"),
        (Literal["yes", "no"], '"yes"', "yes", '"yes"'),
        (Verdict | Finding, '{"line": 3}', Finding(3), None),
        (dict[str, int], '{"answer": 5}', {"answer": 5}, None),
        (str, 'plain "text"', 'plain "text"', '"plain \\"text\\""'),
    ],
    ids=str,
)
def test_an_answer_is_read_out_of_what_a_model_writes(
    declared: object, text: str, value: object, kept: str | None
) -> None:
    """Bare, fenced, with words around it, wrapped where the type is no object; the last that fits counts."""
    spec = output_spec(declared, "here")
    answer = spec.read(text)
    assert isinstance(answer, Answer), answer
    assert answer.value == value
    assert type(answer.value) is type(value)
    assert kept is None or answer.json == kept
    assert declared is str or spec.read(answer.json) == answer


@pytest.mark.parametrize(
    ("declared", "text", "says"),
    [
        (
            Verdict,
            "I do not know.",
            'there is no JSON in it; answer with one JSON value that fits this schema: {"type"',
        ),
        (Verdict, '{"file": "a", "score": "3"}', 'score: got the text "3"; expected a whole number'),
        (Verdict, '{"file": "a", "score": 3, "more": 1}', "more: no such name here"),
        (Verdict, '{"file": "a", "score": 3, "cost": "x"}', "cost"),
        (Verdict, '{"file": "a", "score"', "there is no JSON"),
        (list[int], '{"answer": ["a"]}', '[0]: got the text "a"; expected a whole number'),
        (int, "many", "there is no JSON"),
        (int, '{"answer": 5, "more": 1}', "the answer: got an object with answer, more"),
        (dict[str, float], 'It is {"a": NaN}.', "there is no JSON"),
        (int, '"5"', 'the answer: got the text "5"; expected a whole number'),
        (Verdict, "[" * 100_000, "there is no JSON"),
        (Verdict, "NaN", "there is no JSON"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_answer_that_does_not_fit_is_refused_with_words(declared: object, text: str, says: str) -> None:
    """The model reads what is wrong and what would fit; never an exception."""
    refused = output_spec(declared, "here").read(text)
    assert isinstance(refused, Refusal)
    assert says in refused.text
    assert "the arguments" not in refused.text


@given(st.text(alphabet='{}[]",:`\n a1\\', max_size=60))
def test_reading_an_answer_never_raises(text: str) -> None:
    """Any text is an answer or a refusal."""
    assert isinstance(output_spec(dict[str, int] | list[int], "here").read(text), Answer | Refusal)


def test_what_is_no_object_is_asked_for_inside_one() -> None:
    """Servers take objects only: another type is wrapped as `answer`; text is not asked for at all."""
    spec = output_spec(list[int], "here")
    assert spec.offer is not None
    assert json.loads(spec.offer.schema)["properties"] == {"answer": {"type": "array", "items": {"type": "integer"}}}
    whole = output_spec(Verdict, "here")
    assert whole.offer is not None
    assert (whole.name, whole.offer.name) == ("Verdict", "Verdict")
    assert "answer" not in whole.offer.schema
    assert output_spec(str, "here").offer is None
    assert repr(spec) == "<OutputSpec list_int>"
    assert output_spec(dict[str, int], "here").name == "dict_str_int"


@pytest.mark.parametrize("agents", [None, "lead", Agent("lead")])
def test_a_registry_is_a_list_of_agents(agents: Any) -> None:
    """One agent without its brackets, a name and nothing are refused, with what is taken."""
    with pytest.raises(UsageError, match="agents= takes a list of agents"):
        closure(agents)
