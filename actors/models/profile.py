"""What a chat-completions server wants differently from the next one: a frozen set of switches."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import attrs

from actors.errors import UsageError

from .wire_json import NotJson, decode_all

if TYPE_CHECKING:
    from collections.abc import Mapping


class EchoReasoning(enum.StrEnum):
    """Whether reasoning text goes back to the model that wrote it."""

    NEVER = "never"
    WITHIN_TURN = "within_turn"
    ALWAYS = "always"


class InlineThink(enum.StrEnum):
    """Whether `<think>` in the content is reasoning (P-THINK)."""

    OFF = "off"
    TAGS = "tags"
    OPEN = "open"
    """The prompt template has opened the tag: the content begins inside it."""


class OutputForm(enum.StrEnum):
    """How a structured answer is asked for."""

    SCHEMA = "schema"
    """by `response_format`"""
    TOOL = "tool"
    """by a tool of its own, which must be called"""
    PROMPT = "prompt"
    """by words behind the instructions"""


def _json_object(instance: object, field: attrs.Attribute[str], value: str) -> None:
    del instance
    try:
        decoded = decode_all(value.encode())
    except NotJson as error:
        msg = f"{field.name} is the JSON text of an object, such as '{{\"temperature\": 0}}'; got {value!r}: {error}"
        raise UsageError(msg) from None
    if len(decoded) != 1 or not isinstance(decoded[0], dict):
        msg = f"{field.name} is the JSON text of an object, such as '{{\"temperature\": 0}}'; got {value!r}"
        raise UsageError(msg)


@attrs.frozen(kw_only=True)
class ChatProfile:
    """How to speak to one chat-completions server. In doubt, leave the defaults: most servers take them.

    Args:
        max_tokens_field: `max_tokens` (most servers) or `max_completion_tokens` (OpenAI).
        system_role: `system`, or `developer` where a server wants that.
        echo_reasoning: `never`, `within_turn` (DeepSeek), `always`; only ever to the model that wrote it (REQ-8).
        reasoning_field: under which name it goes back.
        inline_think: `tags` splits `<think>…</think>` off the content; `open` where the content begins inside.
        cumulative: each delta repeats all that came before it.
        merge_user: consecutive user messages go as one, for templates that want the roles to alternate.
        short_ids: call ids are nine letters and digits (Mistral).
        include_usage: ask for token counts; switch it off for servers that refuse unknown fields.
        output_form: how a structured answer is asked for: `schema` (most servers), or `tool` or `prompt` for a
            server that knows no response format.
        strict_output: ask for strict schemas; the schema must then follow the server's subset.
        api_key_header: `authorization` (as a bearer token) or, for example, `api-key`.
        headers: more headers to send.
        extra_body: JSON text of an object whose fields are added to each request, and win.
        context_window: tokens, or None where not known.
    """

    max_tokens_field: str = "max_tokens"
    system_role: str = "system"
    echo_reasoning: EchoReasoning = attrs.field(default=EchoReasoning.NEVER, converter=EchoReasoning)
    reasoning_field: str = "reasoning_content"
    inline_think: InlineThink = attrs.field(default=InlineThink.OFF, converter=InlineThink)
    cumulative: bool = False
    merge_user: bool = False
    short_ids: bool = False
    include_usage: bool = True
    output_form: OutputForm = attrs.field(default=OutputForm.SCHEMA, converter=OutputForm)
    strict_output: bool = False
    api_key_header: str = "authorization"
    headers: tuple[tuple[str, str], ...] = ()
    extra_body: str = attrs.field(default="{}", validator=_json_object)
    context_window: int | None = None


DEFAULT_PROFILE: Final = ChatProfile()

_BY_HOST: Final[Mapping[str, ChatProfile]] = {
    "api.openai.com": ChatProfile(max_tokens_field="max_completion_tokens"),
    "api.deepseek.com": ChatProfile(echo_reasoning=EchoReasoning.WITHIN_TURN),
    "api.mistral.ai": ChatProfile(short_ids=True),
}


def profile_of(base_url: str) -> ChatProfile:
    """The profile of a server that is known by its host, else the default one."""
    return _BY_HOST.get(urlsplit(base_url).hostname or "", DEFAULT_PROFILE)
