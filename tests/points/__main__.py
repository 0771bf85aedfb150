"""Crash a process at every moment, once and in pairs; fail every operation of its store; look at what is left.

python -m tests.points                       everything, on both stores: half an hour
python -m tests.points --seconds 600         as far as that gets: all single crashes first, pairs last
python -m tests.points --scene steer --at 12,3      one life: its first process dies at moment 12, its second at 3

Files lie where the system keeps temporary ones: `TMPDIR=/dev/shm` has them in memory. Exit code 1 where a promise was
broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

from tests.points.scenes import SCENES
from tests.points.sweep import Sweep, told

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.points.kit import Scene
    from tests.points.sweep import Trial

BEGAN: Final = time.monotonic()


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.points", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scene", choices=[scene.name for scene in SCENES], help="one scene only")
    parser.add_argument("--at", help="moments, one a process")
    parser.add_argument("--store", choices=("memory", "sqlite"), help="one store only")
    parser.add_argument("--every", type=int, default=1, help="one pair in so many")
    parser.add_argument("--faults", type=int, default=1, help="one fault in so many")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    parser.add_argument("--stop", action="store_true", help="at the first promise that is broken")
    return parser.parse_args(arguments)


def swept(sweep: Sweep, scenes: Sequence[Scene], options: argparse.Namespace) -> None:
    """Sweep scenes: what finds most for its time comes first."""
    first: dict[str, list[Trial]] = {}

    def once(scene: Scene, _: int) -> None:
        first[scene.name] = sweep.once(scene)

    def fails(scene: Scene, turn: int) -> None:
        if not scene.kills:
            sweep.fails(scene, options.faults, turn)

    def twice(scene: Scene, turn: int) -> None:
        sweep.twice(scene, first[scene.name], options.every, turn)

    passes: tuple[tuple[str, Callable[[Scene, int], None]], ...] = (
        ("one crash", once), ("faults", fails), ("two crashes", twice),
    )  # fmt: skip
    for name, run in passes:
        for turn, scene in enumerate(scenes):
            if sweep.over:
                return
            run(scene, turn)
            seconds = time.monotonic() - BEGAN
            print(f"{seconds:.0f} s: {sweep.store} {scene.name}, {name}, {len(sweep.broken)} broken", flush=True)


def main(arguments: list[str]) -> int:
    """Run; the exit code."""
    options = parsed(arguments)
    scenes = [scene for scene in SCENES if options.scene in (None, scene.name)]
    stops_at = None if options.seconds is None else BEGAN + options.seconds
    sweeps = []
    for store in [options.store] if options.store else ["memory", "sqlite"]:
        sweep = Sweep(store, stops_at, stops=options.stop)
        sweeps.append(sweep)
        if options.at:
            ats = tuple(int(number) for number in options.at.split(","))
            for scene in scenes:
                print(sweep.run(scene, ats))
            continue
        swept(sweep, scenes, options)
    print(told(sweeps))
    print(f"{time.monotonic() - BEGAN:.0f} s")
    return 1 if any(sweep.broken for sweep in sweeps) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
