"""How each program is made: its package, and the Go module that selects the versions of its code.

A program's key changes with what it is made from, and with nothing else: the versions of the
modules whose packages are in it, the flags, the architecture. Which modules these are is known once
it is built, so each built program lies beside their list; go.mod, which is tidy, says the version
of each. A version never changes its content: Go checks that against go.sum.
"""

import hashlib
import platform
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from e2e.cluster.chains import chain_modules, chosen_chain
from e2e.cluster.paths import helm_source, operator_sources, programs_root

_KUBERNETES: Final = "k8s.io/kubernetes"
_STRIPPED: Final = "-s -w"
_VERSION_FLAG: Final = "-X k8s.io/component-base/version.gitVersion="
# Without data for debuggers, which the linker drops anyway.
_FLAGS: Final = ("-trimpath", f"-ldflags={_STRIPPED}", "-gcflags=all=-dwarf=false")
_MODULES: Final = "modules"  # the list beside a built program


class GoModule(NamedTuple):
    """A folder with a go.mod, and what it says."""

    folder: Path
    tools: list[str]
    go: str
    versions: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read go.mod; what a module is replaced by is its version."""
        said: dict[str, list[str]] = {"tool": [], "go": [], "require": [], "replace": []}
        for verb, rest in _directives((folder / "go.mod").read_text()):
            said.setdefault(verb, []).append(rest)
        replaced = (line.split(" => ") for line in said["replace"])
        versions: dict[str, str] = dict(line.split() for line in said["require"])
        versions |= {before.split()[0]: after for before, after in replaced}
        return cls(folder, said["tool"], said["go"][0], versions)

    def flags(self) -> list[str]:
        """Return the flags of its builds; without its version an API server does not start."""
        if _KUBERNETES not in self.versions:
            return [*_FLAGS]
        stamp = f"{_STRIPPED} {_VERSION_FLAG}{self.versions[_KUBERNETES]}"
        return [*_FLAGS, f"-ldflags={_KUBERNETES}/...={stamp}"]


class Recipe(NamedTuple):
    """How one program is made."""

    module: GoModule
    package: str  # as `go build` takes it

    @property
    def name(self) -> str:
        """Return the name that `go build` gives the program."""
        return self.package.rpartition("/")[2]

    def finished(self, modules: Iterable[str]) -> Path:
        """Return the folder of the program if it is made from packages of these modules."""
        digest = hashlib.sha256(repr((platform.machine(), _FLAGS, _VERSION_FLAG)).encode())
        versions = [(path, self.module.versions.get(path)) for path in sorted(modules)]
        digest.update(repr((self.package, self.module.go, versions)).encode())
        for file in sorted((self.module.folder / self.package).glob("*.go")):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
        return self.folder / digest.hexdigest()[:16]

    @property
    def folder(self) -> Path:
        """Return the folder of all programs of this name, of whatever versions."""
        return programs_root() / self.name

    def find(self) -> Path | None:
        """Return the built program, if it is there."""
        built = self.folder.glob(f"*/{_MODULES}")
        return next((it.with_name(self.name) for it in built if self._is_of_now(it)), None)

    def _is_of_now(self, listed: Path) -> bool:
        return self.finished(listed.read_text().splitlines()) == listed.parent

    def place(self, program: Path, modules: Sequence[str]) -> None:
        """Move a program that was just built to its folder, which is complete or absent."""
        partial = program.with_name(f"{self.name}.folder")
        partial.mkdir()
        program.rename(partial / self.name)
        (partial / _MODULES).write_text("".join(f"{path}\n" for path in sorted(modules)))
        self.folder.mkdir(exist_ok=True)
        partial.rename(self.finished(modules))


def all_recipes() -> dict[str, Recipe]:
    """Return how each program is made, by name: those of the chosen chain, Helm, and operators."""
    folders = [*chain_modules(chosen_chain()), helm_source(), *operator_sources()]
    modules = map(GoModule.read, folders)
    recipes = [Recipe(module, package) for module in modules for package in _packages(module)]
    return {recipe.name: recipe for recipe in recipes}  # a later module's replaces an earlier one's


def _packages(module: GoModule) -> list[str]:
    ours = sorted(folder.name for folder in module.folder.glob("cmd/*/"))
    return [*module.tools, *(f"./cmd/{name}" for name in ours)]


def _directives(text: str) -> Iterator[tuple[str, str]]:
    """Yield each directive of a go.mod, also of a block, as its verb and the rest."""
    block = ""
    for raw in text.splitlines():
        line = raw.partition("//")[0].strip()
        if line == ")":
            block = ""
        elif line.endswith("("):
            block = line.removesuffix("(").strip()
        elif line:
            verb, _, rest = f"{block} {line}".strip().partition(" ")
            yield verb, rest
