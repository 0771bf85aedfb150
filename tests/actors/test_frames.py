"""Whose code is this: every hop between tasks, nurseries and threads that feasibility found, in one table."""

from __future__ import annotations

import contextvars
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from actors.frames import Frames
from actors.ids import AgentId
from actors.waiting import Frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Hop = Callable[["Bench"], Awaitable[None]]

A = Frame(AgentId("a"), 1, "tool", "search")
B = Frame(AgentId("b"), 7, "turn")


class Bench:
    """A root nursery outside all frames, and what the hops saw."""

    def __init__(self, root: trio.Nursery) -> None:
        self.frames = Frames()
        self.root = root
        self.seen: list[Frame | None] = []
        self.release = trio.Event()
        self.noted = trio.Event()

    def note(self) -> None:
        self.seen.append(self.frames.current_owner())
        self.noted.set()

    async def anote(self) -> None:
        self.note()


async def in_the_task(bench: Bench) -> None:
    """The frame's own task."""
    bench.note()


async def in_a_child(bench: Bench) -> None:
    """A task of a nursery opened in the frame, two deep."""

    async def child() -> None:
        async with trio.open_nursery() as inner:  # noqa: ASYNC112 - the nursery is what is looked at
            inner.start_soon(bench.anote)

    async with trio.open_nursery() as nursery:  # noqa: ASYNC112 - the nursery is what is looked at
        nursery.start_soon(child)


async def in_a_foreign_nursery(bench: Bench) -> None:
    """A task started on a nursery outside: structure knows nothing, the open frame's context does."""
    bench.root.start_soon(bench.anote)
    await bench.noted.wait()


async def in_a_system_task(bench: Bench) -> None:
    """A system task without the context: nobody's."""
    trio.lowlevel.spawn_system_task(bench.anote)
    await bench.noted.wait()


async def in_a_system_task_with_context(bench: Bench) -> None:
    """A system task with the frame's context."""
    trio.lowlevel.spawn_system_task(bench.anote, context=contextvars.copy_context())
    await bench.noted.wait()


async def in_a_thread(bench: Bench) -> None:
    """The body of a thread that Trio started."""
    await trio.to_thread.run_sync(bench.note)


async def back_from_a_thread(bench: Bench) -> None:
    """Async code that such a thread runs, in the host task."""
    await trio.to_thread.run_sync(lambda: trio.from_thread.run(bench.anote))


async def back_from_a_thread_sync(bench: Bench) -> None:
    """Sync code that such a thread runs."""
    await trio.to_thread.run_sync(lambda: trio.from_thread.run_sync(bench.note))


async def back_from_an_abandonable_thread(bench: Bench) -> None:
    """Async code of a thread that may be abandoned runs in a system task: the context tells."""
    await trio.to_thread.run_sync(lambda: trio.from_thread.run(bench.anote), abandon_on_cancel=True)


async def back_by_token(bench: Bench) -> None:
    """A thread of Trio's that comes back by an explicit token."""
    token = trio.lowlevel.current_trio_token()
    await trio.to_thread.run_sync(lambda: trio.from_thread.run(bench.anote, trio_token=token))


async def back_from_a_raw_thread(bench: Bench) -> None:
    """A thread that the tool started by itself has no context: nobody's."""
    token = trio.lowlevel.current_trio_token()
    thread = threading.Thread(target=lambda: trio.from_thread.run(bench.anote, trio_token=token))
    thread.start()
    await bench.noted.wait()
    await trio.to_thread.run_sync(thread.join)


async def under_a_fresh_context(bench: Bench) -> None:
    """User code that runs under an empty context: structure decides."""
    contextvars.Context().run(bench.note)


async def under_a_forged_context(bench: Bench) -> None:
    """User code that carries another open frame's context: structure decides."""
    with bench.frames.enter(B):
        forged = contextvars.copy_context()
        bench.frames.keep(B)
    forged.run(bench.note)


