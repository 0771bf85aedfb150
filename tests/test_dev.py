"""The set-up: when it runs, where it finds pip, what it says, and what it hands on. Nothing here uses a network."""

import ast
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import dev

ROOT = Path(__file__).resolve().parents[1]
PYTHON = os.path.realpath(sys.executable)


def program(path: Path, text: str) -> Path:
    """A program of a few lines of sh."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", "utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up checkout in a path with a space, whose .venv has an interpreter and nothing else, and no stamp."""
    root = tmp_path / "a checkout"
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/lib/python3.11/site-packages").mkdir(parents=True)
    (root / ".venv/bin/python").symlink_to(PYTHON)
    (root / ".ci").mkdir()
    for name in ("dev.py", "pyproject.toml", ".ci/checks.py"):
        (root / name).write_bytes((ROOT / name).read_bytes())
    (root / "requirements.lock").write_text("a==1 \\\n    --hash=sha256:00\n", "utf-8")
    for name, file in {"ROOT": "", "VENV": ".venv", "LOCK": "requirements.lock", "PROJECT": "pyproject.toml"}.items():
        monkeypatch.setattr(dev, name, root / file)
    return root


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder that is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def on(machine: Path, **more: str) -> dict[str, str]:
    """The environment of a machine with only the fake programs and /bin's."""
    return {"PATH": f"{machine}:/nowhere", **more}


def dev_py(checkout: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run the made-up checkout's dev.py, as people do."""
    command = [sys.executable, str(checkout / "dev.py"), *args]
    return subprocess.run(command, capture_output=True, text=True, cwd=checkout.parent, check=False)


# ------------------------------------------------------------------------------------------------ when it runs


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the set-up did: `venv` and `project`, in order."""
    done: list[str] = []
    monkeypatch.setattr(dev, "make_venv", lambda env, lock: done.append("venv"))
    monkeypatch.setattr(dev, "write_project", lambda venv: done.append("project"))
    return done


def test_a_new_checkout_is_set_up_one_time(checkout: Path, made: list[str]) -> None:
    """The first call makes .venv, the second does nothing."""
    dev.set_up({})
    dev.set_up({})
    assert made == ["venv", "project"]


def test_a_changed_lock_makes_the_venv_anew(checkout: Path, made: list[str]) -> None:
    """Another lock means another .venv."""
    dev.set_up({})
    dev.LOCK.write_text("a==2\n", "utf-8")
    dev.set_up({})
    assert made == ["venv", "project"] * 2


def test_a_changed_project_installs_only_itself_anew(checkout: Path, made: list[str]) -> None:
    """A change of pyproject.toml alone leaves the packages where they are."""
    dev.set_up({})
    dev.PROJECT.write_text(dev.PROJECT.read_text("utf-8") + "# more\n", "utf-8")
    dev.set_up({})
    assert made == ["venv", "project", "project"]


def test_another_interpreter_makes_the_venv_anew(checkout: Path, made: list[str]) -> None:
    """A .venv whose Python was upgraded under it is not used."""
    dev.set_up({})
    link = checkout / ".venv/bin/python"
    link.unlink()
    link.symlink_to("/bin/sh")
    dev.set_up({})
    assert made == ["venv", "project"] * 2


def test_a_lost_interpreter_makes_the_venv_anew(checkout: Path, made: list[str]) -> None:
    """A .venv whose Python is gone is not used."""
    dev.set_up({})
    (checkout / ".venv/bin/python").unlink()
    dev.set_up({})
    assert made == ["venv", "project"] * 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"packages": "x"}', '{"other": 1}'])
def test_a_broken_stamp_is_no_stamp(checkout: Path, made: list[str], text: str) -> None:
    """A stamp that cannot be read means a half-made .venv."""
    dev.set_up({})
    (checkout / ".venv/callboard-stamp.json").write_text(text, "utf-8")
    dev.set_up({})
    assert made == ["venv", "project"] * 2


def test_a_failed_set_up_leaves_no_stamp(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set-up that failed at its last step is done again, and tells why."""

    def full(venv: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dev, "make_venv", lambda env, lock: None)
    monkeypatch.setattr(dev, "write_project", full)
    with pytest.raises(dev.SetupError, match="No space left"):
        dev.set_up({})
    assert dev.Stamp.read() is None


def test_the_lock_outlives_us_in_an_installer(checkout: Path) -> None:
    """A second set-up waits for the first, and for an installer that the first left behind when it was killed."""
    with dev.alone() as lock, (checkout / ".venv.lock").open("w") as second:
        left = subprocess.Popen([sys.executable, "-c", "input()"], pass_fds=[lock], stdin=subprocess.PIPE)
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (checkout / ".venv.lock").open("w") as second:
        with pytest.raises(BlockingIOError):
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        left.communicate(b"\n")
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)


