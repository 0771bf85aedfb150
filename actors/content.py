"""What a message is made of: text, images, files; and the trust it carries."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias, assert_never

import attrs

from .errors import UsageError
from .kept import TAG, Kept


class Trust(enum.StrEnum):
    """How far content may be believed; a derived message has the least of what it came from."""

    TRUSTED = "trusted"
    WORKSPACE = "workspace"
    EXTERNAL = "external"


_TRUSTS: Final = tuple(Trust)  # from the most to the least


def least(one: Trust, other: Trust) -> Trust:
    """The lesser of two."""
    return one if _TRUSTS.index(one) >= _TRUSTS.index(other) else other


class Text(Kept, frozen=True, tag_field=TAG, tag="text"):
    """Plain text."""

    text: str

    def __post_init__(self) -> None:
        """Refuse what is no text where it is written; half a character is refused where it is sent."""
        if type(self.text) is not str:  # the quick look: texts are made in every turn
            _check_typed(self)


class Image(Kept, frozen=True, tag_field=TAG, tag="image"):
    """An image, inline as base64 or by reference.

    Args:
        media_type: for example `image/png`.
        data: base64 of the bytes, or None where `url` is given.
        url: where the model's server fetches it, or None.
    """

    media_type: str
    data: str | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is no text where it is written."""
        _check_typed(self)


class File(Kept, frozen=True, tag_field=TAG, tag="file"):
    """A file, inline as base64."""

    name: str
    media_type: str
    data: str

    def __post_init__(self) -> None:
        """Refuse what is no text where it is written."""
        _check_typed(self)


Part: TypeAlias = Text | Image | File
Content: TypeAlias = tuple[Part, ...]

PART_OVERHEAD_BYTES: Final = 16


@attrs.frozen
class Pinned:
    """A message that compactions keep word for word (CMP-5): `send(Pinned("Leave docs alone"))`.

    Args:
        content: what a message is made of: text, Text, Image, File or a list of them.
    """

    content: object


def is_storable(value: object) -> bool:
    """Whether it is a text that can be a key or a name in a store: no lone surrogates."""
    return isinstance(value, str) and _half(value) is None


def _half(text: str) -> int | None:
    """Where a text has half a character, which no UTF-8 can hold; None where it is whole."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            return error.start
    return None


def check_text(value: object, what: str) -> None:
    """Refuse what is no text that can be stored; `what` begins the message.

    Raises:
        UsageError: it is none.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what} is text that UTF-8 can hold; got {value!r}")
    at = _half(value)
    if at is not None:
        shown = value[max(0, at - _SHOWN) : at + _SHOWN]
        raise UsageError(
            f"{what} is text that UTF-8 can hold; got half a character, {value[at]!r}, at {at} of {len(value)}:"
            f" {shown!r}; give it whole, or text.encode(errors='replace').decode()"
        )


def as_content(value: object, what: str = "a message") -> Content:
    """Content from what people write: a string, one part, or a sequence of strings and parts.

    That its parts hold texts is checked where they are made; that these are whole, here: a store makes parts, too.

    Args:
        value: what was given.
        what: it is, for the message of an error.

    Raises:
        UsageError: for anything else, where nothing is in it, or where a text has half a character.
    """
    match value:
        case str():
            check_text(value, what)
            return (Text(value),)
        case Text() | Image() | File():
            return (_sound(value, what),)
        case Pinned():
            return as_content(value.content, what)
        case list() | tuple() if value:
            return tuple(part for item in value for part in as_content(item, what))
        case _:
            raise UsageError(f"{what} is text, Text, Image, File or a list of them; got {value!r}")


_SHOWN: Final = 20
"""How many characters are shown on each side of half a one."""


def _check_typed(part: Part) -> None:
    """Refuse a part that could be written and never be read again (ACC-2)."""
    fields: tuple[object, ...]
    match part:
        case Text(text=text):
            fields, hint = (text,), "Text(text) takes a text"
        case Image(media_type=kind, data=data, url=url):
            fields = (kind, *[field for field in (data, url) if field is not None])
            hint = _IMAGE
        case File(name=name, media_type=kind, data=data):
            fields, hint = (name, kind, data), "File(name, media_type, data) takes texts: the data as base64"
        case _:
            assert_never(part)
    if not all(isinstance(field, str) for field in fields):
        raise UsageError(f"{hint}; got {str(part)[:200]}")


_IMAGE: Final = "Image(media_type, data=...) or Image(media_type, url=...) takes texts: the data as base64"


def _sound(part: Part, what: str) -> Part:
    """Refuse a part that no store could hold, or that shows nothing."""
    if isinstance(part, Image) and part.data is None and part.url is None:
        raise UsageError(f"{_IMAGE}; got {str(part)[:200]}")
    for name in type(part).__struct_fields__:
        if isinstance(field := getattr(part, name), str):
            check_text(field, f"{what}: {type(part).__name__}({name}=...)")
    return part


def text_of(content: Content) -> str:
    """The text of content, parts joined by a line break; images and files are left out."""
    if len(content) == 1 and isinstance(content[0], Text):
        return content[0].text
    return "\n".join(part.text for part in content if isinstance(part, Text))


def size_of(content: Content) -> int:
    """About how many bytes content takes: what mailboxes are bounded in."""
    total = 0
    for part in content:
        match part:
            case Text(text=text):
                total += len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))
            case Image(data=data, url=url):
                total += len(data or "") + len(url or "")
            case File(name=name, data=data):
                total += len(name) + len(data)
            case _:
                assert_never(part)
        total += PART_OVERHEAD_BYTES
    return total
