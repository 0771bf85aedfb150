"""Mutants of the core's values and of what was added to the turn: what is counted, kept, shown, compared, refused."""

from __future__ import annotations

from place import Mutant  # type: ignore[import-not-found]  # its folder is on the path: run as a script

USAGE, BUDGET, IDS, CONTENT = "actors/usage.py", "actors/budget.py", "actors/ids.py", "actors/content.py"
CONVERSATION, TRANSCRIPT = "actors/conversation.py", "actors/transcript.py"
KEEPING, PAGES, RESULTS, ARGUMENTS = "actors/keeping.py", "actors/pages.py", "actors/results.py", "actors/arguments.py"
CODEC, JOURNAL, REPORTS, WRAPPING = "actors/codec.py", "actors/journal.py", "actors/reports.py", "actors/wrapping.py"
REOPENING, PREPARING, INPUTS = "actors/reopening.py", "actors/preparing.py", "actors/inputs.py"
SETTLING, CYCLES, BOUNDS, TOOLS = "actors/settling.py", "actors/cycles.py", "actors/bounds.py", "actors/tools.py"
STAGING, ANSWERING, OUTPUT, MESSAGES = (
    "actors/staging.py",
    "actors/answering.py",
    "actors/output.py",
    "actors/messages.py",
)

MUTANTS = (
    # -- money, tokens, budgets
    Mutant("BUD-9 a float is money", USAGE, "if isinstance(value, float | bool):", "if False:"),
    Mutant("BUD-9 finer than a picodollar", USAGE, " or exact != exact.to_integral_value()", ""),
    Mutant("BUD-9 negative money", USAGE, "not 0 <= exact <=", "not exact <="),
    Mutant("REQ-7 reasoning is free", USAGE, "usage.output_tokens * self.output", "usage.visible * self.output"),
    Mutant(
        "REQ-7 cache writes at the price of reads", USAGE, "usage.cache_write * write", "usage.cache_write * cached"
    ),
    Mutant(
        "BUD-2 held tool calls are not given back",
        USAGE,
        "self.tool_calls - other.tool_calls",
        "self.tool_calls + other.tool_calls",
    ),
    Mutant("BUD-1 no dollars limit", BUDGET, "yield Dimension.COST, picodollars(self.usd)", "pass"),
    Mutant(
        "BUD-1 a limit of nothing is none", BUDGET, "            if value is not None:\n", "            if value:\n"
    ),
    Mutant("BUD-1 negative counts", BUDGET, "or not 0 <= value <= MOST)", "or value > MOST)"),
    Mutant("BUD-4 stages out of order", BUDGET, "0 <= self.soft <= self.critical <= 1", "0 <= self.soft <= 1"),
    # -- names
    Mutant("a grandchild belongs to another tree", IDS, 'path.partition("/")[0]', 'path.rpartition("/")[0]'),
    Mutant("two children share a path", IDS, "name if ordinal == 1 else", "name if True else"),
    Mutant("a call id without its step", IDS, 'f"{turn}.{step}.{ordinal}"', 'f"{turn}.{ordinal}"'),
    # -- content and records
    Mutant(
        "ACC-6 content weighed in characters", CONTENT, "len(text) if text.isascii() else", "len(text) if True else"
    ),
    Mutant("ACC-1 an empty message is one", CONTENT, "case list() | tuple() if value:", "case list() | tuple():"),
    Mutant("ACC-6 a sender has no place", MESSAGES, "max(1, int(self.messages", "max(0, int(self.messages"),
    Mutant("REC-1 an interrupted batch is owed", TRANSCRIPT, "stop is not Stop.INTERRUPTED and any", "any"),
    Mutant("CON-4 taken back and still entered", TRANSCRIPT, "if message not in record.without]", "if True]"),
    Mutant("TRN-5 order is not seen", TRANSCRIPT, "if ranks != sorted(ranks):", "if False:"),
    Mutant("TOL-5 twice is not seen", TRANSCRIPT, "if len(set(wire)) != len(wire):", "if False:"),
    Mutant(
        "TOL-1 unanswered is not seen",
        TRANSCRIPT,
        '    if owed:\n        found.append(f"at',
        '    if False:\n        found.append(f"at',
    ),
    Mutant("SEL-2 a hand-over reads as a summary", TRANSCRIPT, "if self.handover:", "if False:"),
    # -- the conversation
    Mutant("CONV-2 a window sees later records", CONVERSATION, "*index.indices(self._length)", "*index.indices(10**6)"),
    Mutant("CONV-2 before the first is the last", CONVERSATION, "if not 0 <= index < self._length:", "if False:"),
    Mutant("CON-4 taken back and in force", CONVERSATION, "if not left])", "if True])"),
    Mutant(
        "CON-4 taken back before the summary", CONVERSATION, "        self._first -= sum(gone[: self._first])\n", ""
    ),
    Mutant(
        "TRN-1 encoders keep what is not in force",
        CONVERSATION,
        "        self._memo = {}  # what",
        "        pass  # what",
    ),
    Mutant("CMP-2 the archive stays in force", CONVERSATION, "if pair[0] >= summary.upto]", "if True]"),
    Mutant(
        "CMP-5 pinned messages go",
        CONVERSATION,
        "for pair in pairs if pair[0] in wanted]",
        "for pair in () if pair[0] in wanted]",
    ),
    Mutant(
        "CONV-1 a restart counts no older summary",
        CONVERSATION,
        "                made.stored += 1\n            else",
        "                pass\n            else",
    ),
    # -- results: kept, cut, shown
    Mutant("TOL-8 more is kept than may be", KEEPING, " or sum(one.chars for one in kept) + new.chars > limit", ""),
    Mutant("TOL-8 any number is kept", KEEPING, "len(kept) >= KEPT_MAX or ", ""),
    Mutant("TOL-8 pieces of what is gone stay", KEEPING, "for one in gone for scope in", "for one in () for scope in"),
    Mutant("TOL-8 the wrong piece", KEEPING, "whole[number * PIECE_CHARS :", "whole[0 :"),
    Mutant("TOL-8 the last page goes on", PAGES, "return end if end < self.total else None", "return end"),
    Mutant("TOL-8 a page behind the end", PAGES, "not 0 <= start < kept.chars", "not 0 <= start"),
    Mutant("TOL-8 a page ends with its piece", PAGES, "end - first * PIECE_CHARS", "start - first * PIECE_CHARS"),
    Mutant("TOL-8 parts are not cut", RESULTS, "if sum(len(text) for text in texts) <= limit_chars:", "if True:"),
    Mutant(
        "TOL-8 kept though too long",
        RESULTS,
        " or len(whole) > keep.limit_chars else hint(keep.call, None)",
        " else hint(keep.call, None)",
    ),
    # -- calls: arguments, keys, approval, hooks around them
    Mutant(
        "TOL-6 arguments are not checked",
        ARGUMENTS,
        "type(value) is dict and self.checker.valid(value):  # the usual",
        "type(value) is dict:  # the usual",
    ),
    Mutant("TOL-12 defaults are not shown", ARGUMENTS, ' else schema["default"]', " else None"),
    Mutant("TOL-13 a default is told as given", ARGUMENTS, "left[name] is not value}", "True}"),
    Mutant(
        "TOL-4 a failing resource runs beside others",
        TOOLS,
        "            return (), True\n",
        "            return (), False\n",
    ),
    Mutant(
        "TOL-12 a failing approve approves",
        TOOLS,
        "is safe\n            return True\n",
        "is safe\n            return False\n",
    ),
    Mutant(
        "TOL-13 changed after approval",
        WRAPPING,
        "if call.asking is not None and tool.final(text) !=",
        "if False and tool.final(text) !=",
    ),
    Mutant("TOL-13 changed to what needs approval", WRAPPING, "if call.asking is None and tool", "if False and tool"),
    Mutant("TOL-13 changed to another resource", WRAPPING, "not set(keys) <= set(call.keys)", "False"),
    Mutant("TOL-13 changed to run alone", WRAPPING, "(exclusive or not", "(False or not"),
    # -- what was stored
    Mutant("a version without its step", CODEC, "len(entry.versions) != len(entry.upgrades) + 1 or", ""),
    Mutant(
        "a class stands twice in the table",
        CODEC,
        "if len({entry.tag for entry in table}) != len(table) or len({entry.cls for entry in table}) != len(table):",
        "if False:",
    ),
    Mutant(
        "REC-1 calls without rows are lost",
        REOPENING,
        "for block in last.calls)",
        "for block in last.calls if block.id in by_call)",
    ),
    Mutant("REC-1 calls of other turns are listed", REOPENING, "and record.turn == turn and", "and"),
    Mutant("a report lists all calls", REOPENING, "settled[-CALLS_LISTED:]", "settled"),
    Mutant(
        "TRN-7 attempts of other turns count",
        ANSWERING,
        "and said is not None and record.turn == turn:\n                found",
        "and said is not None:\n                found",
    ),
    Mutant("a kept error loses its facts", REPORTS, "*facts.items()):", "):"),
    Mutant(
        "BUD-9 a cost that is not known is nothing", REPORTS, "if outcome.cost_known else None", "if True else None"
    ),
    # -- events
    Mutant("JOURNAL-1 seqs begin anew", JOURNAL, "seqs.get(path, 0) + 1", "1"),
    Mutant(
        "JOURNAL-2 nothing is let go",
        JOURNAL,
        "            del self._segments[0], self._starts[0]\n",
        "            break\n",
    ),
    Mutant("EVT-3 another journal's position", JOURNAL, "if token != self.token or", "if"),
    Mutant("EVT-3 a position from the future", JOURNAL, "if int(number) > self.last:", "if False:"),
    # -- hooks that choose
    Mutant(
        "HOK-1 they never choose again",
        PREPARING,
        "if state.prepared is None or state.prepared == _mail(state):",
        "if True:",
    ),
    Mutant(
        "HOK-1 before_request twice",
        PREPARING,
        "Point.PREPARE if state.prepared is None else Point.BEFORE_REQUEST",
        "Point.PREPARE",
    ),
    Mutant("HOK-1 the place is kept", PREPARING, "(Abandon(ticket), Look(sends", "(Look(sends"),
    Mutant("SEL-1 the hooks do not see the choice", PREPARING, "        selecting.follow(ahead)\n", "        pass\n"),
    Mutant("TRN-5 a context hook sends anything", PREPARING, "if found := problems(listed):", "if found := ():"),
    # -- how a run is settled
    Mutant(
        "HOK-4 the run's store stays", SETTLING, "        state.staged = (*state.staged, erased)\n", "        pass\n"
    ),
    Mutant(
        "HOK-4 erased with messages waiting",
        SETTLING,
        "    if settles and state.spec.keeps:",
        "    if state.spec.keeps:",
    ),
    Mutant("HOK-3 the settling hook's writes are lost", SETTLING, "*(state.beside or ())", "*()"),
    Mutant(
        "HOK-3 they land though the run goes on",
        SETTLING,
        "    if settles:\n        state.staged",
        "    if True:\n        state.staged",
    ),
    Mutant("HOK-3 the settling hook again and again", SETTLING, " and state.beside is None:", ":"),
    Mutant(
        "HOK-1 a settling guard fails nothing",
        SETTLING,
        "if event.error is not None and state.failing is None:",
        "if False:",
    ),
    Mutant(
        "HOK-4 the last run's store stays behind a crash",
        SETTLING,
        "if state.new_run and state.spec.keeps and state.row.runs:",
        "if False:",
    ),
    # -- circles and time
    Mutant("TRN-7 no circle is seen", CYCLES, "count + 1 if period <= known", "0 if period <= known"),
    Mutant("TRN-7 every round is a circle", CYCLES, " and self.last[-period] == new else", " else"),
    Mutant("TRN-7 a longer circle counts each round", CYCLES, "count // period", "count"),
    Mutant(
        "TRN-7 a circle is only told", BOUNDS, "        state.last_chance = text\n    elif", "        pass\n    elif"
    ),
    Mutant("TRN-7 a circle is not told", BOUNDS, "    elif times == limit > before:\n", "    elif False:\n"),
    Mutant("TRN-7 a turn's time has no end", BOUNDS, "if left is not None and left <= 0:", "if False:"),
    Mutant(
        "TRN-7 its end is not told before",
        BOUNDS,
        "    elif left is not None and left <= (1",
        "    elif False and left <= (1",
    ),
    Mutant("TRN-7 time before a restart is forgotten", BOUNDS, "- spent / MICROSECONDS ", ""),
    # -- places
    Mutant("an input in any place", INPUTS, "        raise InternalError(msg)\n", "        pass\n"),
)