# --------------------------------------------------------------------------------------------- where it finds pip


def test_uv_is_taken_where_it_is(checkout: Path, machine: Path) -> None:
    """Uv on PATH installs into .venv by name of its interpreter."""
    assert dev.from_uv(on(machine), PYTHON) is None
    uv = program(machine / "uv", "exit 0")
    found = dev.from_uv(on(machine), PYTHON)
    assert found is not None
    assert found.command == (str(uv), "pip", "install", "--python", dev.venv_python())


def test_a_program_of_our_own_venv_is_not_the_machines(checkout: Path) -> None:
    """What lies in .venv is never used to make .venv."""
    program(checkout / ".venv/bin/uv", "exit 0")
    assert dev.found("uv", dev.cleaned({"PATH": "/nowhere"})) is None


@pytest.mark.parametrize(
    ("version", "taken"), [("22.2.2", False), ("9.0.1", False), ("22.3", True), ("26.3", True), ("", False)]
)
def test_another_pip_must_be_new_enough(checkout: Path, machine: Path, version: str, *, taken: bool) -> None:
    """A pip elsewhere is taken only if it can install into another interpreter's venv."""
    pip = program(machine / "pip3", f'echo "pip {version} from /x (python 3.9)"')
    no_pip = str(program(machine / "python", "exit 1"))
    found = dev.from_other_pip(on(machine), no_pip)
    assert (found is not None) == taken
    if found:
        assert found.command == (str(pip), "--python", dev.venv_python(), "install")


def test_a_pip_that_fails_is_passed_over(checkout: Path, machine: Path) -> None:
    """A pip that does not run is skipped for one that does."""
    program(machine / "pip3", "exit 1")
    other = program(machine / "python3.12", 'echo "pip 24.0 from /x"')
    found = dev.from_other_pip(on(machine), str(program(machine / "python", "exit 1")))
    assert found is not None
    assert found.command[:3] == (str(other), "-m", "pip")


def test_pythons_own_wheel_is_taken(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel that Python carries for its venvs is run as it is; without one there is none."""
    monkeypatch.setattr(os, "__file__", str(tmp_path / "lib/os.py"))
    monkeypatch.setattr(sys, "base_prefix", "/opt/python")
    assert dev.from_wheel({}, PYTHON) is None
    wheel = tmp_path / "lib/ensurepip/_bundled/pip-23.0-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.touch()
    found = dev.from_wheel({}, PYTHON)
    assert found is not None
    assert found.command == (dev.venv_python(), f"{wheel}/pip", "install")


APT = """
echo "$@" >> log
case "$*" in
  *Dir::State::lists*update) touch lists/there;;
  *Dir::State::lists*download*) test -e lists/there && touch a.deb;;
  *download*) {download};;
