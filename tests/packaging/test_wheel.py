"""The wheel: what is in it, and what it installs. No test here needs the network."""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import yaml

from tests.support.case import Case, ids
from tests.support.repository import ROOT, project_files
from trainer_kai.version import __version__

PACKAGES: Final = ("scheduler", "trainer_kai", "webhook")
INPUTS: Final = (*PACKAGES, "LICENSE", "README.md", "pyproject.toml", ".gitignore")
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check")
OFFLINE: Final = ("--quiet", "--no-index", "--no-deps")
METADATA: Final = f"trainer_kai-{__version__}.dist-info"
PYTHON: Final = ".".join(map(str, sys.version_info[:3]))
VERSION_LINE: Final = f"trainer-kai {__version__} (Python {PYTHON})\n"


class Installed(NamedTuple):
    """An environment with the wheel, and a folder outside of the checkout."""

    environment: Path
    folder: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, in which no variable points to the checkout."""
        return subprocess.run(
            [str(self.environment / "bin" / program), *arguments],
            cwd=self.folder,
            env={"PATH": os.defpath, "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )


def built(source: Path, target: Path) -> Path:
    """Build the wheel with the installed hatchling, as the image does."""
    options = (*OFFLINE, "--no-build-isolation", "--wheel-dir", str(target))
    subprocess.run([*PIP, "wheel", *options, str(source)], check=True, timeout=120)
    [wheel] = target.iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of this checkout."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the wheel into an empty environment that sees the locked libraries."""
    folder = tmp_path_factory.mktemp("installed")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = str(environment / "bin" / "python")
    subprocess.run(
        [*PIP, "--python", python, "install", *OFFLINE, str(wheel)], check=True, timeout=120
    )
    [packages] = (environment / "lib").glob("python*/site-packages")
    # A path file adds the folder alone: the path file of the checkout in it is not read.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return Installed(environment, folder)


def test_the_wheel_has_the_product_and_nothing_else(wheel: Path) -> None:
    """All modules and data files; no test, and no page for contributors."""
    product = {
        str(path.relative_to(ROOT))
        for path in project_files()
        if path.relative_to(ROOT).parts[0] in PACKAGES and path.name != "README.md"
    }

    found = set(zipfile.ZipFile(wheel).namelist())

    assert {it for it in found if not it.startswith(METADATA)} == product
    assert "trainer_kai/cli/commands/doctor/expected.json" in product
    assert f"{METADATA}/licenses/LICENSE" in found


def test_the_same_source_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Wherever and whenever it is built, and whatever the permissions of the files are."""
    source = tmp_path / "source"
    source.mkdir()
    for name in INPUTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, copy_function=shutil.copyfile)
        else:
            shutil.copyfile(ROOT / name, source / name)
    (source / "webhook" / "server.py").chmod(0o600)

    again = built(source, tmp_path / "wheel")

    digests = {hashlib.sha256(it.read_bytes()).hexdigest() for it in (wheel, again)}
    assert (again.name, len(digests)) == (wheel.name, 1)


def test_the_metadata(wheel: Path) -> None:
    """Name, version and needs are those of pyproject.toml and of `__version__`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = zipfile.ZipFile(wheel).read(f"{METADATA}/METADATA").decode()
    metadata = Parser().parsestr(text)

    assert wheel.name == f"trainer_kai-{__version__}-py3-none-any.whl"
    assert (metadata["Name"], metadata["Version"]) == ("trainer-kai", __version__)
    assert metadata["Requires-Python"] == project["requires-python"]
    assert set(metadata.get_all("Requires-Dist", ())) == set(project["dependencies"])


def test_the_manifests_name_the_image_by_the_version() -> None:
    """A release changes both."""
    file = ROOT / "manifests" / "base" / "processes" / "kustomization.yaml"

    assert yaml.safe_load(file.read_text())["images"] == [
        {"name": "trainer-kai", "newTag": __version__}
    ]


# a program and its arguments -> its output begins like this
PROGRAMS: Final[list[Case[list[str], str]]] = [
    Case("the command line", ["trainer-kai", "--version"], VERSION_LINE),
    Case("the plugin of kubectl", ["kubectl-trainer_kai", "--version"], VERSION_LINE),
    Case(
        "a command of the plugin",
        ["kubectl-trainer_kai", "why", "-h"],
        "usage: kubectl trainer-kai why [-h]",
    ),
    Case("the webhook tells its version", ["python", "-m", "webhook", "--version"], VERSION_LINE),
    Case(
        "the podgrouper tells its version",
        ["python", "-m", "trainer_kai.podgrouper", "--version"],
        VERSION_LINE,
    ),
    Case(
        "the scheduler tells its version", ["python", "-m", "scheduler", "--version"], VERSION_LINE
    ),
    Case("a process by its name", ["trainer-kai", "run", "all", "--version"], VERSION_LINE),
]


@pytest.mark.parametrize("case", PROGRAMS, ids=ids)
def test_what_the_wheel_installs_runs(case: Case[list[str], str], installed: Installed) -> None:
    """Two programs and three processes, outside of the checkout."""
    completed = installed.run(*case.given)

    assert (completed.returncode, completed.stderr) == (0, "")
    assert completed.stdout.startswith(case.want)


def test_a_command_works_from_the_wheel(installed: Installed) -> None:
    """It reads files of the user, and its own data from the environment."""
    shutil.copy(ROOT / "tests/fixtures/clusters/over-borrowed.yaml", installed.folder / "x.yaml")
    program = (
        "import trainer_kai.cli.commands.doctor.expected as it;"
        "it.expected_manifests(); print(it.__file__)"
    )

    simulated = installed.run("trainer-kai", "simulate", "-f", "x.yaml")
    read = installed.run("python", "-c", program)

    assert (simulated.returncode, simulated.stderr) == (0, "")
    assert (read.returncode, read.stderr) == (0, "")
    assert Path(read.stdout).is_relative_to(installed.environment)