async def before_started(bench: Bench) -> None:
    """`await root.start(...)` before `started()`: the task still stands in the caller."""

    async def service(task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC114 - started in this block only
        bench.note()
        task_status.started()

    await bench.root.start(service)


async def after_started(bench: Bench) -> None:
    """After `started()` it has moved out: structure is gone, the context of the open frame is there."""

    async def service(task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC114 - started in this block only
        task_status.started()
        await trio.lowlevel.checkpoint()
        bench.note()

    await bench.root.start(service)
    await bench.noted.wait()


async def from_clean_context(bench: Bench) -> None:
    """Another agent's code, started outside with a clean context: nobody's."""
    bench.frames.clean_context().run(bench.root.start_soon, bench.anote)
    await bench.noted.wait()


async def clean_context_inside(bench: Bench) -> None:
    """A clean context does not hide structure."""
    bench.frames.clean_context().run(bench.note)


TABLE: list[tuple[Hop, Frame | None]] = [
    (in_the_task, A),
    (in_a_child, A),
    (in_a_foreign_nursery, A),
    (in_a_system_task, None),
    (in_a_system_task_with_context, A),
    (in_a_thread, A),
    (back_from_a_thread, A),
    (back_from_a_thread_sync, A),
    (back_from_an_abandonable_thread, A),
    (back_by_token, A),
    (back_from_a_raw_thread, None),
    (under_a_fresh_context, A),
    (under_a_forged_context, A),
    (before_started, A),
    (after_started, A),
    (from_clean_context, None),
    (clean_context_inside, A),
]


@pytest.mark.parametrize(("hop", "owner"), TABLE, ids=lambda value: getattr(value, "__name__", None))
async def test_ree_5_threads_and_tasks_that_a_tool_starts_count_as_the_tool(hop: Hop, owner: Frame | None) -> None:
    """While a tool's frame is open, whatever Trio started on its behalf is the tool's, and nothing else is."""
    async with trio.open_nursery() as root:
        bench = Bench(root)

        async def tool() -> None:
            with bench.frames.enter(A):
                await hop(bench)

        async with trio.open_nursery() as elsewhere:  # noqa: ASYNC112 - the nursery is what is looked at
            elsewhere.start_soon(tool)
        assert bench.seen == [owner], hop.__doc__


async def test_ree_3_what_outlives_its_frame_is_nobodys() -> None:
    """A task left on a foreign nursery and an abandoned thread are nobody's once the frame is closed."""
    async with trio.open_nursery() as root:
        bench = Bench(root)
        go, started = threading.Event(), trio.Event()
        token = trio.lowlevel.current_trio_token()

        async def later() -> None:
            await bench.release.wait()
            bench.note()

        def work() -> None:
            trio.from_thread.run_sync(started.set, trio_token=token)
            go.wait()
            trio.from_thread.run_sync(bench.note, trio_token=token)

        with bench.frames.enter(A):
            root.start_soon(later)
            async with trio.open_nursery() as tool:
                tool.start_soon(partial(trio.to_thread.run_sync, work, abandon_on_cancel=True))
                await started.wait()
                tool.cancel_scope.cancel()
            assert bench.frames.attribution() is A
        bench.release.set()
        await bench.noted.wait()
        bench.noted = trio.Event()
        go.set()
        await bench.noted.wait()
    assert bench.seen == [None, None]


async def test_ree_3_a_kept_frame_still_counts_until_it_is_closed() -> None:
    """What an abort left behind is the agent's until its code has ended, and the end is told once."""
    told: list[Frame] = []
    frames = Frames(told.append)
    with frames.enter(A):
        context = contextvars.copy_context()
        frames.keep(A)
    assert context.run(frames.current_owner) is A
    assert told == []
    assert repr(frames) == "<Frames 1 open, 1 kept>"
    frames.close(A)
    frames.close(A)
    frames.keep(A)
    assert told == [A]
    assert context.run(frames.current_owner) is None
    assert not frames.is_open(A)


async def test_frames_1_a_nursery_opened_before_the_frame_is_not_the_frames() -> None:
    """A task's frame owns the nurseries opened in it, not those that the task had opened before."""
    frames = Frames()
    seen: dict[str, Frame | None] = {}

    async def note(name: str) -> None:
        seen[name] = frames.current_owner()

    async with trio.open_nursery() as before:
        with frames.enter(A):
            async with trio.open_nursery() as within:
                frames.clean_context().run(before.start_soon, note, "before")
                frames.clean_context().run(within.start_soon, note, "within")
                await trio.testing.wait_all_tasks_blocked()
    assert seen == {"before": None, "within": A}


async def test_frames_1_the_innermost_frame_owns_and_a_registered_nursery_is_its_turns() -> None:
    """A hook inside a turn owns its own code only: the turn's other tasks stay the turn's."""
    frames = Frames()
    seen: dict[str, Frame | None] = {}
    hooked, done = trio.Event(), trio.Event()

    async def stream() -> None:
        await hooked.wait()
        seen["stream"] = frames.current_owner()
        done.set()

    with frames.enter(B):
        async with trio.open_nursery() as nursery:
            frames.register(nursery, B)
            nursery.start_soon(stream)
            with frames.enter(A):
                hooked.set()
                await done.wait()
                seen["hook"] = frames.current_owner()
                frames.clean_context().run(nursery.start_soon, stream)
                await trio.testing.wait_all_tasks_blocked()
            seen["turn"] = frames.current_owner()
    seen["after"] = frames.current_owner()
    assert seen == {"stream": B, "hook": A, "turn": B, "after": None}
    assert frames.attribution() is None


async def test_frames_2_a_closed_frame_cannot_be_registered_and_is_passed_over() -> None:
    """A nursery of a closed frame inside an open one counts as the open one's."""
    frames = Frames()
    with frames.enter(B):
        ended = Frame(AgentId("a"), 3, "hook", "after_turn")
        with frames.enter(ended):
            frames.close(ended)
            assert frames.current_owner() is B
            assert frames.attribution() is ended
        async with trio.open_nursery() as nowhere:
            with frames.enter(A):
                pass
        with pytest.raises(AssertionError, match="FRAMES-1"):
            frames.register(nowhere, A)
        async with trio.open_nursery() as nursery:
            short = Frame(AgentId("a"), 2, "hook", "before_turn")
            with frames.enter(short):
                frames.register(nursery, short)
            seen: list[Frame | None] = []

            async def child() -> None:
                seen.append(frames.current_owner())

            nursery.start_soon(child)
        assert seen == [B]


async def test_two_supervisors_do_not_see_each_others_frames() -> None:
    """A registry knows its own open frames only, though the context variable is one."""
    mine, theirs = Frames(), Frames()
    with mine.enter(A):
        assert theirs.current_owner() is None
        assert mine.current_owner() is A
