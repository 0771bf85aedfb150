"""Mutants of approvals in the turn's core: each breaks TOL-12, TOL-3 or BUD-6, and a test must fail for it."""

from __future__ import annotations

from place import Mutant  # type: ignore[import-not-found]  # its folder is on the path: run as a script

APPROVING, PARKING, RECOVERING = "actors/approving.py", "actors/parking.py", "actors/recovering.py"
POISON = "actors/poison.py"
BATCH, BATCHING, CUTTING = "actors/batch.py", "actors/batching.py", "actors/cutting.py"

MUTANTS = (
    # -- who is asked
    Mutant(
        "TOL-12 nobody is asked", APPROVING, "return TOOL if call.tool.needs_approval(", "return None if (lambda _: 1)("
    ),
    Mutant("TOL-12 a call that waits is planned", APPROVING, "state=CallState.AWAITING, asking", "asking"),
    Mutant("TOL-12 a flood of requests", APPROVING, "if waiting > state.spec.limits.approvals:", "if False:"),
    Mutant("TOL-12 one request too few", APPROVING, "if waiting > state.spec", "if waiting >= state.spec"),
    Mutant(
        "TOL-12 the tool's deadline is ignored",
        APPROVING,
        "wait = tool.approve_timeout_s if tool.approve_timeout_s is not None else limits.approve_s",
        "wait = limits.approve_s",
    ),
    Mutant("TOL-12 nothing expires", APPROVING, "expires = None if wait is None else", "expires = None if True else"),
    Mutant(
        "TOL-12 a call without a row runs",
        APPROVING,
        "(row is None and tool.needs_approval(",
        "(False and tool.needs_approval(",
    ),
    Mutant(
        "TOL-12 nobody hears of a request", APPROVING, "and call.state is CallState.AWAITING\n    )", "and False\n    )"
    ),
    # -- what is bound
    Mutant(
        "TOL-12 another tool runs",
        APPROVING,
        "None if call.tool is None or not bound(call) else",
        "None if call.tool is None else",
    ),
    Mutant(
        "TOL-12 the version is not bound", APPROVING, "[block.id, tool.name, tool.version,", "[block.id, tool.name,"
    ),
    Mutant(
        "TOL-12 arguments are taken from memory",
        APPROVING,
        "state=CallState.PLANNED, arguments=parsed.arguments, decided=True",
        "state=CallState.PLANNED, decided=True",
    ),
    Mutant(
        "TOL-12 approved, then changed, then restarted",
        APPROVING,
        "and not bound(call)\n        else call",
        "and False\n        else call",
    ),
    # -- decisions
    Mutant("TOL-12 a denial approves", APPROVING, "if decision.verdict is not Verdict.APPROVED:", "if False:"),
    Mutant(
        "TOL-12 expiry approves",
        APPROVING,
        "if decision.verdict is not Verdict.APPROVED:",
        "if decision.verdict is Verdict.DENIED:",
    ),
    Mutant("TOL-12 the message is dropped", APPROVING, "if decision.message else DENIED", "if False else DENIED"),
    Mutant(
        "TOL-12 the decision is not claimed",
        PARKING,
        "(Claim(state.row.agent, tuple(claimed), turn), *rows_of",
        "(*(), *rows_of",
    ),
    Mutant("TOL-12 the later decision counts", PARKING, "and envelope.target not in found:", "and True:"),
    Mutant("TOL-12 decided, and not written", PARKING, "turn), *rows_of(state, changed))", "turn),)"),
    Mutant(
        "TOL-12 decided, and not told",
        PARKING,
        "Step(state, rows, (*tells, *starting(started)))",
        "Step(state, rows, starting(started))",
    ),
    Mutant("TOL-12 approved, and not started", PARKING, "(*tells, *starting(started)))", "tuple(tells))"),
    Mutant(
        "TOL-12 out of place", PARKING, "    if state.phase is not Phase.RUNNING:\n        return Step(state)\n", ""
    ),
    Mutant("TOL-12 a stray decision unparks", PARKING, "if idle(state) else Step(state)", "if False else Step(state)"),
    Mutant(
        "CLS-5 starts while it leaves",
        PARKING,
        "    if not state.suspending:\n        start_more",
        "    if True:\n        start_more",
    ),
    # -- parking
    Mutant("TOL-12 parked, and not owed", PARKING, "suspended=APPROVAL, owes=True", "suspended=APPROVAL, owes=False"),
    Mutant(
        "TOL-12 parked, and not in the store",
        PARKING,
        "ending.flush(state, now, suspended=APPROVAL, owes=True)",
        "ending.flush(state, now)",
    ),
    Mutant("TOL-12 parked, and nobody told", PARKING, "reason=APPROVAL, told=told", "reason=APPROVAL"),
    Mutant(
        "CLS-5 parked while it leaves",
        PARKING,
        "    if state.suspending:\n        commit",
        "    if False:\n        commit",
    ),
    Mutant(
        "TOL-12 rows of the parked batch are lost",
        PARKING,
        "(*rows, *commit), records, before, reason",
        "commit, records, before, reason",
    ),
    Mutant("TOL-12 recovery does not park", RECOVERING, "if parking.idle(state) and not event.more:", "if False:"),
    Mutant(
        "TOL-12 a decision comes to a parked turn",
        RECOVERING,
        "if parking.idle(state) and not event.more:",
        "if parking.idle(state):",
    ),
    Mutant(
        "CON-6 parking counts as a crash",
        POISON,
        "row.open is not None and row.suspended is None",
        "row.open is not None",
    ),
    # -- aborts and steers
    Mutant(
        "ABT-3 what waits is left open",
        BATCH,
        "is CallState.PLANNED or call.state is CallState.AWAITING:",
        "is CallState.PLANNED:",
    ),
    Mutant("CON-7 a steer does not deny", CUTTING, "            returned = approving.steered(turn, returned)\n", ""),
    Mutant(
        "TOL-12 a steer's denial is not told", CUTTING, "            actions += approving.steered_tells(returned)\n", ""
    ),
    Mutant(
        "TOL-12 no end of a request that is withdrawn",
        BATCHING,
        "if call.asking is not None and not call.decided:",
        "if False:",
    ),
    Mutant(
        "TOL-12 two ends of a request",
        BATCHING,
        "if call.asking is not None and not call.decided:",
        "if call.asking is not None:",
    ),
    # -- repeats
    Mutant("TOL-3 a repeat is not asked about", APPROVING, "        return REPEAT\n", "        return None\n"),
    Mutant("TOL-3 everything is a repeat", APPROVING, "in {like for like, _ in state.unknown}:", "is not None:"),
    Mutant("TOL-3 unknown is forgotten", APPROVING, "if row.state is CallState.UNKNOWN)", "if False)"),
    Mutant("TOL-3 the row looks settled", BATCH, "        state = CallState.UNKNOWN\n", "        pass\n"),
    Mutant(
        "TOL-3 asked again and again",
        BATCHING,
        "    if state.unknown:\n        ids",
        "    if False:\n        ids",
    ),
    Mutant("TOL-3 a denial ends the doubt", BATCHING, "and call.result.status in _ENDED", "and True"),
)
