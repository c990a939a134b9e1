"""Build the image and run it (`make image-test`), with docker, podman or buildah.

buildah needs no daemon. With it the base image is made from Debian's packages, if mmdebstrap is
there, so that no image registry is needed. Without a builder that works nothing is checked, and a
line says so. Everything but the images of docker and podman is in a temporary folder.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.repository import ROOT
from trainer_kai.version import __version__

_BUILDERS: Final = ("docker", "podman", "buildah")
_TAG: Final = "localhost/trainer-kai:test"
_BASE: Final = "localhost/debian-python:test"
_CONTAINER: Final = "trainer-kai-test"
# With Python 3.11, the oldest that we support.
_DEBIAN: Final = ("bookworm", "python3-venv,python-is-python3,ca-certificates")
_CLUSTER: Final = ROOT / "tests" / "fixtures" / "clusters" / "over-borrowed.yaml"


class _Check(NamedTuple):
    """A command in the image, its exit code, and a part of its output."""

    command: Sequence[str]
    output: str
    code: int = 0
    stdin: str = ""


_CHECKS: Final = (
    _Check(["id", "-u"], "65532\n"),
    _Check(["trainer-kai", "--version"], f"trainer-kai {__version__} (Python 3."),
    _Check(["kubectl-trainer_kai", "why", "-h"], "usage: kubectl trainer-kai why "),
    _Check(["python", "-m", "webhook", "--help"], "The settings of the webhook."),
    _Check(["python", "-m", "trainer_kai.podgrouper", "--help"], "The settings of the podgrouper."),
    _Check(["python", "-m", "scheduler", "--help"], "The settings of the scheduler."),
    _Check(["python", "-m", "scheduler.agent"], "POD_NAME: is not set", 2),
    _Check(["trainer-kai", "simulate", "-f", "-"], "GPUS ", 0, _CLUSTER.read_text()),
    _Check(["python", "-m", "pip"], "/venv/bin/python: No module named pip", 1),
    _Check(["python", "-m", "kubernetes"], "/venv/bin/python: No module named kubernetes", 1),
    _Check(["touch", "/venv/file"], "cannot touch '/venv/file': Permission denied", 1),
    _Check(["du", "-sm", "/venv"], ""),
)


class _Builder:
    """A program that builds and runs images."""

    def __init__(self, program: str, folder: Path) -> None:
        self._name = Path(program).name
        self._is_buildah = self._name == "buildah"
        store = ("--root", str(folder / "store"), "--runroot", str(folder / "run"))
        self._command = [program]
        self._isolation: list[str] = []
        if self._is_buildah:
            self._command += [*store, "--storage-driver", "vfs"]
            self._isolation = ["--isolation", "chroot"]
        self._folder = folder

    def works(self) -> bool:
        """Say whether the program can build here: docker needs its daemon, too."""
        command = [*self._command, "info"]
        return not subprocess.run(command, capture_output=True, check=False, timeout=60).returncode

    def build(self, base: str) -> None:
        """Build the image on a base; an empty one is that of the Dockerfile or made here."""
        if not base and self._is_buildah and shutil.which("mmdebstrap"):
            base = self._debian_base()
        arguments = ["--build-arg", f"BASE_IMAGE={base}"] if base else []
        print(f"building the image with {self._name}, base image: {base or 'of the Dockerfile'}")
        mounts = self._pip_settings() if self._is_buildah else []
        self._run("build", *self._isolation, *mounts, *arguments, "--tag", _TAG, str(ROOT))
        if self._is_buildah:
            self._run("from", "--name", _CONTAINER, _TAG)

    def failures(self, check: _Check) -> list[str]:
        """Run a command in the image; return what is wrong with its result."""
        run = (
            ["run", *self._isolation, _CONTAINER, "--"]
            if self._is_buildah
            else ["run", "--rm", "--interactive", _TAG]
        )
        completed = subprocess.run(
            [*self._command, *run, *check.command],
            input=check.stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        output = completed.stdout or completed.stderr
        print(f"$ {' '.join(check.command)}\n{output.partition(chr(10))[0]}")
        faults = []
        if completed.returncode != check.code:
            faults.append(f"exit code {completed.returncode}, expected {check.code}: {output}")
        if check.output not in output:
            faults.append(f"the output has no {check.output!r}: {output}")
        return [f"{' '.join(check.command)}: {it}" for it in faults]

    def _debian_base(self) -> str:
        suite, packages = _DEBIAN
        archive = str(self._folder / "base.tar")
        print(f"making a base image from Debian {suite}")
        command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}"]
        subprocess.run([*command, suite, archive], check=True)
        self._run("from", "--name", "base", "scratch")
        self._run("add", "--quiet", "base", archive, "/")
        self._run("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", "base")
        self._run("commit", "--quiet", "base", _BASE)
        return _BASE

    def _pip_settings(self) -> list[str]:
        """Return mounts with the certificates that pip trusts on this machine."""
        certificates = os.environ.get("PIP_CERT", "")
        if not certificates:
            return []
        (self._folder / "pip.conf").write_text(f"[global]\ncert = {certificates}\n")
        mounted = {self._folder / "pip.conf": "/etc/pip.conf", certificates: certificates}
        return [part for it in mounted.items() for part in ("--volume", "{}:{}:ro".format(*it))]

    def _run(self, *arguments: str) -> None:
        output = self._folder / "output"
        with output.open("w") as file:
            done = subprocess.run(
                [*self._command, *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=1200,
            )
        if done.returncode:
            raise SystemExit(f"{self._name} {arguments[0]} failed:\n{output.read_text()}")


def main(environ: Mapping[str, str]) -> int:
    """Build the image, run every check, and return the exit code."""
    names = (environ["DOCKER"],) if environ.get("DOCKER") else _BUILDERS
    with tempfile.TemporaryDirectory(prefix="trainer-kai-image-") as folder:
        builders = (_Builder(it, Path(folder)) for it in map(shutil.which, names) if it)
        builder = next((it for it in builders if it.works()), None)
        if builder is None:
            print(f"skipped: the image was not built, because none works here: {', '.join(names)}")
            return 1 if environ.get("DOCKER") else 0
        builder.build(environ.get("BASE_IMAGE", ""))
        faults = [fault for check in _CHECKS for fault in builder.failures(check)]
    for fault in faults:
        print(f"failed: {fault}", file=sys.stderr)
    print(f"{len(_CHECKS) - len(faults)} passed, {len(faults)} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(os.environ))
