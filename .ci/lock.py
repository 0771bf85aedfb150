"""Re-makes requirements.lock: every package by name, version and the hashes of all its wheels; no address.

pip resolves (for the lowest Python that the project names), the index that pip is configured with lists the sibling
wheels, so that one lock serves every platform and Python. Dependencies that only other targets ask for are found by
evaluating every marker for each target, and the resolution is repeated with them. Run it as `python3 dev.py lock`.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse
import urllib.request
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
LOWEST = "3.11"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {"linux": "Linux", "darwin": "Darwin"}
TIMEOUT_S = 60
ROUNDS_MAX = 5  # each adds what another target asks for; more than this means a loop
HEAD = """\
# Names, versions and hashes of every wheel; no addresses, so any index that has the same files serves.
# Made by `python3 dev.py lock`. Do not edit.
"""


class Pinned(NamedTuple):
    """One package: canonical name, version, hash of the wheel that pip took, requirements, where alone it is needed."""

    name: str
    version: Version
    taken: str
    requires: tuple[Requirement, ...]
    marker: str = ""


class Target(NamedTuple):
    """A Python (major.minor) on a platform (`sys.platform`)."""

    python: str
    platform: str

    def as_marker(self) -> str:
        """The environment marker that holds on this target only."""
        return f'python_version == "{self.python}" and sys_platform == "{self.platform}"'

    def asks_for(self, requirement: Requirement) -> bool:
        """Whether the requirement, outside extras, holds on this target."""
        if requirement.marker is None:
            return True
        python = {"python_version": self.python, "python_full_version": f"{self.python}.0"}
        platform = {"sys_platform": self.platform, "platform_system": PLATFORMS[self.platform], "os_name": "posix"}
        return requirement.marker.evaluate({**python, **platform, "extra": ""})


TARGETS = [Target(python, platform) for python in PYTHONS for platform in PLATFORMS]


def wanted() -> list[str]:
    """What the project asks for, run time and `dev` group together, and pip itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return ["pip", *project["project"]["dependencies"], *project["dependency-groups"]["dev"]]


def pip(*args: str) -> str:
    """Run pip and return what it printed; its own error text goes through, and ends the program."""
    done = subprocess.run([sys.executable, "-m", "pip", *args], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"lock: pip {args[0]} failed with exit code {done.returncode}")
    return done.stdout


def resolve(requirements: list[str], python: str) -> list[Pinned]:
    """Let pip choose one version per package for this Python."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        where = ("--dry-run", "--ignore-installed", "--report", str(report), "--target", folder)
        pip("install", "-qq", *where, "--only-binary=:all:", "--python-version", python, *requirements)
        items = json.loads(report.read_text("utf-8"))["install"]
    return [pinned_from(item) for item in items]


def pinned_from(item: dict[str, dict[str, object]]) -> Pinned:
    """Read one entry of pip's report."""
    meta = item["metadata"]
    archive = item["download_info"]["archive_info"]
    assert isinstance(archive, dict)
    requires = meta.get("requires_dist", [])
    assert isinstance(requires, list)
    name = canonicalize_name(str(meta["name"]))
    return Pinned(name, Version(str(meta["version"])), archive["hashes"]["sha256"], tuple(map(Requirement, requires)))


def missing_elsewhere(pins: list[Pinned]) -> dict[str, list[Target]]:
    """What other targets need and the resolution does not have: each requirement, and the targets that ask for it."""
    names = {pin.name for pin in pins}
    missing: dict[str, list[Target]] = {}
    for requirement in (asked for pin in pins for asked in pin.requires):
        targets = [target for target in TARGETS if target.asks_for(requirement)]
        if targets and canonicalize_name(requirement.name) not in names:
            missing[f"{requirement.name}{requirement.specifier}"] = targets
    return missing


def resolve_everywhere() -> list[Pinned]:
    """Resolve for the lowest Python, then add what other targets need, marked so, until nothing is missing."""
    pins = resolve(wanted(), LOWEST)
    for _ in range(ROUNDS_MAX):
        missing = missing_elsewhere(pins)
        if not missing:
            return sorted(pins)
        for requirement, targets in missing.items():
            marker = " or ".join(target.as_marker() for target in targets)
            print(f"lock: {requirement} for {marker}", file=sys.stderr)
            known = {pin.name for pin in pins}
            added = resolve([requirement], targets[0].python)
            pins += [pin._replace(marker=marker) for pin in added if pin.name not in known]
    sys.exit(f"lock: still incomplete after {ROUNDS_MAX} rounds")


def index_address() -> str:
    """The simple index that pip uses: from its environment, its configuration, else its own default."""
    configured = re.search(r"^(?::env:|\w+)\.index-url='([^']+)'", pip("config", "list"), re.MULTILINE)
    if configured:
        return configured[1].rstrip("/")
    told = re.search(r"\(default (https?://[^\s)]+)", " ".join(pip("download", "--help").split()))
    assert told, "pip no longer says what its default index is"
    return told[1].rstrip("/")


def wheel_hashes(index: str, pin: Pinned) -> list[str]:
    """The sha256 of every wheel of one version that the index has, sorted; yanked files left out."""
    request = urllib.request.Request(  # noqa: S310 -- the address is pip's own
        f"{index}/{urllib.parse.quote(pin.name)}/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 -- likewise
        files = json.load(answer)["files"]
    wheels = [file for file in files if file["filename"].endswith(".whl") and not file.get("yanked")]
    found = {file["hashes"]["sha256"] for file in wheels if parse_wheel_filename(file["filename"])[1] == pin.version}
    if pin.taken not in found:
        sys.exit(f"lock: pip took a wheel of {pin.name} {pin.version} that its index does not list")
    return sorted(found)


def entry(index: str, pin: Pinned) -> str:
    """The lines of one package."""
    print(f"lock: {pin.name} {pin.version}", file=sys.stderr)
    first = f"{pin.name}=={pin.version}" + (f" ; {pin.marker}" if pin.marker else "")
    return " \\\n".join([first, *(f"    --hash=sha256:{value}" for value in wheel_hashes(index, pin))])


def main() -> None:
    """Resolve, then write the lock whole."""
    pins = resolve_everywhere()
    index = index_address()
    part = LOCK.with_suffix(".part")
    part.write_text(HEAD + "\n".join(entry(index, pin) for pin in pins) + "\n", "utf-8")
    part.replace(LOCK)


if __name__ == "__main__":
    main()
