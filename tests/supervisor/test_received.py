"""What is no response, all the way down."""

from __future__ import annotations

import pytest

from actors.errors import Malformed
from actors.ports import ReportedUsage, Response, WireCall
from actors.transcript import ReasoningBlock, Stop, TextBlock
from supervisor.received import TOKENS_MAX, checked

WHOLE = Response(
    (ReasoningBlock("hm", "m", "{}"), TextBlock("schön"), WireCall("", "", "no json", "malformed_json")),
    Stop.END_TURN,
    ReportedUsage(1, None, 0, -1, TOKENS_MAX),
    "m",
    "r1",
)


def one(*blocks: object, stop: object = Stop.END_TURN, usage: object = None, model: object = "") -> Response:
    """A response of anything."""
    return Response(blocks, stop, usage, model)  # type: ignore[arg-type]  # what it must refuse


def test_a_whole_response_passes_as_it_is() -> None:
    """It is the same object; a list of blocks becomes a tuple."""
    assert checked(WHOLE, "m") is WHOLE
    listed = Response([TextBlock("x")], Stop.END_TURN)  # type: ignore[arg-type]  # as people write it
    assert checked(listed, "m").blocks == (TextBlock("x"),)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        "text",
        Response(None, Stop.END_TURN),  # type: ignore[arg-type]  # likewise
        Response("ab", Stop.END_TURN),  # type: ignore[arg-type]  # likewise
        one("txt"),
        one(None),
        one(TextBlock(None)),  # type: ignore[arg-type]  # likewise
        one(TextBlock("\udcff")),
        one(ReasoningBlock(1)),  # type: ignore[arg-type]  # likewise
        one(ReasoningBlock("", opaque={})),  # type: ignore[arg-type]  # likewise
        one(WireCall("1", "t", {"a": 1})),  # type: ignore[arg-type]  # likewise
        one(WireCall("1", "t", None)),  # type: ignore[arg-type]  # likewise
        one(WireCall("1", None, "{}")),  # type: ignore[arg-type]  # likewise
        one(WireCall(None, "t", "{}")),  # type: ignore[arg-type]  # likewise
        one(WireCall("1", "t", "{}", 1)),  # type: ignore[arg-type]  # likewise
        one(stop="end_turn"),
        one(usage={"input": 1}),
        one(usage=ReportedUsage(float("nan"))),  # type: ignore[arg-type]  # likewise
        one(usage=ReportedUsage(1, "2")),  # type: ignore[arg-type]  # likewise
        one(usage=ReportedUsage(output=True)),
        one(usage=ReportedUsage(TOKENS_MAX + 1)),
        one(model=None),
    ],
)
def test_what_is_no_response_is_malformed(wrong: object) -> None:
    """The error names the model, and can be asked again."""
    with pytest.raises(Malformed, match=r"^test:m") as caught:
        checked(wrong, "test:m")
    assert caught.value.retryable
