"""Sets callboard up and runs things in it, on a machine that has nothing but Python.

python3 dev.py                   set up, then run `callboard demo`
python3 dev.py test              set up, then ruff, mypy, flake8-async and pytest (.ci/checks.py), each with its seconds
python3 dev.py test ARGS...      set up, then pytest ARGS... only; `--slow` among them runs the slow tests as well
python3 dev.py lock              make requirements.lock anew from pyproject.toml (the only part that chooses versions)
python3 dev.py COMMAND ARGS...   set up, then run COMMAND of .venv: callboard, python, pytest, ruff, mypy, ...

The set-up makes .venv and installs exactly what requirements.lock pins, each file checked against its hash. It is
done again when the lock changes, and costs nothing otherwise. pip comes from wherever the machine has one: uv, the
venv module, another pip, or Debian's pip package, unpacked without root. Where there is none, the one line to type is
printed and the exit code is 3. Progress goes to standard error. A set-up that failed exits with 1.
"""

import sys

# All of this file parses on Python 3.6 (no `match`, no `:=`), so that an old one gets this line, not a syntax error.
if sys.version_info < (3, 11):  # noqa: UP036 -- this is what an old Python is told
    sys.exit(f"callboard needs Python 3.11 or newer; this is {sys.version.split()[0]} ({sys.executable})")
if sys.platform == "win32":
    sys.exit("callboard's set-up runs on Linux and macOS; on Windows, run it inside WSL")

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import tomllib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"
FORMAT = "1"  # raised when the way of setting up changes, so that every .venv is made anew
PIP_MIN = (22, 3)  # the first with --python
DOWNLOAD_TIMEOUT_S = 600
TAIL_LINES = 25
DISTRIBUTION_WHEELS = Path("/usr/share/python-wheels")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# What another venv, conda, or a setting meant for other installs would change in ours.
FOREIGN = re.compile(
    r"__PYVENV_LAUNCHER__|PYTHON(PATH|HOME|STARTUP|USERBASE|EXECUTABLE|PLATLIBDIR)|VIRTUAL_ENV.*|_?CONDA_.*"
    r"|PIP_(TARGET|PREFIX|ROOT|PYTHON|USER|REQUIREMENT|CONSTRAINT|NO_BINARY|ONLY_BINARY|NO_DEPS|DRY_RUN|REQUIRE_\w+)"
    r"|UV_(PYTHON|TARGET|PREFIX|PROJECT\w*|SYSTEM_PYTHON|CONSTRAINT|OVERRIDE|NO_BINARY\w*|ONLY_BINARY\w*|REQUIRE_\w+)"
)
# By package manager: what brings pip or the venv module's own copy of it.
ADVICE = {
    "apt-get": "apt-get install -y python3-venv",
    "dnf": "dnf install -y python3-pip",
    "apk": "apk add py3-pip",
    "zypper": "zypper install -y python3-pip",
    "pacman": "pacman -S --noconfirm python-pip",
    "brew": "brew install python",
}


