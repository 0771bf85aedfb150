"""Requests and conversations for the tests of models."""

from actors.content import Text
from actors.conversation import Conversation
from actors.ids import AgentId, MessageId, RequestId, TurnId
from actors.ports import ModelRequest
from actors.transcript import MessageRecord, Record


def a_request(
    agent: str = "lead", step: int = 1, *, text: str = "Hello?", records: tuple[Record, ...] = ()
) -> ModelRequest:
    """A small request of an agent's first turn."""
    turn = TurnId(f"{agent}:t1")
    said = records or (MessageRecord(turn, MessageId("m-1"), (Text(text),)),)
    return ModelRequest(
        RequestId(f"{turn}.{step}"),
        AgentId(agent),
        "m",
        "Be brief.",
        Conversation(said).window(),
        max_output_tokens=100,
    )
