"""Mutants of the turn's core: each breaks a promise or an invariant, and a test must fail for it."""

from __future__ import annotations

from place import Mutant  # type: ignore[import-not-found]  # its folder is on the path: run as a script

TURN, ENDING, BATCH = "actors/turn.py", "actors/ending.py", "actors/batch.py"
EXHAUSTING = "actors/exhausting.py"
ANSWERING = "actors/answering.py"
BATCHING, CUTTING, ANSWERS = "actors/batching.py", "actors/cutting.py", "actors/answers.py"
COMPACTING, COMPACTION, SELECTING = "actors/compacting.py", "actors/compaction.py", "actors/selecting.py"
MAILBOX, PARKING = "actors/mailbox.py", "actors/parking.py"
POISON, STAGING, SETTLING = "actors/poison.py", "actors/staging.py", "actors/settling.py"
RECOVERING, BOUNDS = "actors/recovering.py", "actors/bounds.py"

MUTANTS = (
    # -- the conversation
    Mutant("CON-3 claim dropped", ENDING, "        claim = _claims(row, row.open, state.mail)\n", ""),
    Mutant("CON-4 consumed not noted", ENDING, '{"consumed": (*turn_open.consumed, *[', '{"consumed": (*(), *['),
    Mutant("CON-4 head not moved", ENDING, "    state.head += len(records)\n", ""),
    Mutant("CON-4 mail not recorded", ENDING, "else (*records, *taken)", "else records"),
    Mutant("TRN-2 note before mail", ENDING, "records[-1]) if state.note_last else", "records[-1]) if False else"),
    Mutant(
        "TRN-2 note not marked last",
        ENDING,
        "state.pending, state.note_last = (*state.pending, note), True",
        "state.pending = (*state.pending, note)",
    ),
    Mutant(
        "TRN-2 no failure note",
        ENDING,
        "state.pending, state.note_last = (*state.pending, note), True",
        "state.note_last = True",
    ),
    Mutant("TRN-5 reasoning after text", ANSWERS, "(*reasoning, *texts, *calls)", "(*texts, *reasoning, *calls)"),
    Mutant("TOL-5 duplicate id kept", ANSWERS, "if wire_id in seen:", "if False:"),
    Mutant("TOL-5 duplicate not told", ANSWERS, "twice.append(wire_id)", "pass"),
    Mutant("TRN-6 empty response kept", TURN, "    if reading.record.blocks:\n", "    if True:\n"),
    Mutant("TRN-6 empty text kept", ANSWERS, 'case TextBlock(text=""):', 'case TextBlock(text="never"):'),
    Mutant("TRN-6 cut response without blocks kept", CUTTING, "if record.blocks else ()", "if True else ()"),
    Mutant("TRN-8 half text dropped", ANSWERS, "    if half.strip():\n", "    if False:\n"),
    Mutant("TRN-8 half text not marked", ANSWERS, "TextBlock(half, half=True)", "TextBlock(half)"),
    Mutant("TRN-8 finished blocks dropped", ANSWERS, "    kept = blocks\n", "    kept = ()\n"),
    Mutant("TOL-1 cut calls without results", CUTTING, "(record, *batch.results(skipped))", "(record,)"),
    # -- calls
    Mutant("TOL-2 batch not committed with its rows", TURN, "(*commit, *rows_of(state, state.calls))", "commit"),
    Mutant(
        "TOL-3 effect before record: first starts", TURN, "*rows_of(state, state.calls))", "*rows_of(state, calls))"
    ),
    Mutant(
        "TOL-3 effect before record: later starts", TURN, "rows_of(state, (*ended, *started))", "rows_of(state, ended)"
    ),
    Mutant("TOL-4 results kept late", TURN, "rows_of(state, (*ended, *started))", "rows_of(state, started)"),
    Mutant("TOL-3 once runs again", BATCH, "call.tool.effect is Effect.ONCE", "False"),
    Mutant("TOL-3 pure does not run again", BATCH, "call.tool.effect is Effect.ONCE", "True"),
    Mutant(
        "TOL-3 a store call is on disk as started", BATCHING, "call.asking is not None or not _unseen(call)", "True"
    ),
    Mutant(
        "TOL-3 an approved store call is on disk as started", BATCHING, "if started else call", "if False else call"
    ),
    Mutant("TOL-3 staged writes lost", ENDING, "(*state.staged, *staging.land(state))", "state.staged"),
    Mutant("TOL-3 staged writes lost in a batch under way", TURN, "(*landing(state), *rows", "(*(), *rows"),
    Mutant(
        "TOL-3 staged writes of a cut batch lost",
        CUTTING,
        "        staging.keep(state, state.calls, event.outcomes)\n",
        "",
    ),
    Mutant("HOK-4 a call's store stays", BATCHING, "    if erased:\n", "    if False:\n"),
    Mutant("HOK-4 a run's store stays", SETTLING, "    if settles and state.spec.keeps:\n", "    if False:\n"),
    Mutant("HOK-4 an aborted run's store stays", ENDING, "    if state.spec.keeps:  # HOK-4\n", "    if False:\n"),
    Mutant(
        "HOK-4 a run that goes on is settled", SETTLING, "settles = event.waits <= len(state.mail)", "settles = True"
    ),
    Mutant("HOK-3 the settling hook's writes are lost", SETTLING, "*(state.beside or ())", "*()"),
    Mutant("HOK-3 they land though the run goes on", TURN, "        state.beside = None  #", "        #"),
    Mutant("TOL-3 a refused stage stops the turn", TURN, "refused(state, event) or commit", "commit"),
    Mutant("TOL-3 a refused stage is a good result", STAGING, "record.call in fault", "False"),
    Mutant("TOL-3 try not counted", BATCH, "tries=call.tries + 1", "tries=call.tries"),
    Mutant("TOL-3 unknown row erased", BATCHING, " and not _unknown(call)", ""),
    Mutant("TOL-3 recovery does not start again", RECOVERING, "*starting((*again, *started)))", "*starting(started))"),
    Mutant(
        "TOL-3 recovery not written",
        RECOVERING,
        "writes = (Put(state.row), *rows_of(state, changed))",
        "writes = (Put(state.row),)",
    ),
    Mutant(
        "TOL-4 results out of order",
        BATCHING,
        "results = batch.results(state.calls)",
        "results = batch.results(state.calls)[::-1]",
    ),
    Mutant("TOL-4 erase forgotten", ENDING, "[Erase(CallRow, (call,)) for call in state.settled]", "()"),
    Mutant(
        "TOL-4 erased again and again",
        ENDING,
        "state.pending = state.settled = state.mail =",
        "state.pending = state.mail =",
    ),
    Mutant("TOL-4 limit off by one", BATCH, "running < limit", "running <= limit"),
    Mutant(
        "TOL-4 running calls not counted",
        BATCH,
        "running = sum(call.state is CallState.STARTED for call in calls)",
        "running = 0",
    ),
    Mutant("TOL-4 exclusive does not wait", BATCH, "(call.exclusive and unfinished)", "False"),
    Mutant(
        "TOL-4 others do not wait for exclusive",
        BATCH,
        "        if call.exclusive:\n            break",
        "        if False:\n            break",
    ),
    Mutant("TOL-4 key order ignored", BATCH, "not busy.isdisjoint(call.keys)", "False"),
    Mutant(
        "TOL-4 settled calls hold their keys",
        BATCH,
        "        if call.state is CallState.SETTLED:\n            continue\n",
        "",
    ),
    Mutant("TOL-4 fatal ignored", BATCH, "if fatal else tuple(after)", "if False else tuple(after)"),
    Mutant("TOL-4 every failure fatal", BATCH, "is not None and call.tool.fatal\n", "is not None\n"),
    Mutant(
        "SUP-4 a fatal failure takes no children",
        BATCHING,
        "CancelCalls(running, batch.Why.FATAL)",
        "CancelCalls(running)",
    ),
    Mutant("SUP-4 a steer takes no children", CUTTING, "else _why(event)  # an abort", 'else ""  # an abort'),
    Mutant("SUP-4 an abort is given twice", CUTTING, '"" if event.reason is not None else', '"" if False else'),
    Mutant("TOL-6 unknown tool raises", BATCH, "toolbox.get(block.name)", "toolbox[block.name]"),
    Mutant("TOL-6 invalid call runs", BATCH, "    if block.invalid is not None:\n", "    if False:\n"),
    Mutant("TOL-6 truncated call runs", ANSWERS, 'invalid = "truncated"', "invalid = None"),
    Mutant("TOL-10 running calls not cancelled", CUTTING, "    if running:\n", "    if False:\n"),
    Mutant(
        "TOL-14 result of a call that does not run",
        TURN,
        "if not open_now.issuperset(",
        "if False and open_now.issuperset(",
    ),
    Mutant("trust of a result dropped", BATCH, "trust=outcome.trust, repaired", "repaired"),
    # -- boundaries
    Mutant(
        "CON-1 sends enter behind an answer",
        ANSWERING,
        "(), Phase.LOOKING\n    return Step(state, (), (*actions, Look(sends=False)))",
        "(), Phase.LOOKING\n    return Step(state, (), (*actions, Look(sends=True)))",
    ),
    Mutant("CON-1 sends enter behind a batch", BATCHING, "Look(sends=False)", "Look(sends=True)"),
    Mutant(
        "CON-1 sends enter in recovery", RECOVERING, "(began, Look(sends=not state.owed))", "(began, Look(sends=True))"
    ),
    Mutant(
        "CON-1 steer behind an answer forgotten",
        TURN,
        "    elif state.answer is not None:\n",
        "    if state.answer is not None:\n",
    ),
    Mutant("CON-1 steering does not go first", MAILBOX, "        if steers:\n", "        if steers and not sends:\n"),
    Mutant("CON-2 mode of sends ignored", MAILBOX, 'if drain.send == "all" else tuple', "if True else tuple"),
    Mutant(
        "CON-2 mode of steers ignored",
        MAILBOX,
        '_from_head(steers, singly) if drain.steer == "all" else',
        "_from_head(steers, singly) if True else",
    ),
    Mutant(
        "a typed message is not alone",
        MAILBOX,
        "if envelope.output is not None or",
        "if",
    ),
    Mutant("MAIL-1 lane not sorted", MAILBOX, "lane.insert(index, queued)", "lane.append(queued)"),
    Mutant("MAIL-3 a gap is not seen", MAILBOX, "seq > wanted", "False"),
    Mutant("MAIL-3 told again enters twice", MAILBOX, "seq < wanted", "False"),
    Mutant("MAIL-3 read anew loses", MAILBOX, "self.next_seq, self._ahead = next_seq, set()", "self._ahead = set()"),
    Mutant("MAIL-3 read anew still has a gap", MAILBOX, "= next_seq, set()", "= next_seq, ahead"),
    Mutant("MAIL-3 what was told is told again", MAILBOX, " and queued.seq not in ahead", ""),
    Mutant("read anew keeps holds", MAILBOX, "        self.held.clear()\n", ""),
    Mutant(
        "ABT-4 held message asks for a turn",
        MAILBOX,
        "        if not idle:  # the usual case",
        "        if True:  # the usual case",
    ),
    Mutant("ABT-4 release keeps the hold", MAILBOX, "self.held.difference_update(messages)", "pass"),
    Mutant("a removed message stays held", MAILBOX, "        self.held -= gone\n", ""),
    Mutant(
        "CON-3 conflict ends the turn", CUTTING, "isinstance(event.error, Conflict) and claiming", "False and claiming"
    ),
    Mutant("CON-3 conflicts without end", CUTTING, "and state.conflicts < CONFLICTS_MAX", ""),
    Mutant(
        "conflicts add up over claims",
        TURN,
        "state.conflicts, state.prepared = Phase.ASKING, True, None, 0, None",
        "state.prepared = Phase.ASKING, True, None, None",
    ),
    Mutant(
        "TRN-4 turn that finds nothing is an abort",
        ENDING,
        "error = Unfinished(f",
        "error = Aborted(f",
    ),
    Mutant(
        "CON-7 cut forgets what is owed",
        CUTTING,
        "(*actions, Look(sends=nothing_owed(state)))",
        "(*actions, Look(sends=True))",
    ),
    Mutant("TURN-2 wait loses what it settled", TURN, "commit if records else ()", "()"),
    Mutant(
        "TURN-3 cut forgets the ticket",
        CUTTING,
        "    state.ticket, state.waiting, state.mail, state.choosing = None",
        "    actions = []\n    state.ticket, state.waiting, state.mail, state.choosing = None",
    ),
    Mutant(
        "TURN-3 failed commit forgets the ticket",
        CUTTING,
        "    if running:\n",
        "    actions = [a for a in actions if not isinstance(a, Abandon)]\n    if running:\n",
    ),
    Mutant(
        "TURN-3 leaving forgets the ticket",
        ENDING,
        "(*before, *abandon, Over(reason, told))",
        "(*before, Over(reason, told))",
    ),
    Mutant(
        "CON-5 nothing is owed, and it asks",
        TURN,
        "    elif not state.owed:\n        return ending.nothing",
        "    elif False:\n        return ending.nothing",
    ),
    Mutant(
        "TURN-3 finish forgets the ticket", ENDING, "(*before, *abandon, Tell(TurnEnded", "(*before, Tell(TurnEnded"
    ),
    Mutant(
        "the estimate forgets results",
        ENDING,
        "return mail_bytes(state.mail) + sum([record_bytes(record) for record in state.pending])",
        "return mail_bytes(state.mail)",
    ),
    Mutant(
        "a hook's tools are forgotten",
        TURN,
        "    if state.ticket is None:  # with one",
        "    if True:  # with one",
    ),
    Mutant(
        "a failing turn takes nothing, without end",
        EXHAUSTING,
        "    if state.mail or not nothing_owed(state):\n",
        "    if True:\n",
    ),
    Mutant("an early failure is forgotten", TURN, "    if state.refused is not None:\n", "    if False:\n"),
    # -- ends
    Mutant("TRN-4 no TurnEnded", ENDING, 'Tell(TurnEnded, {"outcome": told}), ', ""),
    Mutant(
        "TRN-4 cut response without an end",
        CUTTING,
        "return (Tell(ResponseEnded, values), *settled",
        "return (*(), *settled",
    ),
    Mutant(
        "finish leaves the turn owed",
        ENDING,
        "flush(state, now, open=None, owes=False, suspended=None)",
        "flush(state, now, open=None, suspended=None)",
    ),
    Mutant(
        "ABT-1 abort does not end the turn",
        CUTTING,
        "    return ending.abort(state, event, tuple(actions))",
        "    state.phase = Phase.LOOKING\n    return Step(state, (), (*actions, Look(sends=False)))",
    ),
    Mutant("ABT-2 abort's message not claimed", ENDING, "if ids else ()", "if False else ()"),
    Mutant(
        "ABT-3 results that came are dropped",
        CUTTING,
        "batch.settle(state.calls, turn, event.outcomes, event.so_far)",
        "state.calls",
    ),
    Mutant(
        "ABT-3 abort waits: calls not cancelled",
        CUTTING,
        "actions += [CancelCalls(running, why), *settled",
        "actions += [*settled",
    ),
    Mutant(
        "ABT-3 skipped told as aborted",
        BATCH,
        "done = result(turn, call.block, ResultStatus.SKIPPED, f",
        "done = result(turn, call.block, ResultStatus.ABORTED, f",
    ),
    Mutant(
        "ABT-4 abort consumes chosen mail",
        CUTTING,
        "state.waiting, state.mail, state.choosing = None, False, (), None",
        "state.waiting, state.choosing = None, False, None",
    ),
    Mutant("CLS-5 leaving consumes chosen mail", ENDING, "    state.mail = ()\n    if not", "    if not"),
    Mutant(
        "CLS-5 leaving turn starts calls",
        TURN,
        "(batch.finished(calls) and not state.suspending)",
        "batch.finished(calls)",
    ),
    Mutant(
        "CLS-5 leaving turn starts its batch",
        TURN,
        "    if not state.suspending:\n        started = parking.start_more(state)\n    if not started",
        "    if True:\n        started = parking.start_more(state)\n    if not started",
    ),
    Mutant(
        "CLS-5 leaving turn goes on asking",
        TURN,
        '    if state.suspending:\n        return ending.suspend(state, event.now, "leaving")\n    if (over',
        "    if (over",
    ),
    Mutant("CLS-5 cost of an empty response lost", ENDING, "and not state.row.owes and error", "and error"),
    Mutant(
        "CLS-5 last results not kept",
        PARKING,
        "    if state.suspending:\n        commit, records = ending.flush(state, now)\n",
        "    if state.suspending:\n        commit, records = ending.flush(state, now)\n        rows = ()\n",
    ),
    Mutant("a waiting turn does not leave", TURN, "if state.phase is Phase.ADMITTING and state.waiting:", "if False:"),
    Mutant(
        "SUP-6 fenced told as store", CUTTING, '"fenced" if isinstance(event.error, Fenced) else "store"', '"store"'
    ),
    Mutant("ACC-6 report not sent", ENDING, "if state.spec.reports_to is not None:", "if False:"),
    Mutant("ACC-6 report takes no reserved place", ENDING, "reserved=True", "reserved=False"),
    # -- bounds
    Mutant(
        "TRN-7 model calls off by one",
        BOUNDS,
        "if made < state.spec.limits.model",
        "if made <= state.spec.limits.model",
    ),
    Mutant("TRN-7 model not told of its last call", BOUNDS, "step == limit - 1 and", "step == limit and"),
    Mutant("TRN-7 tools offered at the last chance", TURN, "toolless=state.last_chance is not None", "toolless=False"),
    Mutant(
        "TRN-7 calls run after the last chance",
        TURN,
        "    if state.last_chance is not None:\n        return bounds.no_more",
        "    if False:\n        return bounds.no_more",
    ),
    Mutant("TRN-7 invalid responses off by one", TURN, "if rows >= state.spec", "if rows > state.spec"),
    Mutant(
        "TRN-7 invalid responses never forgotten",
        TURN,
        "rows = 0 if running else state.invalid_rows + 1",
        "rows = state.invalid_rows + (not running)",
    ),
    Mutant(
        "TRN-7 identical failures off by one", BOUNDS, ">= limits.identical_failures", "> limits.identical_failures"
    ),
    Mutant("TRN-7 success does not forget", BOUNDS, "counts.pop(key, None)", "pass"),
    Mutant(
        "TRN-7 skipped counts as failed",
        BOUNDS,
        "elif status not in (ResultStatus.SKIPPED, ResultStatus.ABORTED):",
        "else:",
    ),
    Mutant("TRN-7 repairs off by one", ANSWERING, "if len(state.unfit) > bound", "if len(state.unfit) > bound + 1"),
    Mutant(
        "TRN-7 half answer dressed as whole",
        ANSWERING,
        "    if short is not None:\n        return ending",
        "    if False:\n        return ending",
    ),
    Mutant("TRN-7 pause taken for an end", ANSWERING, "    if stop is Stop.PAUSE_TURN:\n", "    if False:\n"),
    Mutant("TRN-7 answer stands beside a failure", ENDING, "    state.answer = None\n", ""),
    Mutant(
        "TRN-7 answer that does not fit passes",
        ANSWERING,
        "            return _again(state, now, tell)\n        text = read.json\n",
        "            pass\n        text = getattr(read, 'json', text)\n",
    ),
    Mutant(
        "calls per response off by one",
        BOUNDS,
        "index >= limits.calls_per_response",
        "index > limits.calls_per_response",
    ),
    # -- budgets
    Mutant("BUD-4 calls refused, and nothing follows", BOUNDS, "            state.short = short\n", ""),
    Mutant(
        "BUD-4 calls refused, and told for ever",
        EXHAUSTING,
        "    error, state.short = state.short, None\n",
        "    error = state.short\n",
    ),
    Mutant("BUD-4 a budget that parks fails", EXHAUSTING, '    if error.on_exhausted == "park":\n', "    if False:\n"),
    Mutant(
        "BUD-4 a budget that fails is wrapped up",
        EXHAUSTING,
        'error.on_exhausted == "fail" or opened',
        "opened",
    ),
    Mutant(
        "BUD-6 time that is up fails where it should park",
        "actors/cutting.py",
        'if isinstance(error, Exhausted) and error.on_exhausted == "park":',
        "if False:",
    ),
    Mutant(
        "BUD-6 time that ends a request fails where it should park",
        TURN,
        'if isinstance(event.error, Exhausted) and event.error.on_exhausted == "park":',
        "if False:",
    ),
    Mutant("BUD-2 calls over the grant run", BOUNDS, "elif granted is not None and", "elif False and"),
    Mutant(
        "BUD-4 wrap-up after wrap-up",
        EXHAUSTING,
        " or state.exhausted is not None:\n        return refuse",
        ":\n        return refuse",
    ),
    Mutant(
        "BUD-4 wrap-up told as done",
        ANSWERING,
        "    if state.exhausted is not None:\n        return ending.fail(state, state.exhausted, now, tell)\n",
        "",
    ),
    Mutant(
        "BUD-4 parked turn not written", ENDING, "and not state.row.owes and error is None:", "and not state.row.owes:"
    ),
    Mutant("BUD-6 time counted twice", ENDING, "    state.since = max(now, state.since)\n", ""),
    Mutant(
        "BUD-7 lost request not charged",
        RECOVERING,
        "        spent=state.row.spent + event.unwritten,",
        "        spent=state.row.spent,",
    ),
    Mutant(
        "BUD-7 lost request charged again",
        POISON,
        "left=False, asking=False, held=NOTHING)",
        "left=False, asking=False)",
    ),
    Mutant("BUD-7 reservation not written", TURN, '"asking": True, "held": state.held,', '"asking": True,'),
    Mutant("BUD-7 granted calls not counted", TURN, "if event.granted else event.spent", "if False else event.spent"),
    Mutant(
        "BUD-7 calls of a cut row not counted", TURN, "    if running and event.granted is None:\n", "    if False:\n"
    ),
    Mutant("REQ-7 usage not added", ENDING, "        usage=row.usage + usage,\n", ""),
    Mutant(
        "REQ-7 spending not added", ENDING, "        spent=row.spent + spent,\n        run_usage", "        run_usage"
    ),
    Mutant(
        "REQ-7 the run's spending not added",
        ENDING,
        "        run_spent=row.run_spent + spent,\n        cost",
        "        cost",
    ),
    Mutant("REQ-7 hold not ended", ENDING, "asking=False, held=NOTHING", "asking=False"),
    Mutant("BUD-9 unknown cost forgotten", ENDING, "cost_known=row.cost_known and cost_known", "cost_known=cost_known"),
    # -- recovery and purity
    Mutant(
        "REC-1 an open request is not owed",
        RECOVERING,
        "= event.owed or opened(state).step > 0, Phase.LOOKING",
        "= False, Phase.LOOKING",
    ),
    Mutant("REC-1 an interrupted answer is one", RECOVERING, " and last.stop is not Stop.INTERRUPTED", ""),
    Mutant(
        "REC-1 the answer that stands is asked again",
        RECOVERING,
        "if opened(state).step and not event.owed",
        "if False and not event.owed",
    ),
    Mutant(
        "HOK-1 a failing hook fails nothing",
        TURN,
        "        return exhausting.refuse(state, event.error, event.now)\n",
        "        pass\n",
    ),
    Mutant("a refused response is taken", TURN, "        if event.error is None:\n", "        if True:\n"),
    Mutant("TURN-4 a step changes what it was given", TURN, "    state = replace(state)  # TURN-4\n", ""),
    Mutant(
        "TURN-3 a ticket is lost with its claim",
        CUTTING,
        "back = (Abandon(event.ticket),) if event.ticket is not None else ()",
        "back = ()",
    ),
    Mutant("an illegal input is taken", TURN, "    check_place(state.phase, event, state.row.agent)\n", ""),
    # -- compaction and choices
    Mutant(
        "CMP-1 pending not committed first",
        COMPACTING,
        "owes=True)\n    told",
        "owes=True)\n    records = ()\n    told",
    ),
    Mutant("CMP-2 a summary for nothing is taken", COMPACTION, "if size > SMALLER * was:", "if False:"),
    Mutant("CMP-2 half a summary is taken", COMPACTION, "if served.response.stop in _NOT_WHOLE:", "if False:"),
    Mutant("CMP-2 the row does not know the summary", COMPACTING, "summary=state.head, context=0", "context=0"),
    Mutant("CMP-3 repeated for the window", COMPACTING, " or doing.useless or state.exhausted", " or state.exhausted"),
    Mutant(
        "CMP-3 asked again while under way",
        COMPACTING,
        "if doing.under_way is not None or doing.wanted",
        "if doing.wanted",
    ),
    Mutant(
        "CMP-5 cut inside a batch", COMPACTION, "        if not isinstance(record, ResultRecord):", "        if True:"
    ),
    Mutant(
        "CMP-5 pinned replaced", COMPACTION, "conversation.index(at) for at in range(cut) if _pinned(window[at])", "()"
    ),
    Mutant(
        "CMP-6 never for the window",
        COMPACTING,
        "return Compacting(WINDOW, None",
        "return None and Compacting(WINDOW, None",
    ),
    Mutant("CMP-6 mail not counted", COMPACTING, "context + ending.waiting_bytes(state) // BYTES", "context"),
    Mutant("REC-1 unseen results replaced", COMPACTION, "return at if record.calls else at + 1", "return at + 1"),
    Mutant("REC-1 alone goes on as a turn", RECOVERING, "    if turn_open.alone:\n", "    if False:\n"),
    Mutant(
        "REQ-3 overflow for ever", TURN, "ContextOverflow) and state.compacting.overflow is None", "ContextOverflow)"
    ),
    Mutant(
        "REQ-3 overflow asked again in vain",
        COMPACTING,
        "    if doing.overflow is not None:  # REQ-3",
        "    if False:  # REQ-3",
    ),
    Mutant(
        "REQ-7 summary not accounted",
        COMPACTING,
        "cost_known=served.cost is not None)\n    state.ticket",
        "cost_known=True)\n    state.ticket",
    ),
    Mutant(
        "CON-7 interrupt compacts first",
        COMPACTING,
        "        return None  # it cut one short",
        "        pass  # it cut one short",
    ),
    Mutant("CMP-4 the archive grows for ever", ENDING, "    if row.summary >= state.head:", "    if False:"),
    Mutant("CMP-4 a pinned message removed", COMPACTION, "- rule.archive, summary.pinned),)", "- rule.archive, ()),)"),
    Mutant("CMP-4 what is in force removed", COMPACTION, "summary.upto - rule.archive,", "summary.upto,"),
    Mutant(
        "SEL-1 admitted for the old model",
        SELECTING,
        "is not None else choosing.choice.selection",
        "is not None else state.row.selection",
    ),
    Mutant("SEL-2 no reset", SELECTING, "if not choice.compatible and at:", "if False:"),
    Mutant(
        "SEL-2 a failed note is followed",
        SELECTING,
        "event.note, event.staged, event.error)",
        "event.note, event.staged)",
    ),
    Mutant("SEL-3 the measure outlives its conversation", SELECTING, "summary=at, context=0", "summary=at"),
    Mutant("HOK-3 the stage does not land", SELECTING, "return choosing.staged, ", "return (), "),
    # -- turns that crash again and again
    Mutant("CON-6 never given up", POISON, "return crashes >= limit - (len", "return crashes >= 99 - (len"),
    Mutant("CON-6 given up a crash early", POISON, "return crashes >= limit - (", "return crashes >= limit - 1 - ("),
    Mutant("CON-6 never taken apart", POISON, "limit - (len(turn_open.consumed) > 1)", "limit"),
    Mutant("CON-6 one alone taken apart", POISON, "len(turn_open.consumed) > 1", "len(turn_open.consumed) > 0"),
    Mutant("CON-6 crash not counted", POISON, "row.open.tries + (crashed and at_work(row))", "row.open.tries"),
    Mutant("CON-6 leaving is a crash", POISON, " and not row.open.left", ""),
    Mutant("CON-6 parking is a crash", POISON, " and row.suspended is None", ""),
    Mutant("CON-6 letters not dead", POISON, "(*moves, *writes, *made.commit)", "(*writes, *made.commit)"),
    Mutant("CON-6 apart but not queued", POISON, "(again, *writes, *commit", "(*writes, *commit"),
    Mutant("CON-6 apart but not alone", POISON, "suspended=None, singly=singly)", "suspended=None)"),
    Mutant("CON-6 started call harmless", POISON, "ResultStatus.ABORTED if harmless", "ResultStatus.ABORTED if True"),
    Mutant("CON-6 unknown call not kept", POISON, "(*moves, *writes, *made", "(*moves, *made"),
    Mutant(
        "CON-6 last try not marked",
        ENDING,
        "max(opened(state).tries, state.spec",
        "min(opened(state).tries, state.spec",
    ),
    Mutant("CON-6 last try stays listed", ENDING, "if message not in taken])", "if True])"),
    Mutant("CON-6 on its last try, with others", MAILBOX, " or envelope.id in singly:", ":"),
    Mutant("CON-6 first try is the last", POISON, "0 < row.open.tries >=", "0 <= row.open.tries >="),
    Mutant("CON-7 skipped not kept", CUTTING, "        _note_skipped(state, state.pending[kept:], settled)\n", ""),
    Mutant("CON-7 skipped not claimed", ENDING, "said if one.interrupt else None", "None"),
    Mutant("MAIL-4 expired is chosen", MAILBOX, "if queued.envelope.id not in self.mortal.expired]", "if True]"),
    Mutant(
        "MAIL-4 expired asks for a turn",
        MAILBOX,
        "            idle = idle | self.mortal.expired\n",
        "            pass\n",
    ),
)