class SetupError(Exception):
    """The set-up cannot go on: a message that says what to do, and the exit code."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Installer(NamedTuple):
    """Something that can install into .venv: its name, its command up to `install`, and variables to set for it."""

    name: str
    command: tuple[str, ...]
    extra: tuple[tuple[str, str], ...] = ()


def say(text: str) -> None:
    """Print one line of progress."""
    print(text, file=sys.stderr, flush=True)


def cleaned(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for children: nothing of another venv, conda or PYTHONPATH, and .venv in front."""
    kept = {name: value for name, value in environ.items() if not FOREIGN.fullmatch(name)}
    path = os.pathsep.join([str(VENV / "bin"), kept.get("PATH", os.defpath)])
    pip = {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    return kept | pip | {"PATH": path, "VIRTUAL_ENV": str(VENV)}


def found(name: str, env: Mapping[str, str]) -> str | None:
    """Where a program is on PATH, outside our own .venv."""
    ours = str(VENV / "bin")
    path = os.pathsep.join(part for part in env["PATH"].split(os.pathsep) if part != ours)
    return shutil.which(name, path=path)


def answers(command: Sequence[str], env: Mapping[str, str], *, cwd: Path = ROOT, timeout_s: float = 30) -> str | None:
    """What a command prints, or None where it fails, hangs or does not exist."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, env=env, cwd=cwd, timeout=timeout_s, check=True, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ).stdout  # fmt: skip
    return None


# ------------------------------------------------------------------------------------------------- is it in sync?


class Stamp(NamedTuple):
    """What .venv was made from; written last, so a half-made .venv has none."""

    packages: str
    project: str

    @classmethod
    def wanted(cls) -> "Stamp":
        """The stamp that a .venv made now, with the Python it has, would carry."""
        interpreter = str((VENV / "bin/python").resolve())
        packages = hashlib.sha256(f"{FORMAT}\n{ROOT}\n{interpreter}\n".encode() + LOCK.read_bytes())
        return cls(packages.hexdigest(), hashlib.sha256(PROJECT.read_bytes()).hexdigest())

    @classmethod
    def read(cls) -> "Stamp | None":
        """The stamp in .venv, or None where it has none or its Python is gone."""
        with suppress(OSError, ValueError, TypeError):
            if (VENV / "bin/python").exists():
                return cls(**json.loads((VENV / "callboard-stamp.json").read_text("utf-8")))
        return None

    def write(self) -> None:
        """Put the stamp in .venv, whole or not at all."""
        part = VENV / "callboard-stamp.part"
        part.write_text(json.dumps(self._asdict()), "utf-8")
        part.replace(VENV / "callboard-stamp.json")


@contextmanager
def alone() -> Iterator[int]:
    """Hold the set-up's lock; the installers inherit it, so one that outlives us still keeps the others out."""
    with (ROOT / ".venv.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("callboard: another set-up is at work here; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def set_up(environ: Mapping[str, str]) -> None:
    """Bring .venv in line with the lock and the project.

    Raises:
        SetupError: nothing can install here, or the installation failed; .venv then carries no stamp.
    """
    if Stamp.read() == Stamp.wanted():
        return
    try:
        with alone() as lock:
            have = Stamp.read()
            if have == Stamp.wanted():
                return
            if have is None or have.packages != Stamp.wanted().packages:
                make_venv(cleaned(environ), lock)
            write_project(VENV)
            Stamp.wanted().write()
    except OSError as error:
        raise SetupError(f"cannot write .venv: {error}. If another user made it, remove it as that user") from error


# --------------------------------------------------------------------------------------------------- making .venv


def make_venv(env: Mapping[str, str], lock: int) -> None:
    """Make .venv anew and install what the lock pins."""
    began = time.monotonic()
    python = os.path.realpath(sys.executable)
    say(f"callboard: making .venv with Python {sys.version.split()[0]} (once; a minute or less)")
    if VENV.exists():
        (VENV / "callboard-stamp.json").unlink(missing_ok=True)
        shutil.rmtree(VENV)
    if answers([python, "-m", "venv", "--without-pip", str(VENV)], env) is None:
        raise SetupError(advice(env), 3)
    for rung in LADDER:
        installer = rung(env, python)
        if installer and installs(installer, env, lock):
            shutil.rmtree(VENV / "bootstrap", ignore_errors=True)
            say(f"callboard: ready in {time.monotonic() - began:.1f} s")
            return
    raise SetupError(advice(env), 3)


def from_uv(env: Mapping[str, str], _python: str) -> Installer | None:
    """Uv, where it is on PATH."""
    uv = found("uv", env)
    return Installer("uv", (uv, "pip", "install", "--python", venv_python())) if uv else None


def from_wheel(_env: Mapping[str, str], _python: str) -> Installer | None:
    """The pip wheel that Python carries for its venvs (run as it is: unpacking it first takes seconds)."""
    folders = [Path(os.__file__).parent / "ensurepip/_bundled"]
    if sys.base_prefix == "/usr":  # a distribution keeps it apart, for its own Python
        folders.append(DISTRIBUTION_WHEELS)
    wheels = [wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))]
    return Installer("the venv module's pip", (venv_python(), str(wheels[0] / "pip"), "install")) if wheels else None


