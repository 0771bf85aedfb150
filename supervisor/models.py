"""Models from what people write: an object, a string, or a list to fall back along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from actors.compaction import DEFAULT_COMPACTION, check_room
from actors.errors import UsageError
from actors.models.spec import parse_model

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.agent import Agent
    from actors.models.spec import ModelSpec
    from actors.ports import Model

WAYS_ON: Final = (
    "pass model= to open_supervisor (or to the Agent): model=Script({...}) needs no key;"
    " model='openai-chat:NAME@http://127.0.0.1:PORT/v1' asks a server of your own;"
    " model='openai-chat:NAME' asks OpenAI, with OPENAI_API_KEY set"
)


@final
class Models:
    """Resolves model strings, each once, so that equal strings are one model with one pool.

    Args:
        default: what agents ask that name no model.
        build: makes the model of a spec.
    """

    def __init__(
        self, default: str | Model | Sequence[str | Model] | None, build: Callable[[ModelSpec], Model]
    ) -> None:
        self._build = build
        self._made: dict[str, Model] = {}
        listed = () if default is None else tuple(default) if isinstance(default, list | tuple) else (default,)
        self.default: tuple[Model, ...] = tuple(self.resolve(item) for item in listed)

    def resolve(self, item: str | Model) -> Model:
        """The model of a string or object.

        Raises:
            UsageError: it is no model, or the string names none that can be asked.
        """
        if not isinstance(item, str):
            if not hasattr(item, "request"):
                raise UsageError(
                    f"model= is 'protocol:name', a model, or a list of them (tried in order); got {item!r}"
                )
            self._made[item.id] = item
            return item
        made = self._made.get(item)
        if made is None:
            made = self._made[item] = self._build(parse_model(item))
            self._made[made.id] = made
        return made

    def remember(self, agent: Agent) -> None:
        """Know the model objects of an agent by their ids, so that a message can choose them (SEL-1)."""
        for model in agent.model:
            if not isinstance(model, str):
                self._made[model.id] = model

    def check(self, agent: Agent) -> None:
        """Refuse an agent whose tree would have no model to ask.

        Raises:
            UsageError: it, or an agent below it, has no model; the message shows the ways on. Or its prompt alone is
                larger than where it would be compacted.
        """
        if not self.default and not agent.model:
            msg = f"agent {agent.name!r} has no model: {WAYS_ON}"
            raise UsageError(msg)
        models = [self.resolve(item) for item in agent.model] or self.default
        fixed = len(agent.instructions.text) + sum(len(t.offer.schema) + len(t.offer.description) for t in agent.tools)
        check_room(agent.name, agent.compaction or DEFAULT_COMPACTION, fixed, models[0].context_window)
        for child in agent.children:
            self.check(child.agent)
