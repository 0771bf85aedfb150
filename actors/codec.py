"""What is stored, and how it is written: the one place between rows and JSON.

Every stored class has a tag that never changes and a version. A class is written as an object of its fields; a field
that has its default is left out, so a changed default is a new version. What stands alone or in a union carries its
tag under `#`; a version above 1 stands behind it (`agent.2`), and then also in a class that had no tag. Reading is
strict: no coercion of kinds, no unknown field, no unknown tag, and what cannot be read is `Corrupt` with the path of
the fault. To change a stored class: add a version with its summary and its upgrade step below, give the class the new
tag, and keep the golden files of the old one (tests/actors/golden).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

import attrs
import msgspec

from .changes import AgentRow, Asking, CallRow, KeptResult, KvRow, OpenTurn, OutcomeRow
from .content import File, Image, Text
from .errors import Corrupt, InternalError
from .kept import TAG, Kept
from .messages import Asked, CallDone, Decision, Envelope, Failure, Outcome, Selection
from .transcript import (
    CallBlock,
    MessageRecord,
    NoteRecord,
    ReasoningBlock,
    Record,
    ResponseRecord,
    ResultRecord,
    SummaryRecord,
    TextBlock,
)
from .usage import Amounts, Usage

T = TypeVar("T")
Raw: TypeAlias = dict[str, Any]  # a JSON object as it was read
Upgrade: TypeAlias = Callable[[Raw], Raw]


@attrs.frozen
class Stored:
    """A class that is stored.

    Attributes:
        cls: the class. tag: its name in the store, for ever.
        versions: one line of summary for each, oldest first.
        upgrades: from each version to the next; they are given the object's fields and return the next version's.
    """

    cls: type[Kept]
    tag: str
    versions: tuple[str, ...] = ("as first released",)
    upgrades: tuple[Upgrade, ...] = ()

    @property
    def written(self) -> str:
        """The tag that the newest version is written with."""
        return self.tag if len(self.versions) == 1 else f"{self.tag}.{len(self.versions)}"


STORED: Final = (
    Stored(Text, "text"),
    Stored(Image, "image"),
    Stored(File, "file"),
    Stored(TextBlock, "said"),
    Stored(ReasoningBlock, "reasoned"),
    Stored(CallBlock, "called"),
    Stored(MessageRecord, "message"),
    Stored(ResponseRecord, "response"),
    Stored(ResultRecord, "result"),
    Stored(NoteRecord, "note"),
    Stored(SummaryRecord, "summary"),
    Stored(Usage, "usage"),
    Stored(Amounts, "amounts"),
    Stored(Failure, "failure"),
    Stored(Asked, "asked"),
    Stored(CallDone, "call_done"),
    Stored(Outcome, "outcome"),
    Stored(Selection, "selection"),
    Stored(Decision, "decision"),
    Stored(Envelope, "envelope"),
    Stored(OpenTurn, "open_turn"),
    Stored(KeptResult, "kept_result"),
    Stored(AgentRow, "agent"),
    Stored(Asking, "asking"),
    Stored(CallRow, "call"),
    Stored(OutcomeRow, "turn_outcome"),
    Stored(KvRow, "kv"),
)


def check_table(table: tuple[Stored, ...]) -> dict[type, Stored]:
    """The table by class; refused unless tags and classes are unique and every version but the first has its step.

    Raises:
        InternalError: the table contradicts itself, or a class is written with another tag than it says.
    """
    for entry in table:
        if len(entry.versions) != len(entry.upgrades) + 1 or not all(entry.versions):
            msg = f"{entry.tag}: {len(entry.versions)} versions need {len(entry.versions) - 1} upgrade steps"
            raise InternalError(msg)
        tag = entry.cls.__struct_config__.tag
        if tag != entry.written and (tag is not None or len(entry.versions) > 1):
            msg = f"{entry.tag}: {entry.cls.__name__} is written with the tag {tag!r}, not {entry.written!r}"
            raise InternalError(msg)
    if len({entry.tag for entry in table}) != len(table) or len({entry.cls for entry in table}) != len(table):
        raise InternalError("a tag or a class stands twice in the table of what is stored")
    return {entry.cls: entry for entry in table}


class Form(Generic[T]):
    """One kind of row, as text: its members by tag. `encode` and `decode` are each other's inverse."""

    __slots__ = ("_classes", "_decode", "_encode", "_kind", "_table", "name")

    def __init__(self, name: str, kind: Any, table: tuple[Stored, ...] = STORED) -> None:
        self.name = name
        self._kind = kind
        self._classes: tuple[type[Kept], ...] = get_args(kind) or (kind,)
        self._table = table
        self._encode = msgspec.json.Encoder().encode
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode

    def encode(self, value: T) -> bytes:
        """The value as JSON.

        Raises:
            InternalError: the value is none of the form's classes.
        """
        if type(value) not in self._classes:
            msg = f"{type(value).__name__} is not {_one(self.name)}"
            raise InternalError(msg)
        try:
            return self._encode(value)
        except UnicodeEncodeError:  # a lone surrogate: models do write half an emoji
            return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()

    def decode(self, data: bytes) -> T:
        """The value that was encoded.

        Raises:
            Corrupt: it is not JSON, or not of this form; with the path of the fault.
        """
        try:
            return cast("T", self._decode(data))
        except (msgspec.DecodeError, ValueError):  # an older version's, or one with a lone surrogate, or damaged
            return self._decode_slowly(data)

    def _decode_slowly(self, data: bytes) -> T:
        by_class = check_table(self._table)
        try:
            raw = _upgraded(self._kind, json.loads(data), by_class)
            return cast("T", msgspec.convert(raw, self._kind))
        except Exception as error:  # noqa: BLE001 - whatever the bytes did, or an upgrade step with them
            why: object = error if isinstance(error, ValueError) else repr(error)
            if isinstance(error, UnicodeDecodeError):
                why = f"the byte {error.object[error.start]:#04x} at {error.start:,} is in no text (UTF-8)"
            shown = str(why) if len(str(why)) <= LONGEST else f"{str(why)[:LONGEST]}..."
            raise Corrupt(f"{_one(self.name)} cannot be read: {shown}") from None