def from_other_pip(env: Mapping[str, str], python: str) -> Installer | None:
    """A pip that lives elsewhere and is new enough to install into .venv."""
    pips = [[program] for program in (found("pip3", env), found("pip", env)) if program]
    pythons = [python, *(found(f"python3.{minor}", env) for minor in range(20, 10, -1))]
    for command in [*([program, "-m", "pip"] for program in pythons if program), *pips]:
        version = re.match(r"pip (\d+)\.(\d+)", answers([*command, "--version"], env) or "")
        if version and (int(version[1]), int(version[2])) >= PIP_MIN:
            return Installer(shlex.join(command), (*command, "--python", venv_python(), "install"))
    return None


def from_debian(env: Mapping[str, str], _python: str) -> Installer | None:
    """Debian's pip wheel, downloaded and unpacked by apt and dpkg into .venv/bootstrap: as any user."""
    if not (found("apt-get", env) and found("dpkg-deb", env)):
        return None
    folder = VENV / "bootstrap"
    folder.mkdir()
    bare = not CERTIFICATES.exists()
    say("callboard: no pip on this machine; taking it out of Debian's package")
    if not downloaded(folder, ["python3-pip-whl", *(["ca-certificates"] if bare else [])], env):
        return None
    wheels = sorted(folder.glob(f"{DISTRIBUTION_WHEELS.relative_to('/')}/pip-*.whl"))
    if not wheels:
        return None
    trusted = not bare or env.keys() & {"PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"}
    extra = () if trusted else (("PIP_CERT", joined_certificates(folder)),)
    return Installer("Debian's pip", (venv_python(), str(wheels[-1] / "pip"), "install"), extra)


