"""Crash a process at every moment, once and in pairs; fail every operation of its store; look at what is left.

python -m tests.points                       everything, on both stores: an hour or so
python -m tests.points --seconds 600         as far as that gets
python -m tests.points --scene steer --at 12,3      one life: its first process dies at moment 12, its second at 3

Exit code 1 where a promise was broken.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.points.scenes import SCENES
from tests.points.sweep import Sweep, told


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.points", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scene", choices=[scene.name for scene in SCENES], help="one scene only")
    parser.add_argument("--at", help="moments, one a process")
    parser.add_argument("--store", choices=("memory", "sqlite"), help="one store only")
    parser.add_argument("--every", type=int, default=1, help="one pair in so many")
    parser.add_argument("--seconds", type=float, help="stop after so long")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run; the exit code."""
    options = parsed(arguments)
    scenes = [scene for scene in SCENES if options.scene in (None, scene.name)]
    stores = [options.store] if options.store else ["memory", "sqlite"]
    began = time.monotonic()
    stops_at = None if options.seconds is None else began + options.seconds
    sweeps = []
    for store in stores:
        sweep = Sweep(store, stops_at)
        sweeps.append(sweep)
        if options.at:
            ats = tuple(int(number) for number in options.at.split(","))
            for scene in scenes:
                print(sweep.run(scene, ats))
            continue
        for scene in scenes:
            first = sweep.once(scene)
            if not scene.kills:
                sweep.fails(scene)
            sweep.twice(scene, first, options.every)
            print(f"{time.monotonic() - began:.0f} s: {store} {scene.name}, {len(sweep.broken)} broken", flush=True)
    print(told(sweeps))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if any(sweep.broken for sweep in sweeps) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
