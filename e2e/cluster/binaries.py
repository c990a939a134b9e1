"""Every program of the chain, built once from one go.mod and cached by its content."""

import contextlib
import fcntl
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from e2e.cluster.catalog import Catalog
from e2e.cluster.paths import cache_root, chain_source
from e2e.cluster.progress import Progress
from e2e.cluster.tether import tethered
from e2e.cluster.toolchain import BuildError, find_go, go_environment, run

__all__ = ["BuildError", "BuiltPrograms", "build_key", "ensure_built"]

_KUBERNETES = "k8s.io/kubernetes"
_VERSION_FLAG = "-X k8s.io/component-base/version.gitVersion="  # else the API server reports none
_FLAGS = ("-trimpath", "-ldflags", f"-s -w {_VERSION_FLAG}")
_TARGETS = ("tool", "./cmd/etcd")


class BuiltPrograms(NamedTuple):
    """The built programs and what they are furnished with."""

    folder: Path

    def program(self, name: str) -> Path:
        """Return the path of one program."""
        return self.folder / "bin" / name

    def catalog(self) -> Catalog:
        """Read the upstream objects kept beside the programs."""
        return Catalog.read(self.folder / "catalog.json")


def build_key(source: Path) -> str:
    """Return a name that changes with the sources of the binaries and the catalog."""
    digest = hashlib.sha256(platform.machine().encode())
    digest.update(repr((_FLAGS, _TARGETS)).encode())
    parts = [source / "go.mod", source / "go.sum", *sorted(source.glob("cmd/*/*.go"))]
    for part in [*parts, Path(__file__).with_name("catalog.py")]:
        digest.update(part.name.encode() + b"\0" + part.read_bytes())
    return digest.hexdigest()[:16]


def ensure_built() -> BuiltPrograms:
    """Return the chain's programs, building what the cache does not hold; say what takes time."""
    root = cache_root() / "chain"
    finished = root / build_key(chain_source())
    if finished.is_dir():
        return BuiltPrograms(finished)
    root.mkdir(parents=True, exist_ok=True)
    with _alone(root / "build.lock"):
        if not finished.is_dir():
            _build_into(finished)
    return BuiltPrograms(finished)


def _build_into(finished: Path) -> None:
    """Build beside *finished* and move the whole folder there last, so it is complete or absent."""
    for leftover in finished.parent.glob(".building-*"):
        shutil.rmtree(leftover)  # of a build that was cut off: we hold the lock
    partial = Path(tempfile.mkdtemp(prefix=".building-", dir=finished.parent))
    try:
        go = find_go()
        build = _Build(go, go_environment(go), partial)
        with Progress("building the chain") as progress:
            build.run(progress)
        partial.rename(finished)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


class _Build(NamedTuple):
    go: Path
    environment: dict[str, str]
    target: Path

    def run(self, progress: Progress) -> None:
        progress.say("downloading modules")
        self._go("mod", "download")
        modules = self._modules()
        progress.say("counting packages")
        total = len(self._go("list", "-deps", *_TARGETS).split())
        binaries = self.target / "bin"
        binaries.mkdir()
        flags = [*_FLAGS[:-1], _FLAGS[-1] + modules[_KUBERNETES]["Version"]]
        self._compile(["build", "-v", *flags, "-o", f"{binaries}/", *_TARGETS], progress, total)
        progress.say("reading manifests")
        catalog = Catalog.collect(
            lambda module: Path(modules[module]["Dir"]), kubectl=binaries / "kubectl"
        )
        catalog.write(self.target / "catalog.json")

    def _modules(self) -> dict[str, dict[str, str]]:
        listed = self._go("list", "-m", "-json", "all")
        decoder, modules, at = json.JSONDecoder(), {}, 0
        while at < len(listed.rstrip()):
            module, end = decoder.raw_decode(listed, at)
            modules[module["Path"]] = module
            at = end + 1
        return modules

    def _go(self, *arguments: str) -> str:
        return run(self._tethered(*arguments), chain_source(), self.environment)

    def _compile(self, arguments: list[str], progress: Progress, total: int) -> None:
        """Run `go build -v`, which names each package it compiles on its standard error."""
        with subprocess.Popen(
            self._tethered(*arguments),
            cwd=chain_source(),
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            assert running.stderr is not None
            try:
                output = list(_counted(running.stderr, progress, total))
                code = running.wait()
            except BaseException:
                running.terminate()  # the tether ends Go and the compilers it started
                raise
        if code != 0:
            print("".join(output[-20:]), file=sys.stderr)
            message = f"go build failed with exit status {code}; its last lines are above"
            raise BuildError(message)

    def _tethered(self, *arguments: str) -> list[str]:
        return tethered([str(self.go), *arguments], group=True)


def _counted(lines: Iterator[str], progress: Progress, total: int) -> Iterator[str]:
    for count, line in enumerate(lines, start=1):
        progress.say(f"compiled {count} of at most {total} packages")
        yield line


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold a lock between processes; say so when another one holds it."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another process is building the chain: waiting for it", flush=True)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
