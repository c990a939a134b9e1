"""Every program of a chain, built once from its Go modules and cached by their content."""

import hashlib
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from e2e.cluster.build_folder import build_lock, built_beside
from e2e.cluster.catalog import Catalog, ModuleSource
from e2e.cluster.chains import chain_modules, chosen_chain
from e2e.cluster.paths import cache_root
from e2e.cluster.progress import Progress
from e2e.cluster.tether import tethered
from e2e.cluster.toolchain import BuildError, find_go, go_environment, run

__all__ = ["BuildError", "BuiltPrograms", "build_key", "ensure_built"]

_KUBERNETES = "k8s.io/kubernetes"
_VERSION_FLAG = " -X k8s.io/component-base/version.gitVersion="  # else the API server has none
_FLAGS = ("-trimpath", "-ldflags", "-s -w")
_OURS = "cmd/etcd"  # its own module has no command that other modules can build
_PACKAGE = "{{with .Module}}{{.Path}} {{.Version}} {{.Dir}}{{else}}std{{end}}"


class BuiltPrograms(NamedTuple):
    """The built programs and what they are furnished with."""

    folder: Path

    def program(self, name: str) -> Path:
        """Return the path of one program."""
        return self.folder / "bin" / name

    def catalog(self) -> Catalog:
        """Read the upstream objects kept beside the programs."""
        return Catalog.read(self.folder / "catalog.json")


def build_key(modules: Sequence[Path]) -> str:
    """Return a name that changes with the sources of the binaries and the catalog."""
    digest = hashlib.sha256(platform.machine().encode())
    digest.update(repr((_FLAGS, _VERSION_FLAG, _OURS)).encode())
    for module in modules:
        parts = [module / "go.mod", module / "go.sum", *sorted(module.glob("cmd/*/*.go"))]
        for part in parts:
            digest.update(part.name.encode() + b"\0" + part.read_bytes())
    digest.update(Path(__file__).with_name("catalog.py").read_bytes())
    return digest.hexdigest()[:16]


def ensure_built() -> BuiltPrograms:
    """Return the chain's programs, building what the cache does not hold; say what takes time."""
    root = cache_root() / "chain"
    modules = chain_modules(chosen_chain())
    finished = root / build_key(modules)
    if finished.is_dir():
        return BuiltPrograms(finished)
    with build_lock():
        if not finished.is_dir():
            _build_into(finished, modules)
    return BuiltPrograms(finished)


def _build_into(finished: Path, modules: Sequence[Path]) -> None:
    with built_beside(finished) as partial:
        go = find_go()
        environment = go_environment(go)
        builds = [_Build(go, environment, module, partial / "bin") for module in modules]
        with Progress("building the chain") as progress:
            _build_all(builds, partial, progress)


def _build_all(builds: Sequence["_Build"], target: Path, progress: Progress) -> None:
    """Build the modules in their order, then read the manifests of the modules that were built."""
    (target / "bin").mkdir()
    provided: dict[str, ModuleSource] = {}
    for build in builds:
        provided |= build.run(progress)
    progress.say("reading manifests")
    Catalog.collect(provided, target / "bin" / "kubectl").write(target / "catalog.json")


class _Build(NamedTuple):
    go: Path
    environment: dict[str, str]
    module: Path
    binaries: Path

    def run(self, progress: Progress) -> dict[str, ModuleSource]:
        """Build one module; return the modules that its programs are made of."""
        targets = ["tool", f"./{_OURS}"] if (self.module / _OURS).is_dir() else ["tool"]
        progress.say("downloading modules")
        self._go("mod", "download")
        progress.say("counting packages")
        packages = self._go("list", "-deps", "-f", _PACKAGE, *targets).splitlines()
        found = [package.split(" ", 2) for package in packages if package != "std"]
        provided = {path: ModuleSource(version, folder) for path, version, folder in found}
        kubernetes = provided.get(_KUBERNETES)
        stamp = _VERSION_FLAG + kubernetes.version if kubernetes else ""
        flags = ["-v", *_FLAGS[:-1], _FLAGS[-1] + stamp, "-o", f"{self.binaries}/"]
        self._compile(["build", *flags, *targets], progress, len(packages))
        return provided

    def _go(self, *arguments: str) -> str:
        return run(self._tethered(*arguments), self.module, self.environment)

    def _compile(self, arguments: list[str], progress: Progress, total: int) -> None:
        """Run `go build -v`, which names each package it compiles on its standard error."""
        with subprocess.Popen(
            self._tethered(*arguments),
            cwd=self.module,
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
