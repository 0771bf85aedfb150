"""Key-value stores of tools and hooks: JSON values, read as the types they were written from.

Three scopes: the agent's is kept, the run's is erased in the commit that settles the run, the call's in the commit that
settles its batch (HOK-4).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final, overload

import attrs

from .building import builder, encode, reasons
from .changes import Erase, KvRow, Put
from .errors import UsageError
from .fitting import Checker
from .schema import schema_of, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from .changes import Operation
    from .ids import AgentId, CallId, RunId

T = TypeVar("T")

AGENT: Final = "agent"
"""The scope that is kept."""
KEY_CHARS: Final = 200
VALUE_BYTES: Final = 262_144


# ruff: noqa: D102 - the stores' own methods say what each verb of the Protocol does


class KvHost(Protocol):
    """Where the values of an agent's stores are read and written."""

    @property
    def agent(self) -> AgentId: ...
    async def read_kv(self, scope: str) -> dict[str, str]: ...
    async def write_kv(self, operations: tuple[Operation, ...]) -> None: ...


def _never() -> None:
    return None


@final
class Kv:
    """A key-value store of JSON values.

    Durable with each call that writes; from a tool with `effect="store"`, and from a hook that writes beside a commit,
    with that commit. Text, numbers, lists, dicts, attrs classes, dataclasses and dates are written; what has no JSON
    form is refused.

    Args:
        host: reads and writes.
        scope: `agent`, a run's id or a call's.
        over: why nothing is written to it any more, or None.
    """

    def __init__(self, host: KvHost, scope: str, over: Callable[[], str | None] = _never) -> None:
        self._host = host
        self._scope = scope
        self._over = over

    @overload
    async def get(self, key: str) -> Any: ...
    @overload
    async def get(self, key: str, as_: type[T]) -> T | None: ...
    @overload
    async def get(self, key: str, as_: type[T], default: T) -> T: ...
    async def get(self, key: str, as_: Any = None, default: Any = None) -> Any:
        """The value of a key.

        Args:
            key: as it was set.
            as_: the type to read it as: any that a tool's parameter may have; without it, plain JSON.
            default: where there is none.

        Raises:
            UsageError: what is there does not fit the type. StoreError.
        """
        text = (await self._host.read_kv(self._scope)).get(key)
        if text is None:
            return default
        value = json.loads(text)
        return value if as_ is None else _read(key, value, as_)

    async def set(self, key: str, value: object) -> None:
        """Write a value.

        Raises:
            UsageError: it has no JSON form, is over 256 KiB, or the key is not 1 to 200 characters; the scope is
                over, and its values are erased. StoreError: nothing was written.

        Durable: on return, or with the commit that it is staged for.
        """
        await self._write(key, Put(KvRow(self._host.agent, self._scope, _checked(key), _text(key, value))))

    async def delete(self, key: str) -> None:
        """Remove a key; one that is not there is no error. Durable: as `set`."""
        await self._write(key, Erase(KvRow, (self._host.agent, self._scope, _checked(key))))

    async def _write(self, key: str, operation: Operation) -> None:
        why = self._over()
        if why is not None:
            raise UsageError(f"{key!r} was not written: {why}")
        await self._host.write_kv((operation,))

    def __repr__(self) -> str:
        return f"<Kv of {self._scope}>"


@final
@attrs.frozen
class Stores:
    """The stores that code of an agent may use.

    Attributes:
        agent: the agent's, kept. run: the run's, erased in the commit that settles the run.
    """

    agent: Kv
    run: Kv


@final
@attrs.frozen
class CallStores:
    """The stores that a tool call may use.

    Attributes:
        agent: the agent's, kept. run: the run's, erased in the commit that settles the run.
        call: the call's own, there again when the call is run again, erased with the batch.
    """

    agent: Kv
    run: Kv
    call: Kv


def stores(host: KvHost, run: RunId, over: Callable[[], str | None]) -> Stores:
    """The stores of code that is over some time."""
    return Stores(Kv(host, AGENT), Kv(host, run, over))


def call_stores(host: KvHost, run: RunId, call: CallId, over: Callable[[], str | None]) -> CallStores:
    """The stores of a call."""
    return CallStores(Kv(host, AGENT), Kv(host, run, over), Kv(host, call, over))


def _checked(key: object) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= KEY_CHARS:
        raise UsageError(f"a key is text of 1 to {KEY_CHARS} characters; got {key!r}")
    _utf8(key, f"the key {key!r}")
    return key


def _text(key: str, value: object) -> str:
    text = encode(value)
    size = len(_utf8(text, f"the value of {key!r}"))
    if size > VALUE_BYTES:
        raise UsageError(
            f"the value of {key!r} is {size} bytes; at most {VALUE_BYTES} are kept: keep a part, or a path"
        )
    return text


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{what} is no text that can be stored: {error.reason}") from error


def _read(key: str, value: Any, as_: Any) -> Any:
    where = f"kv.get({key!r}, {type_name(as_)})"
    checker, build = Checker(schema_of(as_, where)), builder(as_, where)
    if not checker.valid(value):
        raise UsageError(f"{where}: {'; '.join(checker.errors(value)).replace('the arguments', 'the value')}")
    try:
        return value if build is None else build(value)
    except Exception as error:  # classes check their fields with code of their own
        raise UsageError(f"{where}: {'; '.join(reasons(error, 'the value'))}") from error
