"""The container file, and what `make` does with it. `make image-test` builds the image."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.manifests.manifest_files import spec_of
from tests.packaging.image import main
from tests.support.case import Case, ids
from tests.support.repository import ROOT
from trainer_kai.service.settings import PROCESSES

DOCKERFILE: Final = (ROOT / "Dockerfile").read_text()
STAGES: Final = re.split(r"^FROM ", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)
NAME: Final = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def locked(name: str) -> set[tuple[str, ...]]:
    """Return the packages of a lock file with their versions."""
    return {it.groups() for it in NAME.finditer((ROOT / name).read_text())}


def test_the_image_is_made_of_what_is_locked() -> None:
    """With hashes, for the Python that we need, and run by the user that the pods name."""
    ids = {spec_of(process)["securityContext"]["runAsUser"] for process in PROCESSES}
    [user] = re.findall(r"^USER (\d+):\1$", DOCKERFILE, re.MULTILINE)
    [usual] = re.findall(r"^ARG BASE_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    downloads = re.findall(r"pip\S*( [^&]*)? install ([^&]*)-r (\S+)", STAGES[1])

    assert {int(user)} == ids
    assert [file for _, _, file in downloads] == [
        "requirements-build.lock",
        "requirements-image.lock",
    ]
    for _, options, _ in downloads:
        assert {"--only-binary=:all:", "--require-hashes"} <= set(options.split())
    assert usual == "python:3.11-slim"
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


def test_the_image_installs_the_wheel() -> None:
    """The second stage has no sources, no pip and no build tools: it copies one environment."""
    assert [it.split()[0] for it in STAGES[1:]] == ["${BASE_IMAGE}", "${BASE_IMAGE}"]
    assert re.findall(r"^COPY .*$", STAGES[2], re.MULTILINE) == ["COPY --from=packages /venv /venv"]
    assert "venv --without-pip /venv" in STAGES[1]
    assert "--no-index --no-deps wheel/*.whl" in STAGES[1]


def test_the_container_file_copies_what_the_context_has() -> None:
    """`.dockerignore` lets through what is copied, and nothing else."""
    context = [it[1:] for it in (ROOT / ".dockerignore").read_text().split("\n") if it[:1] == "!"]
    copied = [
        name
        for it in re.findall(r"^COPY ((?!--).*)$", STAGES[1], re.MULTILINE)
        for name in it.split()[:-1]
    ]

    assert sorted(context) == sorted(copied)


def test_the_image_has_all_libraries_but_the_kubernetes_package() -> None:
    """In the locked versions. The package is for exec plugins, which no pod has."""
    named = {
        re.split("[>=<]", it)[0]
        for it in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    }
    image, everything = locked("requirements-image.lock"), locked("requirements.lock")

    assert named - {name for name, _ in image} == {"kubernetes"}
    assert image < everything
    assert locked("requirements-build.lock") < locked("requirements-dev.lock")


def test_without_a_builder_the_check_of_the_image_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And says so; a builder that the user names must work."""
    monkeypatch.setenv("PATH", str(tmp_path))

    assert main({}) == 0
    assert capsys.readouterr().out.startswith("skipped: the image was not built")
    assert main({"DOCKER": "podman"}) == 1


# IMAGE and BASE_IMAGE -> what is built, or what make says
RELEASES: Final[list[Case[tuple[str, str], str]]] = [
    Case(
        "a base named by its digest is built",
        ("a:1", f"python@sha256:{'0' * 64}"),
        f"BASE_IMAGE=python@sha256:{'0' * 64} ",
    ),
    Case(
        "a base named by a tag is refused",
        ("a:1", "python:3.11-slim"),
        'BASE_IMAGE is "python:3.11-slim": name it by its',
    ),
    Case("half a digest", ("a:1", "python@sha256:00"), "name it by its digest"),
    Case("a release without a base is refused", ("a:1", ""), "name it by its digest"),
    Case(
        "a release without a name is refused", ("", f"python@sha256:{'0' * 64}"), "IMAGE is empty"
    ),
]


@pytest.mark.parametrize("case", RELEASES, ids=ids)
def test_an_image_that_is_published_has_a_base_that_stays(case: Case[tuple[str, str], str]) -> None:
    """`make image-release` refuses a base by its tag, and passes a digest on."""
    image, base = case.given
    report = (f"IMAGE={image}", f"BASE_IMAGE={base}", "DOCKER=echo")
    made = subprocess.run(
        ["make", "-s", "image-release", *report],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (made.returncode == 0) == case.want.startswith("BASE_IMAGE=")
    assert case.want in (made.stderr or made.stdout)


def test_setup_clears_no_environment_behind_a_link(tmp_path: Path) -> None:
    """Other checkouts may use it."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "package").touch()
    (tmp_path / ".venv").symlink_to("shared")
    (tmp_path / "requirements-dev.lock").touch()

    made = subprocess.run(
        ["make", "-s", "-f", str(ROOT / "Makefile"), "setup"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (made.returncode, (tmp_path / "shared" / "package").exists()) == (2, True)
    assert ".venv is a symbolic link to shared, and setup would delete all packages" in made.stderr
