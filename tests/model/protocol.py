"""The protocol between a store, its owners and the world outside, as a finite set of states and the steps between them.

One tree with one agent; messages, a batch of calls, an abort and a close; several owners, each of which may be stopped,
superseded or killed between any two steps. There is no clock: a lease may run out at any moment, so that nothing rests
on one. A commit is one step, all or none; what it requires of the store (its owner's epoch, the row as it was) is
checked in that step, because the store checks it in that transaction.

`Rules` names each requirement. A mutant is the protocol without one of them, and the search must find what that breaks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

# Messages: unsent, queued, held, taken by the open turn, answered, dead, withdrawn, refused.
UNSENT, QUEUED, HELD, TAKEN, ANSWERED, DEAD, WITHDRAWN, REFUSED = "-qhtadwr"
# Calls: not asked for, planned, waiting for a person, started, settled, unknown, cut off by an abort, denied.
NONE, PLANNED, AWAITING, STARTED, SETTLED, UNKNOWN, CUT, DENIED = "npwsduax"
ENDED = frozenset({SETTLED, UNKNOWN, CUT, DENIED})
# An agent: open, closing, closed.
OPEN, CLOSING, CLOSED = "ocx"
# A turn: none is open, the first request is owed, its batch runs, the request for the answer is owed.
REST, FIRST, BATCH, LAST = range(4)
# What an owner does: nothing, it has the epoch and must recover, it decides, it waits for the model, it has to reread.
IDLE, OWNS, LOOP, ASKED, REREAD = "iolqr"


@attrs.frozen
class World:
    """How much there is of everything.

    Attributes:
        lanes: of each message, `send` or `steer`.
        calls: of the batch: `once`, `idempotent`, or `guarded` (once, and a person is asked first).
        owners, crashes, ambiguous: processes; how often one is killed; how many commits end in an error though applied.
        takeovers: how often a tree is taken from an owner that lives; from a dead one it may be at any time.
        abort, close, withdraw: whether somebody asks for it.
        tries: recoveries of one turn, before it is given up as poison.
    """

    lanes: tuple[str, ...] = ("send", "send")
    calls: tuple[str, ...] = ("once",)
    owners: int = 2
    crashes: int = 1
    takeovers: int = 1
    ambiguous: int = 0
    abort: bool = False
    close: bool = False
    withdraw: bool = False
    tries: int = 3


@attrs.frozen
class Rules:
    """What the protocol requires; each is one sentence, and false in one mutant."""

    start_is_fenced: bool = True
    start_is_recorded_first: bool = True
    start_requires_planned: bool = True
    start_waits_for_approval: bool = True
    claim_requires_queued: bool = True
    claim_is_fenced: bool = True
    settle_is_fenced: bool = True
    settle_requires_started: bool = True
    response_is_fenced: bool = True
    recovery_leaves_once_calls: bool = True
    recovery_charges_lost_requests: bool = True
    recovery_counts_before_work: bool = True
    poison_buries_what_was_taken: bool = True
    abort_settles_planned_calls: bool = True
    abort_ends_the_turn: bool = True
    close_drains: bool = True
    closing_refuses: bool = True
    an_unknown_commit_is_reread: bool = True
    retry_is_known_by_its_key: bool = True


class Owner(NamedTuple):
    """A process. `running`: (turn, call) whose body was entered or is about to be; `ran`: those that returned."""

    does: str = IDLE
    epoch: int = 0
    running: tuple[tuple[int, int], ...] = ()
    ran: tuple[tuple[int, int], ...] = ()
    chosen: tuple[int, ...] = ()


class State(NamedTuple):
    """The store, the owners, and what only an observer sees.

    Seen by the observer: `effects`, how often each call's body ran, by turn; `asked`, requests sent; `answers` and
    `copies` of each message; `taken_up`, how often the open turn was recovered; `wrong`, what a step did wrong.
    """

    owners: tuple[Owner, ...]
    messages: tuple[str, ...]
    effects: tuple[tuple[int, ...], ...] = ()
    calls: tuple[str, ...] = ()
    answers: tuple[int, ...] = ()
    copies: tuple[int, ...] = ()
    epoch: int = 0
    life: str = OPEN
    turn: int = REST
    turns: int = 0
    tries: int = 0
    taken_up: int = 0
    approved: frozenset[int] = frozenset()
    asked: int = 0
    charged: int = 0
    held: int = 0
    abort: int = 0
    crashes: int = 0
    ambiguous: int = 0
    takeovers: int = 0
    wrong: str = ""


def begin(world: World) -> State:
    """Nothing has happened yet."""
    size = len(world.lanes)
    return State((Owner(),) * world.owners, (UNSENT,) * size, answers=(0,) * size, copies=(0,) * size)


def put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    """The tuple with one value replaced."""
    return (*values[:at], value, *values[at + 1 :])


class Protocol:
    """All steps that can follow a state, each with its name."""

    def __init__(self, world: World, rules: Rules | None = None) -> None:
        self.world = world
        self.rules = rules or Rules()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """Every step that any process, person or fault can take now."""
        yield from self._outside(state)
        for number, owner in enumerate(state.owners):
            yield from self._owner(state, number, owner)

    # -- people and senders ------------------------------------------------------------------------------------------

    def _outside(self, state: State) -> Iterator[tuple[str, State]]:
        world, rules = self.world, self.rules
        for at, message in enumerate(state.messages):
            if message == UNSENT:
                takes = state.life == OPEN or not rules.closing_refuses
                sent = state._replace(messages=put(state.messages, at, QUEUED if takes else REFUSED))
                yield f"send {at}", _copied(sent, at) if takes else sent
                if takes and state.ambiguous < world.ambiguous:  # written, and the sender hears of a failure
                    lost = _copied(sent, at)._replace(ambiguous=state.ambiguous + 1)
                    yield (
                        f"send {at}, answer lost, again",
                        lost if rules.retry_is_known_by_its_key else _copied(lost, at),
                    )
            elif message == QUEUED and world.withdraw:
                yield f"withdraw {at}", state._replace(messages=put(state.messages, at, WITHDRAWN))
        for at, call in enumerate(state.calls):
            if call == AWAITING:
                approved = state._replace(calls=put(state.calls, at, PLANNED), approved=state.approved | {at})
                yield f"approve {at}", approved
                yield f"deny {at}", state._replace(calls=put(state.calls, at, DENIED))
        if world.abort and not state.abort:
            yield "ask to abort", state._replace(abort=1)
        if world.close and state.life == OPEN:
            yield "ask to close", state._replace(life=CLOSING)

    # -- owners ------------------------------------------------------------------------------------------------------

    def _owner(self, state: State, number: int, owner: Owner) -> Iterator[tuple[str, State]]:
        world = self.world
        if state.crashes < world.crashes and owner != Owner():
            dead = state._replace(owners=put(state.owners, number, Owner()), crashes=state.crashes + 1)
            yield f"{number} is killed", dead
        yield from self._bodies(state, number, owner)
        if owner.does == IDLE:
            alone = all(other.does == IDLE or other.epoch != state.epoch for other in state.owners)
            if not owner.running and (alone or state.takeovers < world.takeovers):
                mine = Owner(OWNS, state.epoch + 1)
                took = state._replace(epoch=state.epoch + 1, takeovers=state.takeovers + (not alone))
                yield f"{number} acquires", self._does(took, number, mine)
            return
        if owner.epoch != state.epoch:  # it learns of it at its next commit, at the latest
            yield f"{number} is fenced off", self._does(state, number, owner._replace(does=IDLE, chosen=()))
        for name, after in self._commits(state, number, owner):
            yield f"{number} {name}", after
            if state.ambiguous < world.ambiguous and after.epoch == state.epoch:
                # applied, and its owner hears of a failure: all it kept in memory is as before
                then = owner._replace(does=REREAD if self.rules.an_unknown_commit_is_reread else owner.does)
                lost = after._replace(owners=put(state.owners, number, then), ambiguous=state.ambiguous + 1)
                yield f"{number} {name}, answer lost", lost

    def _commits(self, state: State, number: int, owner: Owner) -> Iterator[tuple[str, State]]:
        """What an owner writes; each is one transaction."""
        fenced = owner.epoch == state.epoch
        match owner.does:
            case "o" if fenced:
                yield "recovers", self._recovered(state, number, owner)
            case "r" if fenced:  # as a recovery, but that this owner knows what it runs itself
                yield "rereads", self._recovered(state, number, owner, counts=False)
            case "l":
                yield from self._decisions(state, number, owner, fenced=fenced)
            case "q":
                if fenced or not self.rules.response_is_fenced:
                    yield "has the response", self._responded(state, number, owner)
            case _:
                pass

    def _decisions(self, state: State, number: int, owner: Owner, *, fenced: bool) -> Iterator[tuple[str, State]]:
        rules = self.rules
        if state.abort == 1 and fenced:
            yield "aborts", self._aborted(state)
            return
        if state.turn == REST:
            yield from self._at_rest(state, number, owner, fenced=fenced)
        elif state.turn in {FIRST, LAST} and fenced:
            asked = state._replace(asked=state.asked + 1, held=1)
            yield "sends the request", self._does(asked, number, owner._replace(does=ASKED))
        elif state.turn == BATCH:
            yield from self._batch(state, number, owner, fenced=fenced)
        if not rules.start_is_recorded_first or state.turn == BATCH:
            yield from self._settles(state, number, owner, fenced=fenced)

    def _at_rest(self, state: State, number: int, owner: Owner, *, fenced: bool) -> Iterator[tuple[str, State]]:
        rules = self.rules
        queued = tuple([at for at, message in enumerate(state.messages) if message == QUEUED])
        if queued and (fenced or not rules.claim_is_fenced):
            if rules.claim_requires_queued:
                yield f"claims {queued[0]}", self._claimed(state, queued[:1])
            elif not owner.chosen:
                yield f"reads {queued[0]}", self._does(state, number, owner._replace(chosen=queued[:1]))
        if owner.chosen:  # only without the requirement: read before, written now
            cleared = self._does(state, number, owner._replace(chosen=()))
            yield f"claims {owner.chosen[0]} that it read", self._claimed(cleared, owner.chosen)
        if state.life == CLOSING and fenced:
            left = QUEUED if not rules.close_drains else DEAD
            if not queued:
                yield "closes", state._replace(life=CLOSED)
            else:  # past the grace
                messages = tuple([left if message in {QUEUED, HELD} else message for message in state.messages])
                yield "closes past its grace", state._replace(life=CLOSED, messages=messages)

    def _batch(self, state: State, number: int, owner: Owner, *, fenced: bool) -> Iterator[tuple[str, State]]:
        rules = self.rules
        for at, call in enumerate(state.calls):
            startable = call == PLANNED or (call == AWAITING and not rules.start_waits_for_approval)
            if not rules.start_requires_planned:
                startable = startable or call == STARTED
            if not startable or not (fenced or not rules.start_is_fenced):
                continue
            this = (state.turns, at)
            running = owner._replace(running=(*owner.running, this)) if this not in owner.running else owner
            wrong = state.wrong
            if not fenced:
                wrong = "an owner that was fenced off started a call"
            if call == AWAITING:
                wrong = "a call ran without approval"
            if state.abort == 2:
                wrong = "a call started after the abort of its turn"
            if rules.start_is_recorded_first:
                calls = put(state.calls, at, STARTED)
                yield f"starts {at}", self._does(state._replace(calls=calls, wrong=wrong), number, running)
            elif this not in owner.running and this not in owner.ran:
                yield f"starts {at} unrecorded", self._does(state._replace(wrong=wrong), number, running)
        if fenced and all(call in ENDED for call in state.calls):
            yield from self._next(state)

    def _settles(self, state: State, number: int, owner: Owner, *, fenced: bool) -> Iterator[tuple[str, State]]:
        rules = self.rules
        for turn, at in owner.ran:
            if turn != state.turns or at >= len(state.calls) or not (fenced or not rules.settle_is_fenced):
                continue
            call = state.calls[at]
            started = STARTED if rules.start_is_recorded_first else PLANNED
            if call != started and (rules.settle_requires_started or call not in ENDED):
                continue
            wrong = "what had ended as unknown was settled again" if call == UNKNOWN else state.wrong
            left = owner._replace(ran=tuple([one for one in owner.ran if one != (turn, at)]))
            after = state._replace(calls=put(state.calls, at, SETTLED), wrong=wrong)
            yield f"settles {at}", self._does(after, number, left)

    def _next(self, state: State) -> Iterator[tuple[str, State]]:
        """The batch is over: the request for the answer is owed, and steering enters with the results."""
        after = state._replace(turn=LAST)
        steers = [
            at for at, message in enumerate(state.messages) if message == QUEUED and self.world.lanes[at] == "steer"
        ]
        yield "goes on", self._taken(after, tuple(steers))

    def _claimed(self, state: State, which: tuple[int, ...]) -> State:
        turned = state._replace(
            turn=FIRST, turns=state.turns + 1, tries=0, taken_up=0, calls=(), approved=frozenset(),
            effects=(*state.effects, (0,) * len(self.world.calls)), abort=0 if state.abort == 2 else state.abort,
        )  # fmt: skip
        if state.turn != REST:
            turned = turned._replace(wrong="two turns of one agent were open")
        return self._taken(turned, which)

    def _taken(self, state: State, which: tuple[int, ...]) -> State:
        messages = state.messages
        wrong = state.wrong
        for at in which:
            if messages[at] != QUEUED:
                wrong = "a message was claimed that did not wait"
            messages = put(messages, at, TAKEN)
        return state._replace(messages=messages, wrong=wrong)

    def _responded(self, state: State, number: int, owner: Owner) -> State:
        """The response, what it cost, and all it asked for: one commit."""
        state = self._does(state, number, owner._replace(does=LOOP))
        if state.turn == REST:
            return state._replace(wrong="a response was written where no turn is open")
        state = state._replace(charged=state.charged + state.held, held=0)
        if state.turn == FIRST and self.world.calls:
            calls = tuple([AWAITING if kind == "guarded" else PLANNED for kind in self.world.calls])
            return state._replace(turn=BATCH, calls=calls)
        return self._over(state, ANSWERED)

    def _over(self, state: State, to: str) -> State:
        """The turn ends: whoever waits for one of its messages is answered."""
        answers = tuple([n + (message == TAKEN) for n, message in zip(state.answers, state.messages, strict=True)])
        messages = tuple([to if message == TAKEN else message for message in state.messages])
        return state._replace(turn=REST, answers=answers, messages=messages, tries=0, taken_up=0)

    def _aborted(self, state: State) -> State:
        rules = self.rules
        if state.turn == REST:
            return state._replace(abort=3)
        before = {PLANNED: CUT, AWAITING: CUT} if rules.abort_settles_planned_calls else {}
        calls = tuple([CUT if call == STARTED else before.get(call, call) for call in state.calls])
        messages = tuple([HELD if message == QUEUED else message for message in state.messages])
        state = state._replace(calls=calls, abort=2, charged=state.charged + state.held, held=0)
        if not rules.abort_ends_the_turn:
            return state._replace(messages=messages)
        return self._over(state._replace(messages=messages), ANSWERED)

    def _recovered(self, state: State, number: int, owner: Owner, *, counts: bool = True) -> State:
        """An open turn as its next owner finds it."""
        rules = self.rules
        state = self._does(state, number, owner._replace(does=LOOP))
        charged = state.charged + (state.held if rules.recovery_charges_lost_requests else 0)
        state = state._replace(charged=charged, held=0)
        if state.turn == REST:
            return state
        if counts:
            state = state._replace(tries=state.tries + rules.recovery_counts_before_work, taken_up=state.taken_up + 1)
            if state.taken_up > self.world.tries:
                return state._replace(wrong="a turn was taken up more often than it may be")
        if state.tries >= self.world.tries:
            ended = {PLANNED: CUT, AWAITING: CUT, STARTED: UNKNOWN}
            state = state._replace(calls=tuple([ended.get(call, call) for call in state.calls]))
            return self._over(state, DEAD if rules.poison_buries_what_was_taken else QUEUED)
        mine = {at for turn, at in (*owner.running, *owner.ran) if turn == state.turns}
        again = ("idempotent",) if rules.recovery_leaves_once_calls else ("idempotent", "once", "guarded")
        calls = []
        for at, (call, kind) in enumerate(zip(state.calls, self.world.calls, strict=False)):
            lost = call == STARTED and at not in mine
            calls.append(call if not lost else PLANNED if kind in again else UNKNOWN)
        return state._replace(calls=tuple(calls))

    # -- bodies of tools ---------------------------------------------------------------------------------------------

    def _bodies(self, state: State, number: int, owner: Owner) -> Iterator[tuple[str, State]]:
        """A tool's body runs in the world outside: no fence reaches it, and its owner may have lost the tree."""
        for one in owner.running:
            turn, at = one
            effects = put(state.effects, turn - 1, put(state.effects[turn - 1], at, state.effects[turn - 1][at] + 1))
            left = tuple([other for other in owner.running if other != one])
            ran = owner._replace(running=left, ran=(*owner.ran, one) if owner.does != IDLE else owner.ran)
            yield f"{number} runs {at}", self._does(state._replace(effects=effects), number, ran)

    @staticmethod
    def _does(state: State, number: int, owner: Owner) -> State:
        return state._replace(owners=put(state.owners, number, owner))