def _one(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


LONGEST: Final = 150
"""Characters of what is wrong with a row: a damaged one does not fill the screen."""


def _upgraded(kind: Any, raw: object, by_class: dict[type, Stored]) -> Any:
    """What was read, brought up to the newest versions wherever a stored class stands in it."""
    options = [kind] if get_origin(kind) is None else get_args(kind)
    if isinstance(raw, dict):
        members = [by_class[option] for option in options if option in by_class]
        return _upgraded_object(members, raw, by_class) if members else raw
    if isinstance(raw, list):
        sequence = kind if get_origin(kind) is tuple else next((o for o in options if get_origin(o) is tuple), None)
        if sequence is not None and get_args(sequence)[-1] is Ellipsis:
            return [_upgraded(get_args(sequence)[0], item, by_class) for item in raw]
    return raw


def _upgraded_object(members: list[Stored], raw: Raw, by_class: dict[type, Stored]) -> Raw:
    tag, _, number = str(raw.get(TAG, "")).partition(".")
    stored = next((member for member in members if member.tag == tag), members[0] if not tag else None)
    if stored is None or (not tag and len(members) > 1):
        return raw  # the converter says what is wrong with it
    newest = len(stored.versions)
    if (number and not number.isdecimal()) or not 1 <= int(number or 1) <= newest:
        msg = f"version {number} of {stored.tag}: this callboard knows 1 to {newest}; a newer one wrote it"
        raise ValueError(msg)
    raw.pop(TAG, None)
    for upgrade in stored.upgrades[int(number or 1) - 1 :]:
        raw = upgrade(raw)
    kinds = get_type_hints(stored.cls)
    raw = {name: _upgraded(kinds[name], value, by_class) if name in kinds else value for name, value in raw.items()}
    return raw if stored.cls.__struct_config__.tag is None else {TAG: stored.written, **raw}


RECORD: Final[Form[Record]] = Form("record", Record)
AGENT: Final[Form[AgentRow]] = Form("agent row", AgentRow)
CALL: Final[Form[CallRow]] = Form("call row", CallRow)
OUTCOME: Final[Form[OutcomeRow]] = Form("outcome row", OutcomeRow)
KV: Final[Form[KvRow]] = Form("key-value row", KvRow)
ENVELOPE: Final[Form[Envelope]] = Form("envelope", Envelope)
