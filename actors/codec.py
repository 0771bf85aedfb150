"""What is stored, and how it is written: the one converter between rows and JSON.

Every stored class has a tag that never changes and a version. A class is written as an object of its fields; a field
that has its default is left out, so a changed default is a new version. Members of a union carry their tag under
`#`; a version above 1 stands under `v`. Reading is strict: no coercion, no unknown field, no unknown tag, and what
cannot be read is `Corrupt` with the path of the fault. To change a stored class: add a version with its summary and
its upgrade step below, and keep the golden files of the old one (tests/actors/golden).
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, get_args, get_origin

import attrs
import cattrs
import msgspec
from cattrs.cols import list_structure_factory
from cattrs.fns import identity  # cattrs writes no call for this very function
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from .changes import AgentRow, Asking, CallRow, KvRow, OpenTurn, OutcomeRow
from .content import File, Image, Part, Text
from .errors import Corrupt, InternalError
from .messages import Asked, CallDone, Decision, Envelope, Failure, Outcome, Selection
from .transcript import (
    Block,
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
_Hook: TypeAlias = Callable[[Any], Any]

TAG: Final = "#"
VERSION: Final = "v"


@attrs.frozen
class Stored:
    """A class that is stored.

    Attributes:
        cls: the class. tag: its name in the store, for ever.
        versions: one line of summary for each, oldest first.
        upgrades: from each version to the next; they are given the object's fields and return the next version's.
    """

    cls: type
    tag: str
    versions: tuple[str, ...] = ("as first released",)
    upgrades: tuple[Upgrade, ...] = ()


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
    Stored(AgentRow, "agent"),
    Stored(Asking, "asking"),
    Stored(CallRow, "call"),
    Stored(OutcomeRow, "turn_outcome"),
    Stored(KvRow, "kv"),
)

_UNIONS: Final = (Part, Block, Record)
"""The unions whose members carry their tag; each is also named where it is encoded."""


def check_table(table: tuple[Stored, ...]) -> dict[type, Stored]:
    """The table by class; refused unless tags and classes are unique and every version but the first has its step.

    Raises:
        InternalError: the table contradicts itself.
    """
    for entry in table:
        struct = issubclass(entry.cls, msgspec.Struct)
        if struct and len(entry.versions) > 1:  # it is written whole by the encoder, which adds no version
            raise InternalError(f"{entry.tag}: a struct has one version; make it an attrs class first")
        if len(entry.versions) != len(entry.upgrades) + 1 or not all(entry.versions):
            msg = f"{entry.tag}: {len(entry.versions)} versions need {len(entry.versions) - 1} upgrade steps"
            raise InternalError(msg)
        if {TAG, VERSION} & set(field_names(entry.cls)):
            msg = f"{entry.tag}: a field may not be called {TAG!r} or {VERSION!r}"
            raise InternalError(msg)
    if len({entry.tag for entry in table}) != len(table) or len({entry.cls for entry in table}) != len(table):
        raise InternalError("a tag or a class stands twice in the table of what is stored")
    return {entry.cls: entry for entry in table}


def field_names(cls: type[Any]) -> tuple[str, ...]:
    """The fields of a stored class, in order."""
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    return tuple(field.name for field in attrs.fields(cls))


class _Unreadable(ValueError):
    """What is wrong with one value; its path is added where it is known."""


# -- strict primitives -------------------------------------------------------------------------------------------


def _exactly(kind: type, name: str) -> Callable[[object, object], object]:
    def structure(value: object, _: object) -> object:
        if type(value) is not kind:
            msg = f"{name} is expected, not {_shown(value)}"
            raise _Unreadable(msg)
        return value

    return structure


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _structure_enums() -> Callable[[object, Any], object]:
    members: dict[type[enum.StrEnum], dict[str, enum.StrEnum]] = {}

    def structure(value: object, kind: type[enum.StrEnum]) -> object:
        if kind not in members:
            members[kind] = {member.value: member for member in kind}
        member = members[kind].get(value) if type(value) is str else None
        if member is None:
            msg = f"one of {', '.join(members[kind])} is expected, not {_shown(value)}"
            raise _Unreadable(msg)
        return member

    return structure


def _structure_tuple(kind: Any, converter: cattrs.Converter) -> Callable[[object, object], object]:
    arguments = get_args(kind)
    if arguments[-1] is not Ellipsis:
        return _structure_fixed(arguments, converter)
    element = arguments[0]
    inner = converter.get_structure_hook(element)
    # cattrs' own list hook notes the index of the element that fails
    noting = (
        list_structure_factory(cast("type", list.__class_getitem__(element)), converter)
        if converter.detailed_validation
        else None
    )

    def structure(value: object, _: object) -> object:
        if type(value) is not list:
            msg = f"a list is expected, not {_shown(value)}"
            raise _Unreadable(msg)
        if noting is not None:
            return tuple(noting(value, list))
        return tuple([inner(item, element) for item in value])

    return structure


def _structure_fixed(arguments: tuple[Any, ...], converter: cattrs.Converter) -> Callable[[object, object], object]:
    inner = [converter.get_structure_hook(argument) for argument in arguments]

    def structure(value: object, _: object) -> object:
        if type(value) is not list or len(value) != len(arguments):
            msg = f"a list of {len(arguments)} is expected, not {_shown(value)}"
            raise _Unreadable(msg)
        return tuple(hook(item, argument) for hook, item, argument in zip(inner, value, arguments, strict=True))

    return structure


# -- classes and unions ------------------------------------------------------------------------------------------


def _upgraded(stored: Stored, raw: Raw, version: object) -> Raw:
    newest = len(stored.versions)
    if type(version) is not int or not 1 <= version <= newest:
        msg = f"version {_shown(version)} of {stored.tag}: this callboard knows 1 to {newest}; a newer one wrote it"
        raise _Unreadable(msg)
    for upgrade in stored.upgrades[version - 1 :]:
        raw = upgrade(raw)
    return raw


def _structure_class(stored: Stored, converter: cattrs.Converter) -> Callable[[object, object], object]:
    inner: Callable[[Any, Any], object] = (
        _structure_struct
        if issubclass(stored.cls, msgspec.Struct)
        else make_dict_structure_fn(stored.cls, converter, _cattrs_forbid_extra_keys=True)
    )
    newest = len(stored.versions)

    def structure(value: object, _: object) -> object:
        if type(value) is not dict:
            msg = f"an object is expected, not {_shown(value)}"
            raise _Unreadable(msg)
        if value.get(TAG) == stored.tag:
            del value[TAG]  # a member of a union that stands alone here is tagged all the same
        version = value.pop(VERSION, 1)
        if version != newest or type(version) is not int:
            value = _upgraded(stored, value, version)
        return inner(value, stored.cls)

    return structure


def _structure_struct(value: Raw, cls: type) -> object:
    """A struct: its fields are whole numbers, all of them. The fault has its path, as cattrs notes it."""
    for name, found in value.items():
        if type(found) is not int:
            fault = _Unreadable(f"a whole number is expected, not {_shown(found)}")
            fault.add_note(cattrs.AttributeValidationNote(f"in {name}", name, int))
            raise cattrs.ClassValidationError(f"a {cls.__name__} cannot be read", [fault], cls)
    try:
        return cls(**value)
    except TypeError as error:  # a field that it does not have
        raise _Unreadable(str(error)) from error


def _structure_tagged(members: tuple[Stored, ...], converter: cattrs.Converter) -> Callable[[object, object], object]:
    hooks: dict[str, Callable[[object, object], object]] = {}

    def structure(value: object, _: object) -> object:
        if type(value) is not dict:
            msg = f"an object is expected, not {_shown(value)}"
            raise _Unreadable(msg)
        if not hooks:  # filled when first used: a class may be a member of a union that it holds
            hooks.update({stored.tag: converter.get_structure_hook(stored.cls) for stored in members})
        tag = value.pop(TAG, None)
        hook = hooks.get(tag) if type(tag) is str else None
        if hook is None:
            msg = f"a tag {TAG!r} is expected, one of {', '.join(hooks)}, not {_shown(tag)}"
            raise _Unreadable(msg)
        return hook(value, None)

    return structure


def _unstructure_class(stored: Stored, converter: cattrs.Converter) -> _Hook:
    if issubclass(stored.cls, msgspec.Struct):
        return identity  # the encoder writes it, without what is at its default
    inner: Callable[[Any], Raw] = make_dict_unstructure_fn(stored.cls, converter, _cattrs_omit_if_default=True)
    tag = stored.tag if any(stored.cls in get_args(union) for union in _UNIONS) else None
    newest = len(stored.versions)
    if tag is None and newest == 1:
        return inner

    def unstructure(value: object) -> Raw:
        raw: Raw = inner(value)
        if tag is not None:
            raw[TAG] = tag
        if newest > 1:
            raw[VERSION] = newest
        return raw

    return unstructure


def _unstructure_sequence(kind: Any, converter: cattrs.Converter) -> _Hook:
    element = get_args(kind)[0]
    if _plain(element) or get_origin(element) is tuple:  # the encoder writes tuples of primitives as they are
        return identity
    inner = converter.get_unstructure_hook(element)
    return lambda value: [inner(item) for item in value]


def _unstructure_tagged(members: tuple[Stored, ...], converter: cattrs.Converter) -> _Hook:
    hooks: dict[type, _Hook] = {}

    def unstructure(value: object) -> object:
        if not hooks:
            hooks.update({stored.cls: converter.get_unstructure_hook(stored.cls) for stored in members})
        return hooks[type(value)](value)

    return unstructure


def _plain(kind: Any) -> bool:
    """Whether the JSON encoder writes values of a type as they are."""
    kind = getattr(kind, "__supertype__", kind)
    return isinstance(kind, type) and (kind in {str, int, bool} or issubclass(kind, enum.Enum))


def _optional_plain(kind: Any) -> bool:
    arguments = get_args(kind)
    return type(None) in arguments and all(_plain(argument) for argument in arguments if argument is not type(None))


def make_converter(table: tuple[Stored, ...] = STORED, *, detailed: bool = False) -> cattrs.Converter:
    """The converter of a table of stored classes.

    Args:
        table: what is stored; another than ours is for tests of upgrades.
        detailed: errors tell the path; slower.
    """
    by_class = check_table(table)

    def is_tuple(kind: Any) -> bool:
        return get_origin(kind) is tuple

    converter = cattrs.Converter(detailed_validation=detailed, omit_if_default=True, forbid_extra_keys=True)
    for primitive, name in ((str, "text"), (int, "a whole number"), (bool, "true or false")):
        converter.register_structure_hook(primitive, _exactly(primitive, name))
    # a class of its own: else these, which are text too, would be left as plain text
    converter.register_structure_hook(enum.StrEnum, _structure_enums())
    converter.register_structure_hook_factory(is_tuple, _structure_tuple)
    converter.register_unstructure_hook_func(lambda kind: _plain(kind) or _optional_plain(kind), identity)
    converter.register_unstructure_hook_factory(is_tuple, _unstructure_sequence)
    known = by_class.__contains__
    converter.register_structure_hook_factory(known, lambda cls, own: _structure_class(by_class[cls], own))
    converter.register_unstructure_hook_factory(known, lambda cls, own: _unstructure_class(by_class[cls], own))
    for union in _UNIONS:
        members = tuple(by_class[cls] for cls in get_args(union) if cls in by_class)
        converter.register_structure_hook(union, _structure_tagged(members, converter))
        converter.register_unstructure_hook(union, _unstructure_tagged(members, converter))
    return converter


# -- the forms that stores write ---------------------------------------------------------------------------------


class Form(Generic[T]):
    """One kind of row, as text: its members by tag. `encode` and `decode` are each other's inverse."""

    __slots__ = ("_classes", "_decode", "_encoders", "_table", "name")

    def __init__(self, name: str, classes: tuple[type, ...], table: tuple[Stored, ...] = STORED) -> None:
        self.name = name
        self._classes = classes
        self._table = table
        converter = make_converter(table)
        members = tuple(stored for stored in table if stored.cls in classes)
        self._encoders: dict[type, tuple[_Hook, str]] = {
            stored.cls: (converter.get_unstructure_hook(stored.cls), stored.tag) for stored in members
        }
        self._decode = _structure_tagged(members, converter)

    def encode(self, value: T) -> bytes:
        """The value as JSON.

        Raises:
            InternalError: the value is none of the form's classes.
        """
        found = self._encoders.get(type(value))
        if found is None:
            msg = f"{type(value).__name__} is not a {self.name}"
            raise InternalError(msg)
        encoder, tag = found
        raw = encoder(value)
        raw[TAG] = tag
        try:
            return msgspec.json.encode(raw)
        except UnicodeEncodeError:  # a lone surrogate: models do write half an emoji
            return json.dumps(raw, separators=(",", ":"), default=msgspec.to_builtins).encode()

    def decode(self, data: bytes) -> T:
        """The value that was encoded.

        Raises:
            Corrupt: it is not JSON, or not of this form; with the path of the fault.
        """
        try:
            return cast("T", self._decode(_parsed(data), None))
        except Exception:  # noqa: BLE001 - whatever the bytes did; read again, slowly, it tells its path
            raise self._explained(data) from None

    def _explained(self, data: bytes) -> Corrupt:
        converter = make_converter(self._table, detailed=True)
        members = tuple(stored for stored in self._table if stored.cls in self._classes)
        try:
            _structure_tagged(members, converter)(_parsed(data), None)
        except cattrs.BaseValidationError as detailed:
            told = cattrs.transform_error(detailed, path="$", format_exception=_told)
            return Corrupt(f"a {self.name} cannot be read: {'; '.join(told)}")
        except Exception as plain:  # noqa: BLE001 - as above; what has no path is at the root
            why = plain if isinstance(plain, ValueError) else repr(plain)
            return Corrupt(f"a {self.name} cannot be read: {why} @ $")
        return Corrupt(f"a {self.name} cannot be read")


def _parsed(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:
        return json.loads(data)  # escaped lone surrogates, which the fast parser refuses


def _told(error: BaseException, kind: type | None) -> str:
    if isinstance(error, _Unreadable):
        return str(error)
    return cattrs.v.format_exception(error, kind)


RECORD: Final = cast("Form[Record]", Form("record", get_args(Record)))
AGENT: Final = cast("Form[AgentRow]", Form("agent row", (AgentRow,)))
CALL: Final = cast("Form[CallRow]", Form("call row", (CallRow,)))
OUTCOME: Final = cast("Form[OutcomeRow]", Form("outcome row", (OutcomeRow,)))
KV: Final = cast("Form[KvRow]", Form("key-value row", (KvRow,)))
ENVELOPE: Final = cast("Form[Envelope]", Form("envelope", (Envelope,)))