esac
"""
DPKG = """
mkdir -p usr/share/python-wheels usr/share/ca-certificates/mozilla
touch usr/share/python-wheels/pip-23.0-py3-none-any.whl
echo A > usr/share/ca-certificates/mozilla/a.crt
echo B > usr/share/ca-certificates/mozilla/b.crt
"""


@pytest.fixture
def debian(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Debian with its tools, package lists and certificates."""
    for name in ("mkdir", "touch", "test"):
        (machine / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    program(machine / "apt-get", APT.format(download="touch a.deb"))
    program(machine / "dpkg-deb", DPKG)
    there = tmp_path / "certificates"
    there.touch()
    monkeypatch.setattr(dev, "CERTIFICATES", there)
    return machine


def test_debians_pip_is_downloaded_and_run(checkout: Path, debian: Path) -> None:
    """On a Debian without pip, its pip package is unpacked into .venv, with no root, and run from there."""
    found = dev.from_debian(on(debian), PYTHON)
    assert found is not None
    bootstrap = checkout / ".venv/bootstrap"
    wheel = bootstrap / "usr/share/python-wheels/pip-23.0-py3-none-any.whl"
    assert found.command == (dev.venv_python(), f"{wheel}/pip", "install")
    assert found.extra == ()
    assert (bootstrap / "log").read_text("utf-8").count("\n") == 1


def test_debian_without_lists_gets_its_own(checkout: Path, debian: Path) -> None:
    """Where the system has no package lists, they are read into .venv's own folder, and the download goes on."""
    program(debian / "apt-get", APT.format(download="exit 100"))
    assert dev.from_debian(on(debian), PYTHON) is not None
    log = (checkout / ".venv/bootstrap/log").read_text("utf-8").splitlines()
    assert [line.split()[-1] for line in log] == ["python3-pip-whl", "update", "python3-pip-whl"]


def test_debian_without_certificates_gets_them(
    checkout: Path, debian: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where the system trusts nobody, Debian's certificates come along and pip is told; a setting goes first."""
    monkeypatch.setattr(dev, "CERTIFICATES", tmp_path / "none")
    found = dev.from_debian(on(debian), PYTHON)
    assert found is not None
    assert Path(dict(found.extra)["PIP_CERT"]).read_text("utf-8") == "A\n\nB\n"
    (checkout / ".venv/bootstrap").rename(tmp_path / "first")
    own = dev.from_debian(on(debian, SSL_CERT_FILE="/x.pem"), PYTHON)
    assert own is not None
    assert own.extra == ()


@pytest.mark.parametrize("broken", ["apt-get", "dpkg-deb"])
def test_debian_that_cannot_download_is_passed_over(checkout: Path, debian: Path, broken: str) -> None:
    """A Debian with no network, or whose package does not unpack, has no pip to offer."""
    program(debian / broken, "exit 100")
    assert dev.from_debian(on(debian), PYTHON) is None


@pytest.mark.parametrize(
    ("manager", "typed"),
    [
        ("apt-get", "sudo apt-get install -y python3-venv && python3 dev.py test -k 'a b'"),
        ("dnf", "sudo dnf install -y python3-pip && python3 dev.py test -k 'a b'"),
        ("apk", "sudo apk add py3-pip && python3 dev.py test -k 'a b'"),
        ("zypper", "sudo zypper install -y python3-pip && python3 dev.py test -k 'a b'"),
        ("pacman", "sudo pacman -S --noconfirm python-pip && python3 dev.py test -k 'a b'"),
        ("brew", "brew install python && python3 dev.py test -k 'a b'"),
    ],
)
def test_the_line_to_type(
    checkout: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, manager: str, typed: str
) -> None:
    """Where nothing can install, one line says what to type, for this machine's package manager and this command."""
    monkeypatch.setattr(sys, "argv", ["dev.py", "test", "-k", "a b"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(machine / manager, "exit 0")
    line = dev.advice(on(machine))
    assert line.endswith(f"Type: {typed}")
    assert "\n" not in line
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "sudo" not in dev.advice(on(machine))


def test_no_way_to_install_exits_with_3(checkout: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no rung left the set-up ends with exit code 3 and the line to type."""
    monkeypatch.setattr(dev, "LADDER", (dev.from_uv, dev.from_debian))
    with pytest.raises(dev.SetupError, match="there is no pip here") as caught:
        dev.set_up(on(machine))
    assert caught.value.code == 3


def test_a_failing_uv_gives_way_to_pip(checkout: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When uv fails, the next rung installs."""
    program(machine / "uv", "echo no route; exit 2")
    pip = program(machine / "own-pip", "exit 0")
    monkeypatch.setattr(dev, "LADDER", (dev.from_uv, lambda env, python: dev.Installer("pip", (str(pip),))))
    dev.set_up(on(machine))
    assert dev.Stamp.read() == dev.Stamp.wanted()


def test_a_failing_pip_is_told_with_its_words(checkout: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When pip fails, its own last lines are shown, the exit code is 1, and no stamp is left."""
    pip = program(machine / "own-pip", "echo THESE PACKAGES DO NOT MATCH THE HASHES; exit 1")
    monkeypatch.setattr(dev, "LADDER", (lambda env, python: dev.Installer("pip", (str(pip),)),))
    with pytest.raises(dev.SetupError, match="DO NOT MATCH THE HASHES") as caught:
        dev.set_up(on(machine))
    assert caught.value.code == 1
    assert dev.Stamp.read() is None


def test_every_installer_checks_hashes(checkout: Path, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installer takes wheels only, nothing beside the lock, each by its hash, and gets its own variables."""
    pip = program(machine / "own-pip", 'echo "$PIP_CERT $@" > "$0.log"')
    installer = dev.Installer("pip", (str(pip),), (("PIP_CERT", "/x.pem"),))
    monkeypatch.setattr(dev, "LADDER", (lambda env, python: installer,))
    dev.set_up(on(machine))
    told = Path(f"{pip}.log").read_text("utf-8").strip()
    options = "--no-deps --require-hashes --only-binary :all: -r"
    assert told == f"/x.pem {options} {checkout}/requirements.lock --no-compile"


@pytest.mark.parametrize(
    "name",
    [
        "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV_PROMPT", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PIP_TARGET",
        "PIP_PREFIX", "PIP_NO_BINARY", "PIP_REQUIRE_VIRTUALENV", "UV_PYTHON", "UV_SYSTEM_PYTHON",
    ],
)  # fmt: skip
def test_children_get_a_clean_environment(name: str) -> None:
    """Nothing of another venv, conda, PYTHONPATH or another install's settings reaches a child."""
    assert name not in dev.cleaned({name: "x", "PATH": "/bin"})


@pytest.mark.parametrize("name", ["HOME", "PIP_INDEX_URL", "PIP_CERT", "UV_INDEX_URL", "HTTPS_PROXY", "PYTHONWARNINGS"])
def test_children_keep_what_people_need(name: str) -> None:
    """The settings of this machine's network, and what is meant for the program, reach a child."""
    assert dev.cleaned({name: "x", "PATH": "/bin"})[name] == "x"


# ------------------------------------------------------------------------------------------ what it installs, runs


@pytest.fixture
def ready(checkout: Path) -> Path:
    """A checkout that is in sync, whose .venv has only the programs that a test puts there."""
    dev.Stamp.wanted().write()
    return checkout


def test_the_project_is_installed_editable(tmp_path: Path, checkout: Path) -> None:
    """The command starts this checkout's code, also from a path with a space, and the metadata is the project's."""
    venv = tmp_path / "a venv"
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(venv)], check=True)
    start = checkout / "supervisor/_start.py"
    start.parent.mkdir()
    start.write_text("import sys\n\ndef main():\n    print(sys.argv[1:])\n    return 5\n", "utf-8")
    dev.write_project(venv)
    dev.write_project(venv)
    done = subprocess.run([venv / "bin/callboard", "a", "b c"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("['a', 'b c']\n", 5)
    [installed] = distributions(path=[str(next(venv.glob("lib/*/site-packages")))])
    assert metadata_of(installed) == project_metadata()


def metadata_of(installed: Distribution) -> tuple[str, str, list[str], list[tuple[str, str]]]:
    """Name, version, requirements and commands of an installed distribution."""
    points = [(point.name, point.value) for point in installed.entry_points if point.group == "console_scripts"]
    return installed.name, installed.version, sorted(installed.requires or []), points


def project_metadata() -> tuple[str, str, list[str], list[tuple[str, str]]]:
    """The same of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project["name"], project["version"], sorted(project["dependencies"]), [*project["scripts"].items()]


def test_a_command_is_handed_on_whole(ready: Path) -> None:
    """Any command of .venv gets its arguments as they are, and its exit code is ours."""
    program(ready / ".venv/bin/answer", 'printf "%s|" "$@"; exit 7')
    done = dev_py(ready, "answer", "a b", "--slow", "")
    assert (done.stdout, done.returncode) == ("a b|--slow||", 7)


def test_no_argument_runs_the_demo(ready: Path) -> None:
    """`python3 dev.py` is `callboard demo`."""
    program(ready / ".venv/bin/callboard", 'echo "$@"')
    assert dev_py(ready).stdout == "demo\n"


@pytest.mark.parametrize("name", ["nothing", "../bin/nothing", "/bin/sh"])
def test_an_unknown_command_is_said(ready: Path, name: str) -> None:
    """A command that .venv does not have exits with 2 and one line, and nothing outside .venv is run."""
    done = dev_py(ready, name)
    assert (done.stdout, done.returncode, done.stderr.count("\n")) == ("", 2, 1)


@pytest.mark.parametrize(
    ("args", "passed"),
    [
        (["-k", "x y"], "-k|x y|"),
        (["--slow"], "-m|slow or not slow|"),
        (["tests/test_dev.py", "--slow"], "-m|slow or not slow|tests/test_dev.py|"),
    ],
)
def test_arguments_after_test_go_to_pytest(ready: Path, args: list[str], passed: str) -> None:
    """`test ARGS` runs pytest only, and `--slow` takes the default selection back."""
    program(ready / ".venv/bin/pytest", 'printf "%s|" "$@"; exit 1')
    done = dev_py(ready, "test", *args)
    assert (done.stdout, done.returncode) == (passed, 1)


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ({}, 0),
        ({"mypy": 1}, 1),
        ({"pytest": 5}, 5),  # no test ran
        ({"ruff": 1, "pytest": 2}, 1),
    ],
)
def test_every_check_runs_and_the_first_failure_counts(ready: Path, codes: dict[str, int], code: int) -> None:
    """`test` runs all checks whatever fails, shows each with its outcome, and exits with the first bad code."""
    names = ["ruff", "mypy", "flake8-async", "pytest"]
    for name in names:
        program(ready / f".venv/bin/{name}", f"echo ran {name}; exit {codes.get(name, 0)}")
    done = dev_py(ready, "test")
    assert done.returncode == code
    assert re.findall(r"^ran (.*)$", done.stdout, re.MULTILINE) == ["ruff", "pytest", "mypy", "flake8-async"]
    summary = done.stdout.partition("== summary\n")[2].splitlines()
    assert [line.split()[0] for line in summary] == names
    assert [line.endswith("ok") for line in summary] == [name not in codes for name in names]


def test_help_needs_no_set_up(checkout: Path) -> None:
    """`--help` says what there is, slow tests included, without making anything."""
    done = dev_py(checkout, "--help")
    assert done.returncode == 0
    assert "--slow" in done.stdout
    assert not (checkout / ".venv/callboard-stamp.json").exists()


def test_an_old_python_can_read_the_file() -> None:
    """The file parses on Python 3.6, so that an old Python says which one is needed instead of a syntax error."""
    ast.parse((ROOT / "dev.py").read_text("utf-8"), feature_version=(3, 6))


# ------------------------------------------------------------------------------------------------------- the lock


def pins() -> dict[str, tuple[str, list[str]]]:
    """What the lock pins: each name, with its version and hashes."""
    text = (ROOT / "requirements.lock").read_text("utf-8").replace("\\\n", " ")
    entries = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    split = [(words[0].split("=="), [word for word in words if word.startswith("--hash=")]) for words in entries]
    return {name: (version, hashes) for (name, version), hashes in split}


def test_the_lock_serves_the_project() -> None:
    """Every requirement of the project, its tools and pip have a pin that satisfies them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    pinned = pins()
    for text in ["pip", *project["project"]["dependencies"], *project["dependency-groups"]["dev"]]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)][0]), text


def test_the_lock_has_hashes_and_no_address() -> None:
    """Every pin has sha256 hashes only, and the lock names no place to get anything from."""
    text = (ROOT / "requirements.lock").read_text("utf-8")
    assert all(hashes for _, hashes in pins().values())
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", value) for _, hashes in pins().values() for value in hashes)
    assert not re.search(r"://|^-|@", text, re.MULTILINE)


# -------------------------------------------------------------------------------------------------------- for real


@pytest.mark.slow
def test_a_set_up_for_real(tmp_path: Path) -> None:
    """A copy of the checkout sets itself up from whatever this machine has, consistently."""
    for name in ("dev.py", "pyproject.toml", "requirements.lock"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, str(tmp_path / "dev.py"), "python", "-m", "pip", "list", "--format=json"]
    listed = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    installed: dict[str, str] = {canonicalize_name(package["name"]): package["version"] for package in listed}
    assert installed.pop("callboard") == "0.1.0"
    assert {name: pins()[name][0] for name in installed} == installed


@pytest.mark.slow
def test_the_wheel_is_what_dev_py_installs(tmp_path: Path) -> None:
    """The wheel that setuptools builds has the two packages only, and the metadata that dev.py writes."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w"]
    source = tmp_path / "source"
    copy = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    for name in subprocess.run(copy, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    subprocess.run([*command, str(tmp_path), str(source)], check=True)
    [wheel] = tmp_path.glob("*.whl")
    target = tmp_path / "installed"
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(target)], check=True)
    assert {path.name for path in target.iterdir() if not path.name.endswith(".dist-info")} == {"actors", "supervisor"}
    [installed] = distributions(path=[str(target)])
    assert metadata_of(installed) == project_metadata()
