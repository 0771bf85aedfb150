"""The report that a background child sends its parent."""

from __future__ import annotations

import attrs

from actors.errors import Broken
from actors.inputs import Failed
from actors.messages import Lane, Purpose
from actors.output import output_spec
from tests.actors.turnkit import Drive, spec


@attrs.frozen
class Verdict:
    """A typed answer."""

    ok: bool


VERDICT = output_spec(Verdict, "a test")


FITS = '{"ok": true}'


def test_a_background_child_reports_in_the_commit_that_ends_its_turn() -> None:
    """The report goes to the parent's send lane on its reserved place."""
    drive = Drive(spec(reports_to="boss")).start()
    drive.reply("found it")
    drive.look()
    (enqueue,) = [operation for operation in drive.made.commit if hasattr(operation, "envelope")]
    envelope = enqueue.envelope
    assert (envelope.to, envelope.lane, envelope.purpose) == ("boss", Lane.SEND, Purpose.REPORT)
    assert envelope.reserved
    assert envelope.id == "r-lead:t1"
    assert envelope.sender == "lead"
    assert envelope.content[0].text == "Report of lead (done):\nfound it"  # type: ignore[union-attr]


def test_a_report_of_a_failure_says_why() -> None:
    """The parent's model reads the reason."""
    drive = Drive(spec(reports_to="boss")).start()
    drive.give(Failed(0.0, Broken("cut off")))
    (enqueue,) = [operation for operation in drive.made.commit if hasattr(operation, "envelope")]
    assert enqueue.envelope.content[0].text.startswith("Report of lead (failed: cut off)")  # type: ignore[union-attr]


def test_a_typed_report_carries_the_json() -> None:
    """The parent reads the value, not the words around it."""
    drive = Drive(spec(reports_to="boss", output=VERDICT)).start()
    drive.reply(f"Well: {FITS}")
    drive.look()
    (enqueue,) = [operation for operation in drive.made.commit if hasattr(operation, "envelope")]
    assert enqueue.envelope.content[0].text.endswith('(done):\n{"ok":true}')  # type: ignore[union-attr]
