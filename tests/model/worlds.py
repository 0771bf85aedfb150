"""The worlds that the protocol is searched in, and its mutants, each with the world that shows what it breaks."""

from __future__ import annotations

from typing import Final

import attrs

from tests.model.protocol import Rules, World

WORLDS: Final = {
    "two messages": World(),
    "two calls, two crashes": World(lanes=("send",), calls=("once", "idempotent"), crashes=2),
    "approval": World(lanes=("send",), calls=("guarded", "once")),
    "steer and abort": World(lanes=("send", "steer"), abort=True),
    "close and withdraw": World(close=True, withdraw=True),
    "commits of unknown outcome": World(lanes=("send",), calls=("once", "guarded"), ambiguous=2),
    "poison": World(lanes=("send",), crashes=3, tries=2),
}
"""Small enough to be searched whole in seconds; each has all that its name says, and two owners with a takeover."""


@attrs.frozen
class Mutant:
    """The protocol without one requirement: `rules`, the world to search, and what is then found (part of it)."""

    rules: Rules
    world: str
    finds: str


MUTANTS: Final = {
    "an owner starts a call without being fenced": Mutant(
        Rules(start_is_fenced=False), "two messages", "fenced off started a call"
    ),
    "a body runs before its start is recorded": Mutant(
        Rules(start_is_recorded_first=False), "two messages", "ran twice"
    ),
    "a call is started without looking at its row": Mutant(
        Rules(start_requires_planned=False, start_is_fenced=False), "two messages", "started a call"
    ),
    "a call is started that was started": Mutant(Rules(start_requires_planned=False), "two messages", "ran twice"),
    "a call does not wait for its approval": Mutant(
        Rules(start_waits_for_approval=False), "approval", "without approval"
    ),
    "a claim reads first and writes later": Mutant(
        Rules(claim_requires_queued=False, claim_is_fenced=False), "two messages", "claimed that did not wait"
    ),
    "a claim is not fenced": Mutant(
        Rules(claim_is_fenced=False, claim_requires_queued=False), "close and withdraw", "claimed that did not wait"
    ),
    "a result is written without fence and without its row": Mutant(
        Rules(settle_is_fenced=False, settle_requires_started=False), "two messages", "settled again"
    ),
    "a response is written without fence": Mutant(Rules(response_is_fenced=False), "two messages", "had no result"),
    "recovery runs a once call again": Mutant(Rules(recovery_leaves_once_calls=False), "two messages", "ran twice"),
    "recovery forgets what a lost request held": Mutant(
        Rules(recovery_charges_lost_requests=False), "two messages", "comes to rest"
    ),
    "recovery does not count before it works": Mutant(Rules(recovery_counts_before_work=False), "poison", "more often"),
    "poison puts back what it had taken": Mutant(Rules(poison_buries_what_was_taken=False), "poison", "twice"),
    "an abort leaves planned calls": Mutant(
        Rules(abort_settles_planned_calls=False), "steer and abort", "had no result"
    ),
    "an abort does not end the turn": Mutant(
        Rules(abort_ends_the_turn=False, abort_settles_planned_calls=False), "steer and abort", "after the abort"
    ),
    "a close leaves what waits": Mutant(Rules(close_drains=False), "close and withdraw", "that waits"),
    "a closing agent accepts": Mutant(Rules(closing_refuses=False), "close and withdraw", "that waits"),
    "a commit of unknown outcome counts as failed": Mutant(
        Rules(an_unknown_commit_is_reread=False), "commits of unknown outcome", "had no result"
    ),
    "a message sent again has no key": Mutant(
        Rules(retry_is_known_by_its_key=False), "commits of unknown outcome", "twice"
    ),
}
