"""The identifiers, and how each is made.

An id that the pure core needs is derived from what it names, so it needs no randomness and is the same
after a restart. Only messages and owners, which any process may make, carry random bits, drawn by the shell.
"""

from __future__ import annotations

from typing import Final, NewType

AgentId = NewType("AgentId", str)
"""The agent's path, `lead/reviewer#2`: its ordinal comes from its parent's counter and is never used again."""
TreeId = NewType("TreeId", str)
"""The path of the tree's root."""
MessageId = NewType("MessageId", str)
"""`m-` and the sender's process token and counter."""
RunId = NewType("RunId", str)
"""`PATH:rN`, N counted per agent from 1."""
TurnId = NewType("TurnId", str)
"""`PATH:tN`, N counted per agent from 1."""
CallId = NewType("CallId", str)
"""`PATH:tN.S.I`: turn, step and ordinal in the batch. The tool's idempotency key is made from it."""
RequestId = NewType("RequestId", str)
"""`PATH:tN.S`: the request of one step; its attempts share it."""

MAX_NAME_CHARS: Final = 64


def child_path(parent: str, name: str, ordinal: int) -> AgentId:
    """The path of the `ordinal`-th (from 1) child `name` of `parent`; a root has parent ``""``."""
    own = name if ordinal == 1 else f"{name}#{ordinal}"
    return AgentId(f"{parent}/{own}" if parent else own)


def parent_path(path: str) -> str:
    """The parent's path; ``""`` for a root."""
    return path.rpartition("/")[0]


def tree_of(path: str) -> TreeId:
    """The tree that a path belongs to."""
    return TreeId(path.partition("/")[0])


def name_of(path: str) -> str:
    """The agent's name: the last part of the path without its ordinal."""
    return path.rpartition("/")[2].partition("#")[0]


def ordinal_of(path: str) -> int:
    """The ordinal of an agent among those of its name: 2 of `lead/kid#2`, 1 of `lead/kid`."""
    return int(path.rpartition("/")[2].partition("#")[2] or 1)


def run_id(agent: str, number: int) -> RunId:
    """The id of an agent's `number`-th run, counted from 1."""
    return RunId(f"{agent}:r{number}")


def turn_id(agent: str, number: int) -> TurnId:
    """The id of an agent's `number`-th turn, counted from 1."""
    return TurnId(f"{agent}:t{number}")


def agent_of(identifier: str) -> AgentId:
    """The agent that a run, turn, request or call id belongs to."""
    return AgentId(identifier.rpartition(":")[0])


def request_id(turn: TurnId, step: int) -> RequestId:
    """The id of the request of a turn's `step`-th step, counted from 1."""
    return RequestId(f"{turn}.{step}")


def call_id(turn: TurnId, step: int, ordinal: int) -> CallId:
    """The id of the `ordinal`-th call, from 0, of the batch of a step."""
    return CallId(f"{turn}.{step}.{ordinal}")
