import itertools
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.models.sse import Comment, Event, EventTooLarge, Item, SseDecoder

ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
TEXT = st.text(alphabet=st.sampled_from('a{}": \u2028\u2029\x85\x0b\x0cé😀'), max_size=12).map(str.encode)
LINES = st.one_of(
    TEXT.map(lambda data: b"data: " + data),
    TEXT.map(lambda data: b"data:" + data),
    TEXT.map(lambda data: b": " + data),
    st.sampled_from([b"", b"", b"data", b"event: ping", b"event", b"id: 7", b"retry: 5", b"unknown", b"datax: 1"]),
)
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=12).map(lambda lines: b"".join(line + end for line, end in lines))


def decoded(chunks: list[bytes]) -> list[Item]:
    """All items of a stream that comes in these chunks and ends."""
    decoder = SseDecoder()
    found: list[Item] = []
    for chunk in chunks:
        found += decoder.feed(chunk)
    return found + decoder.close()


def by_lines(stream: bytes) -> list[Event]:
    """The events by the words of the standard, a line at a time: the second opinion."""
    found: list[Event] = []
    data: list[bytes] = []
    name = b""
    for line in [*stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""]:
        field, _, value = line.partition(b":")
        if not line:
            if data:
                found.append(Event(b"\n".join(data), name.decode()))
            data, name = [], b""
        elif field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return found


@given(STREAMS, st.data())
def test_sse_1_any_chunking_gives_the_same_items(stream: bytes, data: st.DataObject) -> None:
    """SSE-1: however the bytes are cut, between CR and LF and inside characters too, the items are the same."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    whole = decoded([stream])
    assert decoded(chunks) == whole
    assert decoded([stream[at : at + 1] for at in range(len(stream))]) == whole


@given(STREAMS, st.sampled_from([b"", b"\xef\xbb\xbf"]))
def test_the_events_are_those_of_the_standard(stream: bytes, mark: bytes) -> None:
    """Events are what the standard's grammar says, and one byte order mark at the start changes nothing."""
    assert [item for item in decoded([mark + stream]) if isinstance(item, Event)] == by_lines(stream)


@given(st.binary(max_size=60), st.integers(1, 5))
def test_bytes_of_no_meaning_do_no_harm(stream: bytes, size: int) -> None:
    """Any bytes at all give items and no exception, the same in any chunking."""
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert decoded(chunks) == decoded([stream])


def test_q22_only_cr_and_lf_end_a_line() -> None:
    """U+2028, U+2029, U+0085, VT and FF are data."""
    text = "a\u2028b\u2029c\x85d\x0be\x0cf"
    assert decoded([f"data: {text}\n\n".encode()]) == [Event(text.encode())]


def test_q25_data_lines_of_one_event_are_joined() -> None:
    """Several data lines are one event, joined by a line break; an empty one counts."""
    assert decoded([b"data: a\ndata:\ndata: b\n\n"]) == [Event(b"a\n\nb")]


def test_q43_the_last_event_needs_no_blank_line() -> None:
    """P-SSE-EOF: what stands at the end is handed out by `close`, and by it only."""
    decoder = SseDecoder()
    assert decoder.feed(b"event: x\ndata: a\ndata: b") == []
    assert decoder.close() == [Event(b"a\nb", "x")]
    assert decoder.close() == []


def test_q23_comments_are_signs_of_life() -> None:
    """Each comment line, and an event without data, is told as a comment."""
    assert decoded([b": a\n:\n\nevent: ping\n\n"]) == [Comment(), Comment(), Comment()]


@pytest.mark.parametrize("stream", [b"data: " + b"x" * 100, b"data: x\n" * 20, b": " + b"x" * 100])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_sse_2_an_event_is_bounded(stream: bytes, size: int) -> None:
    """SSE-2: one endless line, or one endless event, ends in an error and not in endless memory."""
    decoder = SseDecoder(max_event_bytes=32)
    chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
    with pytest.raises(EventTooLarge):
        deque(map(decoder.feed, chunks), maxlen=0)


def test_sse_2_many_small_events_are_no_large_one() -> None:
    """The bound is one event's: a long stream of small ones passes."""
    decoder = SseDecoder(max_event_bytes=32)
    assert len([item for _ in range(100) for item in decoder.feed(b"data: x\n\n")]) == 100
