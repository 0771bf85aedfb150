"""What a model answered, checked where it comes in: a model is foreign code, and all that follows rests on its answer.

A malformed answer is a failed attempt, which is made again; it is no bug of the loop that reads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import astuple, replace

from actors.errors import Malformed
from actors.guarding import safely_told, speaks
from actors.ports import ReportedUsage, Response, WireCall
from actors.transcript import ReasoningBlock, Stop, TextBlock

if TYPE_CHECKING:
    from actors.errors import ProviderError

TOKENS_MAX: Final = 2**40
"""A count above it is no count; sums of such would not fit into a store's integers."""


def checked(response: object, model: str) -> Response:
    """The response, if it is one all the way down.

    Raises:
        Malformed: it is not; the message names the first thing that is wrong. `model`: whose it is.
    """
    if not isinstance(response, Response):
        raise _malformed(model, "a Response", response)
    blocks: object = response.blocks
    if isinstance(blocks, list):
        response = replace(response, blocks=tuple(blocks))
    elif not isinstance(blocks, tuple):
        raise _malformed(model, "blocks in a tuple", blocks)
    for block in response.blocks:
        _check_block(model, block)
    if not isinstance(response.stop, Stop):
        raise _malformed(model, "a Stop", response.stop)
    if response.usage is not None:
        _check_usage(model, response.usage)
    _check_text(model, "model", response.model)
    if response.request_id is not None:
        _check_text(model, "request_id", response.request_id)
    return response


def readable(error: ProviderError, model: str) -> ProviderError:
    """The error, or one to stand for it where its text cannot be had: that is foreign code too, and many format it."""
    return error if speaks(error) else Malformed(f"{model} raised {safely_told(error)}", reason="protocol")


def _check_block(model: str, block: object) -> None:
    match block:
        case TextBlock():
            _check_text(model, "text", block.text)
        case WireCall():
            _check_text(model, "wire_id", block.wire_id)
            _check_text(model, "name", block.name)
            _check_text(model, "arguments", block.arguments)
            if block.invalid is not None:
                _check_text(model, "invalid", block.invalid)
        case ReasoningBlock():
            _check_text(model, "text", block.text)
            _check_text(model, "origin", block.origin)
            if block.opaque is not None:
                _check_text(model, "opaque", block.opaque)
        case _:
            raise _malformed(model, "a block of text, reasoning or a call", block)


def _check_usage(model: str, usage: object) -> None:
    if not isinstance(usage, ReportedUsage):
        raise _malformed(model, "a ReportedUsage or None", usage)
    for count in astuple(usage):
        if count is not None and (type(count) is not int or count > TOKENS_MAX):
            raise _malformed(model, f"token counts as ints up to {TOKENS_MAX}", count)


def _check_text(model: str, what: str, value: object) -> None:
    """A text that can be stored: a lone surrogate cannot."""
    if not isinstance(value, str):
        raise _malformed(model, f"`{what}` as a text", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Malformed(f"{model}: `{what}` is no text that can be encoded: {error}", reason="protocol") from None


def _malformed(model: str, wanted: str, got: object) -> Malformed:
    return Malformed(f"{model} answered with {type(got).__name__}, where {wanted} was due", reason="protocol")
