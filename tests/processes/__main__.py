"""Owner processes over one store file, killed and stopped at random; says what broke a promise.

python -m tests.processes --seconds 60 --seed 7       counts, a line of progress, what was found
python -m tests.processes --seconds 3600 --slices 60  an hour, in stores of a minute each, with a seed each

A seed draws what every process does and what is done to it, not how the machine schedules them: the same seed is the
same load, seldom the same life. So the store and the log of a run that broke something are kept, and named.
Exit code 1 where a promise was broken, 3 where none was and an owner ended with an error all the same.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.processes.driver import counted
from tests.processes.running import new_seed, run

SHOWN = 20


def main(arguments: list[str]) -> int:
    """Run, print; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.processes", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--seconds", type=float, default=60.0, help="in which processes are killed and stopped, in all")
    parser.add_argument("--slices", type=int, default=1, help="so many stores, one behind the other")
    parser.add_argument("--seed", default=None, help="any text; the n-th slice behind the first adds .n to it")
    parser.add_argument("--lease", type=float, default=1.0, help="seconds of a lease")
    parser.add_argument("--keep", action="store_true", help="keep the store and the log in any case")
    options = parser.parse_args(arguments)
    first = options.seed or new_seed()
    broke, ended, counts, errors = 0, 0, Counter[str](), Counter[str]()
    for number in range(options.slices):
        seed = first if number == 0 else f"{first}.{number}"
        folder = Path(tempfile.mkdtemp(prefix="processes-"))
        began = time.monotonic()

        def say(text: str, seed: str = seed) -> None:
            print(f"seed {seed}: {text}", file=sys.stderr, flush=True)

        ran = run(folder, seed=seed, seconds=options.seconds / options.slices, lease_s=options.lease, say=say)
        counts.update(ran.counts)
        errors.update(ran.errors)
        if ran.problems:
            broke += len(ran.problems) - ran.ended
            ended += ran.ended
            print(f"seed {seed} BROKE {len(ran.problems)} (store and log: {folder})")
            for problem in ran.problems[:SHOWN]:
                print(f"   {problem}")
            print(f"   replay: python -m tests.processes --seconds {options.seconds / options.slices:g} --seed {seed}")
        elif not options.keep:
            shutil.rmtree(folder)
        say(f"{time.monotonic() - began:.0f} s, {len(ran.problems)} violations")
    print(f"raised: {counted(errors) or 'nothing'}")
    found = f"{ended} owners ended with an error, {broke} violations"
    print(f"{options.seconds:g} s, seed {first}: {counted(counts)}, {found}")
    return 1 if broke else 3 if ended else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
