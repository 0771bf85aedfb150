"""Where the command `callboard` starts: it makes sure that the package `supervisor` is ours.

PyPI's process manager installs a package of the same name. Where both are installed, or the other one stands earlier
on the path, importing would fail in ways that explain nothing; so this says plainly what is wrong. It takes nothing
from the package's `__init__`, which imports nothing by itself: all that takes time is imported in `main`, where a
Ctrl-C is one line.
"""

from __future__ import annotations

import importlib
import sys

ENVIRONMENT = 3
INTERRUPTED = 130
OTHERS = ("supervisord.py", "supervisorctl.py", "childutils.py")
"""Modules of the process manager; none of ours has such a name."""
SOURCE = "CHECKOUT-OR-REPOSITORY"
"""What stands for what callboard was installed from: a bare name would ask an index, which may know another of it."""


def main() -> int:
    """Run the command, or say why this environment cannot.

    Returns:
        The exit code: 3 where the environment is wrong, else the command's.
    """
    try:
        return _main()
    except KeyboardInterrupt:
        sys.stderr.write("callboard: interrupted\n")
        return INTERRUPTED


def _main() -> int:
    from pathlib import Path  # noqa: PLC0415 - it takes longer than all else here: not before Ctrl-C is caught

    here = Path(__file__).resolve().parent
    if foreign := [name for name in OTHERS if (here / name).exists()]:
        return _refuse(
            f"the package `supervisor` in {here} is mixed with PyPI's process manager ({', '.join(foreign)}).",
            f"give callboard an environment of its own: python3 -m venv .venv && .venv/bin/pip install {SOURCE}",
        )
    package = sys.modules.get(__package__ or "supervisor")
    found = getattr(package, "__file__", None)
    if found is None or Path(found).resolve().parent != here:
        what = found or "a folder without __init__.py"
        return _refuse(
            f"the package `supervisor` that Python imports is not callboard's: {what}",
            "remove PyPI's `supervisor` from this environment, or give callboard one of its own",
        )
    try:
        command = importlib.import_module("supervisor.cli")
    except ModuleNotFoundError as error:
        return _refuse(
            f"a module that callboard needs is missing: {error.name}",
            f"install callboard again: pip install --force-reinstall {SOURCE}",
        )
    code: int = command.main(sys.argv[1:])
    return code


def _refuse(problem: str, advice: str) -> int:
    sys.stderr.write(f"callboard: {problem}\n{advice}\n")
    return ENVIRONMENT
