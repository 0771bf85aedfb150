"""The short form: every crash once in memory, some in a file, some pairs and faults; `python -m tests.points`: all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.points.scenes import SCENES
from tests.points.sweep import HERE, PAIRS, Sweep, told
from tests.points.table import POINTS

if TYPE_CHECKING:
    from tests.points.dying import Stretch
    from tests.points.kit import Scene
    from tests.points.table import Moment

EVERY_PAIR = 197
EVERY_IN_A_FILE = 23
EVERY_FAULT = 41
scenes = pytest.mark.parametrize("scene", SCENES, ids=[scene.name for scene in SCENES])
turns = {scene.name: turn for turn, scene in enumerate(SCENES)}
"""Where each scene begins to be sampled, so that not all of them are cut at the same moments."""


def moments_of(seen: tuple[Stretch, ...]) -> list[tuple[int, list[Moment]]]:
    """What a process came to, stretch by stretch."""
    return [(one.first, one.moments) for one in seen]


@pytest.fixture(scope="module")
def whole() -> Sweep:
    """What all scenes together have covered, each counted as it is run."""
    return Sweep("memory")


@scenes
def test_rec_3_a_crash_at_any_moment_breaks_nothing(scene: Scene, whole: Sweep) -> None:
    """A process dies before or behind each commit, or at each edge of a tool or a request: the next one makes it good.

    Some of those that come next die too, at a moment of the recovery.
    """
    first = whole.once(scene)
    whole.twice(scene, first, EVERY_PAIR, turns[scene.name])
    assert not whole.broken, told([whole])


def test_rec_3_moments_of_one_stretch_lead_to_the_same_life() -> None:
    """What lets one crash stand for others: between them nothing is written and nothing happens outside."""
    (scene,) = [one for one in SCENES if one.name == "steer"]
    sweep = Sweep("memory")
    for trial in sweep.once(scene):
        assert trial.lived is not None
        first, rest = trial.lived.seen[0][-1], trial.lived.seen[1:]
        (moments,) = trial.stands
        assert first.moments == list(moments[:1])
        for beside in range(1, len(moments)):
            other = sweep.run(scene, (trial.ats[0] + beside,))
            assert [moments_of(one) for one in other.seen[1:]] == [moments_of(one) for one in rest], trial
    assert not sweep.broken


def test_rec_3_every_point_of_the_list_was_crashed_at(whole: Sweep) -> None:
    """The list has 34 points; each whose feature exists was met by one of the crashes above."""
    if whole.singles == 0:
        pytest.skip("only with the whole module")
    assert len(POINTS) == 34
    assert whole.points == set(HERE), told([whole])
    assert PAIRS >= len(whole.pairs) > 20


@scenes
def test_rec_3_a_crash_breaks_nothing_in_a_file(scene: Scene) -> None:
    """The same on SQLite, at some moments, and some pairs."""
    sweep = Sweep("sqlite")
    first = sweep.once(scene, EVERY_IN_A_FILE, turns[scene.name])
    sweep.twice(scene, first, EVERY_IN_A_FILE, turns[scene.name])
    assert not sweep.broken, told([sweep])


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_rec_3_a_store_that_fails_at_any_operation_breaks_nothing(store: str) -> None:
    """Reads, commits and ownership fail, once or for ever, undone, done or nobody knows: nothing is lost or doubled."""
    sweep = Sweep(store)
    for scene in SCENES:
        if not scene.kills:
            sweep.fails(scene, EVERY_FAULT, turns[scene.name])
    assert sweep.ran["fault"] > 20
    assert not sweep.broken, told([sweep])
