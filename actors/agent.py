"""What an agent is: frozen data that can be used in many trees. Contradictions are refused where it is written."""

from __future__ import annotations

import hashlib
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias, cast

import attrs
import msgspec

from .budget import DEFAULT_LIMITS, Budget, Limits
from .compaction import Compaction
from .content import check_text, is_storable
from .errors import UsageError
from .hooked import check_hooks
from .ids import MAX_NAME_CHARS
from .output import OutputSpec, output_spec
from .pages import READER
from .ports import ANSWER_TOOL, Model
from .tools import TOOL_NAME, Tool, is_number

RESTARTS: Final = ("permanent", "transient", "temporary")
MODES: Final = ("one", "all")
Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
Mode: TypeAlias = Literal["one", "all"]


def _oops(owner: object, what: str) -> UsageError:
    return UsageError(f"agent {getattr(owner, 'name', '?')!r}: {what}")


@attrs.frozen
class Prompt:
    """Instructions with a version, which events and digests name.

    Args:
        text: the instructions. version: any text, such as `2025-11-03` or `v7`.
    """

    text: str
    version: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse what is no text."""
        for name, value in (("text", self.text), ("version", self.version)):
            if type(value) is not str:
                raise UsageError(f"Prompt(text, version) takes two texts; got {value!r}")
            check_text(value, f"Prompt({name}=...)")


@attrs.frozen
class Drain:
    """How many waiting messages enter at once, per lane (CON-2).

    Args:
        steer, send: `all` that wait, or `one` at a time.
    """

    steer: Mode = "all"
    send: Mode = "one"

    def __attrs_post_init__(self) -> None:
        """Refuse other words."""
        for lane, mode in (("steer", self.steer), ("send", self.send)):
            if mode not in MODES:
                raise UsageError(f"Drain({lane}=...) is 'one' or 'all'; got {mode!r}")


# -- converters and validators: what has the wrong type passes the first and is refused, by name, by the second ------


def _as_drain(value: Drain | Mapping[str, Mode]) -> Drain:
    known = isinstance(value, Mapping) and value.keys() <= {"steer", "send"}
    return Drain(**value) if isinstance(value, Mapping) and known else cast("Drain", value)


def _is_drain(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, Drain):
        raise _oops(
            owner, f"{field.name}= is a Drain or a dict with 'steer' and 'send', each 'one' or 'all'; got {value!r}"
        )


def _as_prompt(value: str | Prompt) -> Prompt:
    return Prompt(value) if isinstance(value, str) and is_storable(value) else cast("Prompt", value)


def _as_tools(value: Sequence[Tool[..., Any]]) -> tuple[Tool[..., Any], ...]:
    return tuple(value) if isinstance(value, list) else cast("tuple[Tool[..., Any], ...]", value)


def _as_children(value: Sequence[Agent | Child]) -> tuple[Child, ...]:
    if not isinstance(value, list | tuple):
        return cast("tuple[Child, ...]", value)
    return tuple(Child(item) if isinstance(item, Agent) else item for item in value)


def _as_models(value: str | Model | Sequence[str | Model] | None) -> tuple[str | Model, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) else cast("tuple[str | Model, ...]", (value,))


Validator: TypeAlias = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def _is_a(*kinds: type | None) -> Validator:
    accepted = " or ".join("None" if kind is None else kind.__name__ for kind in kinds)
    allowed = tuple(type(None) if kind is None else kind for kind in kinds)

    def check(owner: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, allowed):
            if isinstance(value, str):
                _is_whole(owner, field, value)
            raise _oops(owner, f"{field.name}= is {accepted}; got {value!r}")
        if isinstance(value, str):
            _is_whole(owner, field, value)

    return check


def _is_whole(owner: object, field: attrs.Attribute[Any], value: str) -> None:
    check_text(value, f"agent {getattr(owner, 'name', '?')!r}: {field.name}=")


def _are_tools(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    for item in _listed(owner, field, value):
        if isinstance(item, Agent | Child):
            raise _oops(owner, f"{item.name!r} in tools= is an agent; list it in children=")
        if not isinstance(item, Tool):
            name = getattr(item, "__name__", None)
            hint = f"{name} is a plain function: decorate it with @tool" if name else f"got {item!r}"
            raise _oops(owner, f"tools= takes tools; {hint}")


def _are_children(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    for item in _listed(owner, field, value):
        if not isinstance(item, Child):
            raise _oops(owner, f"children= takes Agent or Child; got {item!r}")
        if not TOOL_NAME.fullmatch(item.name) or item.name == ANSWER_TOOL:
            raise _oops(
                owner,
                f"the child {item.name!r} is offered to the model as a tool of its name, which must be 1 to 64"
                f" letters, digits, `_` and `-`, and not {ANSWER_TOOL}; rename it",
            )


def _are_models(owner: object, field: attrs.Attribute[Any], value: object) -> None:
    for item in _listed(owner, field, value):
        if not (isinstance(item, str) and item) and not hasattr(item, "request"):
            raise _oops(owner, f"model= is 'protocol:name', a model, or a list of them (tried in order); got {item!r}")
        if isinstance(item, str):
            _is_whole(owner, field, item)


def _listed(owner: object, field: attrs.Attribute[Any], value: object) -> tuple[object, ...]:
    if not isinstance(value, tuple):
        raise _oops(owner, f"{field.name}= is a list; got {value!r}, so write {field.name}=[...]")
    return value


@attrs.frozen(eq=False, repr=False)
class Agent:
    """An agent: what it is told, what it may do, what it answers. Frozen; usable in many trees.

    Args:
        name: 1 to 64 characters without `/` and `#`; part of its path.
        instructions: text, or a versioned `Prompt`.
        tools: what `@tool` made. children: agents it may start, or `Child` for how.
        model: `protocol:name`, a model, or a list to fall back along; the supervisor's where it is not given.
        effort, tier: as the provider names them, or None.
        output: the type of its answer: attrs class, dataclass, TypedDict, …; None is text.
        hooks: a `Hooks`, or None. compaction: how its history is compacted; None: as `Compaction()` says.
        budget: what it and all below it may spend. limits: bounds of one agent.
        drain: how messages enter, a `Drain` or a dict such as `{"send": "all"}`.

    Attributes:
        instructions: always a `Prompt`. model: always a tuple. output_spec: the compiled `output`, or None.
        digest: of all that makes this agent; the same in every process. lineage: the same with all children's.
    """

    name: str = attrs.field()
    instructions: Prompt = attrs.field(default=Prompt(""), converter=_as_prompt, validator=_is_a(Prompt))
    tools: tuple[Tool[..., Any], ...] = attrs.field(default=(), kw_only=True, converter=_as_tools, validator=_are_tools)
    children: tuple[Child, ...] = attrs.field(default=(), kw_only=True, converter=_as_children, validator=_are_children)
    model: tuple[str | Model, ...] = attrs.field(
        default=None, kw_only=True, converter=_as_models, validator=_are_models
    )
    effort: str | None = attrs.field(default=None, kw_only=True, validator=_is_a(str, None))
    tier: str | None = attrs.field(default=None, kw_only=True, validator=_is_a(str, None))
    output: object = attrs.field(default=None, kw_only=True)
    hooks: object = attrs.field(default=None, kw_only=True)
    budget: Budget | None = attrs.field(default=None, kw_only=True, validator=_is_a(Budget, None))
    limits: Limits = attrs.field(default=DEFAULT_LIMITS, kw_only=True, validator=_is_a(Limits))
    drain: Drain = attrs.field(factory=Drain, kw_only=True, converter=_as_drain, validator=_is_drain)
    compaction: Compaction | None = attrs.field(default=None, kw_only=True, validator=_is_a(Compaction, None))
    output_spec: OutputSpec | None = attrs.field(init=False)
    digest: str = attrs.field(init=False)
    lineage: str = attrs.field(init=False)

    @name.validator
    def _check_name(self, _: object, value: object) -> None:
        if not isinstance(value, str) or not _AGENT_NAME.fullmatch(value) or not is_storable(value):
            raise UsageError(
                f"the agent name {value!r} cannot be used: a name is 1 to {MAX_NAME_CHARS} characters that UTF-8 can"
                " hold, without `/`, `#` and control characters, and with no space at its ends"
            )

    def __attrs_post_init__(self) -> None:
        """Refuse names that clash: the model calls tools and children alike by name (TOL-9). Then compile the rest."""
        taken: dict[str, str] = {}
        offered = [(tool.name, f"the tool of {tool.origin}") for tool in self.tools]
        offered += [(child.name, f"the child {child.name!r}") for child in self.children]
        offered += [(f"answer_{child.name}", f"the answer to the child {child.name!r}") for child in self.children]
        if self.limits.kept_chars:
            taken[READER] = "what reads on in results that were too long (Limits(kept_chars=0) keeps none)"
        for name, what in offered:
            if name in taken:
                raise _oops(self, f"two tools are named {name!r}: {taken[name]} and {what}; rename one")
            taken[name] = what
        check_hooks(self.hooks, f"agent {self.name!r}, hooks=")
        spec = None if self.output is None else output_spec(self.output, f"agent {self.name!r}, output=")
        object.__setattr__(self, "output_spec", spec)  # frozen: these three are computed from the rest
        object.__setattr__(self, "digest", _sha256(_form(self)))
        object.__setattr__(self, "lineage", _sha256([self.digest, *(child.agent.lineage for child in self.children)]))

    def __repr__(self) -> str:
        return f"<Agent {self.name}: {len(self.tools)} tools, {len(self.children)} children, {self.digest[:8]}>"


@attrs.frozen(eq=False)
class Child:
    """An agent that another may start, and how.

    Args:
        agent: which.
        background: its start returns at once, and its report comes as a message; else the call waits for the report.
        restart: after a crash: `permanent` and `transient` start it again, `temporary` does not.
        grace: seconds it has to finish when it is closed.
        budget: a part of the parent's budget that is held back for it; None shares the parent's.
    """

    agent: Agent
    background: bool = attrs.field(default=False, kw_only=True)
    restart: Restart = attrs.field(default="transient", kw_only=True)
    grace: float = attrs.field(default=30.0, kw_only=True)
    budget: Budget | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if not isinstance(self.agent, Agent):
            raise UsageError(f"Child(agent) takes an Agent; got {self.agent!r}")
        if self.restart not in RESTARTS:
            raise _oops(self.agent, f"restart= is one of {', '.join(RESTARTS)}; got {self.restart!r}")
        if not is_number(self.grace) or self.grace < 0:
            raise _oops(self.agent, f"grace= is seconds from 0; got {self.grace!r}")
        if not isinstance(self.background, bool):
            raise _oops(self.agent, f"background= is True or False; got {self.background!r}")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise _oops(self.agent, f"budget= is a Budget or None; got {self.budget!r}")

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.agent.name


def closure(agents: Iterable[Agent | Child]) -> Mapping[str, Agent]:
    """The registry of agents and all their children, by name.

    Raises:
        UsageError: two different agents share a name; one object, or equal specs, may stand twice.
    """
    given: object = agents
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UsageError(f"agents= takes a list of agents, such as [lead]; got {agents!r}")
    found: dict[str, Agent] = {}
    waiting = list(agents)
    while waiting:
        item = waiting.pop(0)
        agent = item.agent if isinstance(item, Child) else item
        if not isinstance(agent, Agent):
            raise UsageError(f"agents= takes agents; got {agent!r}")
        known = found.get(agent.name)
        if known is None:
            found[agent.name] = agent
            waiting += agent.children
        elif known is not agent and known.lineage != agent.lineage:
            raise UsageError(
                f"two different agents are named {agent.name!r}; a stored agent is brought back by its name,"
                " so rename one of them, or use one object in both places"
            )
    return types.MappingProxyType(found)


# -- the digest --------------------------------------------------------------------------------------------------

_AGENT_NAME: Final = re.compile(rf"(?!\s)[^/#\x00-\x1f\x7f]{{1,{MAX_NAME_CHARS}}}(?<!\s)")


def _sha256(form: object) -> str:
    return hashlib.sha256(msgspec.json.encode(form, order="sorted")).hexdigest()


def _form(agent: Agent) -> dict[str, object]:
    """What makes an agent another one: text and numbers only, no addresses."""
    return {
        "name": agent.name,
        "instructions": [agent.instructions.text, agent.instructions.version],
        "tools": [tool.digest_form() for tool in agent.tools],
        "children": [
            [child.name, child.background, child.restart, child.grace, _plain(child.budget)] for child in agent.children
        ],
        "model": [item if isinstance(item, str) else item.id for item in agent.model],
        "effort": agent.effort,
        "tier": agent.tier,
        "output": None if agent.output_spec is None else [agent.output_spec.name, _schema(agent.output_spec)],
        "hooks": None if agent.hooks is None else type(agent.hooks).__qualname__,
        "budget": _plain(agent.budget),
        "limits": _plain(agent.limits),
        "drain": [agent.drain.steer, agent.drain.send],
        "compaction": None if agent.compaction is None else _plain(agent.compaction),
    }


def _schema(spec: OutputSpec) -> str | None:
    return None if spec.offer is None else spec.offer.schema


def _plain(value: object) -> object:
    """An attrs value as names and text; of anything else its class."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if attrs.has(type(value)):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in attrs.fields(cast("type[attrs.AttrsInstance]", type(value)))
        }
    return str(value) if isinstance(value, Decimal) else type(value).__qualname__
