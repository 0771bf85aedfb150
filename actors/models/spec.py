"""Model strings: `protocol:name[@base_url]`, taken apart; what is not understood is refused with what would be."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import attrs

from actors.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

CHAT: Final = "openai-chat"
OPENAI_BASE_URL: Final = "https://api.openai.com/v1"
_LATER: Final[Mapping[str, str]] = {
    "openai": "OpenAI's Responses protocol",
    "anthropic": "Anthropic's Messages protocol",
    "gemini": "Google's Gemini protocol",
    "script": "scripts from files",
}
_ACCEPTED: Final = (
    "write openai-chat:NAME for api.openai.com, or openai-chat:NAME@BASE_URL for any chat-completions server,"
    " for example openai-chat:qwen3@http://127.0.0.1:8080/v1"
)
_URL: Final = re.compile(r"@(?=https?://)", re.IGNORECASE)
_BARE_HOST: Final = re.compile(r"@(?:localhost|[\w.-]+:\d+|\d+\.\d+\.\d+\.\d+)(?:/|:\d|$)", re.IGNORECASE)


@attrs.frozen
class ModelSpec:
    """A model string, taken apart.

    Attributes:
        protocol: how the server is spoken to. name: as the server knows the model.
        base_url: without a slash at its end.
    """

    protocol: str
    name: str
    base_url: str

    @property
    def id(self) -> str:
        """What names model and place: the key of permits, prices and opaque state."""
        return f"{self.protocol}:{self.name}@{self.base_url}"

    @property
    def loopback(self) -> bool:
        """Whether the server is on this machine: then it is free and needs no key (BUD-9)."""
        return is_loopback(self.base_url)

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The environment variables a key may come from, the first one set wins; OpenAI's goes to OpenAI only."""
        own = urlsplit(self.base_url).hostname == urlsplit(OPENAI_BASE_URL).hostname
        return ("OPENAI_API_KEY", "CALLBOARD_API_KEY") if own else ("CALLBOARD_API_KEY",)


def parse_model(text: str) -> ModelSpec:
    """The parts of a model string `protocol:name[@base_url]`.

    Args:
        text: a name may hold `:`, `/` and `@`; the base URL begins with `http://` or `https://`.

    Raises:
        UsageError: it is no such string, or its protocol is not in this release.
    """
    protocol, colon, rest = text.strip().partition(":")
    if protocol in _LATER and colon:
        msg = f"{text!r}: {_LATER[protocol]} ({protocol}:) is not in this release; {_ACCEPTED}"
        raise UsageError(msg)
    if protocol != CHAT or not colon:
        msg = f"{text!r} is not a model of a protocol that is known here; {_ACCEPTED}"
        raise UsageError(msg)
    parts = _URL.split(rest, maxsplit=1)
    name = parts[0].strip()
    if not name:
        msg = f"{text!r} names no model; {_ACCEPTED}"
        raise UsageError(msg)
    if len(parts) == 1:
        if _BARE_HOST.search(name):
            msg = f"{text!r}: a base URL begins with http:// or https://; {_ACCEPTED}"
            raise UsageError(msg)
        return ModelSpec(CHAT, name, OPENAI_BASE_URL)
    return ModelSpec(CHAT, name, _base_url(parts[1].strip(), name))


def is_loopback(url: str) -> bool:
    """Whether a URL's host is this machine by its very name or address."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _base_url(url: str, name: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        msg = f"the base URL of {name!r} cannot be read ({error}); {_ACCEPTED}"
        raise UsageError(msg) from None
    if parts.username is not None or parts.password is not None:
        # The URL is not shown: what stands before its @ is a secret.
        msg = f"the base URL of {name!r} holds a user name or password; pass the key as `key` instead; {_ACCEPTED}"
        raise UsageError(msg)
    if not host or any(character.isspace() for character in url):
        msg = f"the base URL of {name!r} has no host, or white space in it: {url!r}; {_ACCEPTED}"
        raise UsageError(msg)
    if parts.query or parts.fragment:
        msg = f"the base URL of {name!r} ends before ? and #; got {url!r}; {_ACCEPTED}"
        raise UsageError(msg)
    return url.rstrip("/").removesuffix("/chat/completions").rstrip("/")