def downloaded(folder: Path, packages: list[str], env: Mapping[str, str]) -> bool:
    """Download and unpack Debian packages into `folder`; with package lists of its own where the system's do not do."""

    def works(*command: str) -> bool:
        return answers(command, env, cwd=folder, timeout_s=DOWNLOAD_TIMEOUT_S) is not None

    apt = ["apt-get", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1"]
    if not works(*apt, "download", *packages):
        say("callboard: reading Debian's package lists")
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True)
        apt += ["-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
        if not (works(*apt, "update") and works(*apt, "download", *packages)):
            say("callboard: apt-get could not download " + " ".join(packages))
            return False
    return all(works("dpkg-deb", "-x", str(deb), str(folder)) for deb in sorted(folder.glob("*.deb")))


def joined_certificates(folder: Path) -> str:
    """One file of all certificates of an unpacked ca-certificates package."""
    target = folder / "certificates.pem"
    parts = sorted(folder.glob("usr/share/ca-certificates/**/*.crt"))
    target.write_text("\n".join(part.read_text("utf-8") for part in parts), "utf-8")
    return str(target)


LADDER: tuple[Callable[[Mapping[str, str], str], Installer | None], ...] = (
    from_uv,
    from_wheel,
    from_other_pip,
    from_debian,
)


def advice(env: Mapping[str, str]) -> str:
    """The one line to type where nothing on the machine can install."""
    again = shlex.join(["python3", "dev.py", *sys.argv[1:]])
    for manager, command in ADVICE.items():
        if found(manager, env):
            sudo = "" if manager == "brew" or os.geteuid() == 0 else "sudo "
            return f"there is no pip here. Type: {sudo}{command} && {again}"
    return f"there is no pip here. Install pip for {sys.executable}, or uv, then type: {again}"


def venv_python() -> str:
    """The interpreter of .venv."""
    return str(VENV / "bin/python")


def installs(installer: Installer, env: Mapping[str, str], lock: int) -> bool:
    """Install what the lock pins; False where this installer failed and the next may do better.

    Raises:
        SetupError: pip itself failed: the next one would meet the same.
    """
    total = sum("==" in line for line in LOCK.read_text("utf-8").splitlines())
    say(f"callboard: installing {total} packages with {installer.name}")
    command = [*installer.command, "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK)]
    if installer.name != "uv":
        command.append("--no-compile")  # halves the wait; what is used gets compiled when it is first used
    code, tail = watched(command, dict(env) | dict(installer.extra), lock, total)
    if code == 0:
        return True
    report = f"{installer.name} failed (exit code {code}):\n" + "".join(tail)
    if installer.name != "uv":
        raise SetupError(report + "\nNothing was kept. Mend this and run the same command again.")
    say(f"callboard: {report}callboard: trying without uv")
    return False


def watched(command: list[str], env: Mapping[str, str], lock: int, total: int) -> tuple[int, deque[str]]:
    """Run an installer, show how far it is, and return its exit code and its last lines."""
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    count = 0
    with subprocess.Popen(
        command, env=env, pass_fds=[lock], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        for line in process.stdout or ():
            tail.append(line)
            package = re.match(r"Collecting ([^\s(]+)", line)
            count += bool(package)
            if package:
                progress(f"{count}/{total} {package[1]}")
            elif line.startswith("Installing collected packages"):
                progress(f"{total}/{total} downloaded, unpacking")
    progress("")
    return process.returncode, tail


def progress(text: str) -> None:
    """Show where the installation is, on a terminal only, in place."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


# ----------------------------------------------------------------------------------------- the project itself


def write_project(venv: Path) -> None:
    """Install this checkout into a venv, editable: a path, metadata and commands, with no build and no network."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    site = next(venv.glob("lib/python3*/site-packages"))
    for old in site.glob(f"{project['name']}-*.dist-info"):
        shutil.rmtree(old)
    commands = project.get("scripts", {})
    points = {"console_scripts": commands, **project.get("entry-points", {})}
    info = f"{project['name']}-{project['version']}.dist-info"
    files = {
        f"{project['name']}.pth": f"{ROOT}\n",
        f"{info}/METADATA": "".join(f"{line}\n" for line in metadata(project)),
        f"{info}/INSTALLER": "dev.py\n",
        f"{info}/direct_url.json": json.dumps({"url": ROOT.as_uri(), "dir_info": {"editable": True}}),
        f"{info}/entry_points.txt": "".join(
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
            for group, entries in points.items()
        ),
        **{f"../../../bin/{name}": script(venv, target) for name, target in commands.items()},
    }
    (site / info).mkdir()
    for name, text in files.items():
        (site / name).write_text(text, "utf-8")
    for name in commands:
        (venv / "bin" / name).chmod(0o755)
    (site / info / "RECORD").write_text("".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]), "utf-8")


def metadata(project: dict[str, str | list[str]]) -> Iterator[str]:
    """The lines of a METADATA file."""
    yield "Metadata-Version: 2.1"
    yield f"Name: {project['name']}"
    yield f"Version: {project['version']}"
    yield f"Summary: {project['description']}"
    yield f"Requires-Python: {project['requires-python']}"
    for requirement in project["dependencies"]:
        yield f"Requires-Dist: {requirement}"


def script(venv: Path, target: str) -> str:
    """A command's text; started through sh, since a path with a space or a long one does not fit a `#!` line."""
    module, function = target.split(":")
    start = f"import sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"
    return f"#!/bin/sh\n'''exec' \"{venv}/bin/python\" \"$0\" \"$@\"\n' '''\n{start}"


# ------------------------------------------------------------------------------------------------------- commands


def become(command: list[str]) -> NoReturn:
    """Turn this process into a command of .venv, so that its signals and exit code are the caller's."""
    program = VENV / "bin" / command[0]
    if "/" in command[0] or not os.access(program, os.X_OK):
        raise SetupError(f"there is no command {command[0]!r} in .venv; `python3 dev.py --help` says what there is", 2)
    sys.stdout.flush()
    os.execve(program, [str(program), *command[1:]], cleaned(os.environ))  # noqa: S606 -- no shell on purpose


def main(args: list[str]) -> int:
    """Set up, then do what the arguments say; returns the exit code where it does not become another program."""
    if args[:1] in (["--help"], ["-h"], ["help"]):
        print(__doc__)
        return 0
    set_up(os.environ)
    command, rest = (args[0], args[1:]) if args else ("callboard", ["demo"])
    if command == "test" and not rest:
        become(["python", str(ROOT / ".ci/checks.py")])
    if command == "test":
        os.chdir(ROOT)
        everything = ["-m", "slow or not slow"] if "--slow" in rest else []
        become(["pytest", *everything, *(arg for arg in rest if arg != "--slow")])
    if command == "lock":
        become(["python", str(ROOT / ".ci/lock.py"), *rest])
    become([command, *rest])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        say(f"dev.py: {error}")
        sys.exit(error.code)
    except KeyboardInterrupt:
        say("dev.py: interrupted; run the same command again")
        sys.exit(130)