def _copied(state: State, at: int) -> State:
    """One more row of this message; with a key there is never a second."""
    return state._replace(copies=put(state.copies, at, min(2, state.copies[at] + 1)))


# -- what must hold --------------------------------------------------------------------------------------------------


def broken(world: World, state: State) -> str:
    """What is wrong with a state, or an empty text."""
    if state.wrong:
        return state.wrong
    for turn in state.effects:
        for count, kind in zip(turn, world.calls, strict=True):
            if count > 1 and kind != "idempotent":
                return "a call that may run once ran twice"
    if any(count > 1 for count in state.copies):
        return "a message stands there twice"
    if any(count > 1 for count in state.answers):
        return "a message was answered twice"
    if state.turn != REST or (state.calls and state.turns):
        for at, call in enumerate(state.calls):
            if call == SETTLED and not state.effects[state.turns - 1][at]:
                return "a call was settled that had not run"
    if state.turn == REST and any(call not in ENDED for call in state.calls):
        return "a turn ended with a call that had no result"
    if state.turn == REST and TAKEN in state.messages:
        return "a message is in a turn, and none is open"
    if state.life == CLOSED and any(message in {QUEUED, HELD} for message in state.messages):
        return "a closed agent has a message that waits"
    if state.charged + state.held > state.asked:
        return "a request was charged twice"
    return ""


def at_rest(state: State) -> str:
    """Why a state is not one to rest in, or an empty text: then nothing is owed."""
    if state.turn != REST:
        return "a turn is open"
    if QUEUED in state.messages or UNSENT in state.messages:
        return "a message waits"
    if state.charged != state.asked:
        return "a request was never charged"
    return ""
