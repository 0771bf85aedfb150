"""The model of a life: what it answers is thrown for each request of each agent, and what it is asked is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from actors import Script, call
from actors.ids import tree_of
from actors.models.script import broken, hang, malformed, overflow, overloaded, rejected, thought
from actors.ports import Response
from actors.transcript import ResponseRecord, ResultRecord, ResultStatus, Stop, problems
from supervisor.life import read_conversation
from tests.life.world import HOWS, MOST_CHILDREN, ancestors

if TYPE_CHECKING:
    import random

    from actors.ports import Emit, Model, ModelRequest
    from actors.transcript import CallBlock
    from tests.life.faults import LifeStore
    from tests.life.world import World

WINDOW_TOKENS: Final = 3_000
_LONG: Final = "so it goes on and on; " * 60


@final
class Player:
    """A model of one process.

    Args:
        apart: conversations of other models are not for it (SEL-2).
    """

    def __init__(self, world: World, store: LifeStore, process: int, name: str, *, apart: bool = False) -> None:
        self._world = world
        self._store = store
        self._process = process
        self._apart = apart
        slow = world.dice("latency").choice((0.0, 0.0, 0.3, 2.0))
        self._script = Script(
            dict.fromkeys(world.registry, self._step),
            name=name,
            latency_s=(0, slow),
            delta_chars=200,
            seed=world.dice("stream").randrange(1_000),
        )
        self.id, self.name, self.free = f"script:{name}", name, False
        self.context_window = WINDOW_TOKENS if world.dice("window").random() < 0.4 else None

    def compatible_with(self, other: Model) -> bool:
        """Whether a conversation can go on from one to the other."""
        return not self._apart or other.id == self.id

    async def request(self, request: ModelRequest, emit: Emit) -> Response:
        """Check what is asked, and answer."""
        self._world.trace.count("requests")
        self._world.asked[request.agent] += 1
        if not self._store.dead and not self._store.runs(tree_of(request.agent)):
            self._world.problems.append(f"SUP-6: p{self._process} asks for {request.agent}, and knows that it lost it")
        await self._check(request)
        answer = await self._script.request(request, emit)
        if not self._store.dead:
            self._world.answered += 1
        return answer

    async def _check(self, request: ModelRequest) -> None:
        """Invariants 21 and 22: it is a valid conversation, and the one that is stored."""
        window = tuple(request.window)
        if request.purpose != "turn" or self._store.dead:
            return
        found = [f"21: {request.agent} is asked with {problem}" for problem in problems(window)]
        stored = await self._store.bare.load_agent(request.agent)
        assert stored is not None, "an agent that asks is stored"
        kept = tuple((await read_conversation(self._store.bare, stored.row)).window())
        owner = self._world.history.owner(tree_of(request.agent))  # another may have taken it since this was asked
        if stored.row.open is not None and owner == self._process and window != kept:
            found.append(f"22: {request.agent} is asked with a conversation that is not the stored one")
        self._world.problems += found

    # -- answers ---------------------------------------------------------------------------------------------------

    def _step(self, request: ModelRequest) -> object:
        world = self._world
        number = world.asked[request.agent]
        dice = world.dice(f"model:{request.agent}:{number}")
        step = self._drawn(request, dice)
        world.trace.say(f"p{self._process} {request.agent} request {number} is answered {_short(step)}")
        return step

    def _drawn(self, request: ModelRequest, dice: random.Random) -> object:
        if request.purpose != "turn":
            return self._summary(dice)
        answers = [offer.name for offer in request.tools if offer.name.startswith("answer_")]
        if answers and dice.random() < 0.7:
            return call(dice.choice(answers), answer="because")
        if self._world.spent:
            return f"done {self._world.asked[request.agent]}"
        lost = _unknown(request)
        if lost is not None and dice.random() < 0.6:  # what nobody saw the end of is asked for again
            self._world.trace.count("unknown calls asked for again")
            return [call.raw(lost.name, lost.arguments)]
        names = [offer.name for offer in request.tools if offer.name == "hire" or offer.name in self._world.registry]
        if names and self._world.stopped and dice.random() < 0.3:  # whom it comes back to was not there before
            return [self._call(dice.choice(names), request.agent, dice)]
        draw = dice.random()
        if draw < 0.45 and request.tools and request.tool_choice != "none":
            return self._calls(request, dice)
        if draw < 0.75:
            return dice.choice(("fine", (thought("hm"), "fine"), _LONG, ("one", "two"), "fine"))
        return self._odd(dice) if draw < 0.93 else "fine"

    def _summary(self, dice: random.Random) -> object:
        self._world.trace.count("summaries")
        if self._world.healed:
            return "in short"
        return dice.choice(("in short", "in short", "in short", broken(), rejected(), hang()))

    def _odd(self, dice: random.Random) -> object:
        """Whatever a provider may do instead of an answer."""
        odd = {
            "overloaded": overloaded(retry_after=dice.random()),
            "broken": broken(),
            "cut": ("half of", broken()),
            "cut call": (call("act", how="quick", n=1), broken()),
            "rejected": rejected(),
            "malformed": malformed(),
            "overflow": overflow(),
            "hang": ("half", hang()),
            "empty": Response((), Stop.END_TURN),
            "cut by length": Response((), Stop.MAX_TOKENS),
            "not json": [call.raw("act", "{nonsense")],
            "unknown tool": [call("nothing", n=1)],
            "wrong arguments": [call("act", wrong=1), call("look", how=7, n="x")],
            "one id twice": [call("act", how="quick", n=8).known_as("x"), call("look", how="quick", n=9).known_as("x")],
        }
        how = dice.choice(tuple(odd))
        self._world.trace.count(f"model {how}")
        return odd[how]

    def _calls(self, request: ModelRequest, dice: random.Random) -> list[object]:
        names = [offer.name for offer in request.tools]
        chosen = [dice.choice(names) for _ in range(dice.choice((1, 1, 2, 3)))]
        return [self._call(name, request.agent, dice) for name in chosen]

    def _call(self, name: str, agent: str, dice: random.Random) -> object:
        world = self._world
        if name.startswith("answer_"):
            return call(name, answer="because")
        if name in world.registry:
            if len(world.paths) >= MOST_CHILDREN:
                return "no more of them"
            world.trace.count("child tool")
            return call(name, task="help")
        match name:
            case "tell":
                return call("tell", path=dice.choice(world.paths))
            case "question":
                above = ancestors(agent)
                return call("question", path=dice.choice(above or tuple(world.paths)))
            case "hire":
                below = [child.name for child in world.registry[_name(agent)].children] or [_name(agent)]
                return call("hire", name=dice.choice(below), background=dice.random() < 0.5, wait=dice.random() < 0.5)
            case _:
                return call(name, how=dice.choice(HOWS), n=dice.randrange(4))


def _unknown(request: ModelRequest) -> CallBlock | None:
    """The last call whose end is unknown, where its tool is still offered."""
    unknown: set[str] = set()
    for record in reversed(request.window):
        if isinstance(record, ResultRecord) and record.status is ResultStatus.UNKNOWN:
            unknown.add(record.call)
        elif unknown and isinstance(record, ResponseRecord):
            block = next((block for block in record.calls if block.id in unknown), None)
            if block is not None and any(offer.name == block.name for offer in request.tools):
                return block
    return None


def _name(agent: str) -> str:
    return agent.rpartition("/")[2].partition("#")[0]


def _short(step: object) -> str:
    items = step if isinstance(step, list | tuple) else (step,)
    return "; ".join(
        f"{one.name}{one.arguments}" if hasattr(one, "arguments") else f"{type(one).__name__} {str(one)[:60]}"
        for one in items
    )
