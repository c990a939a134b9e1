"""Building programs with Go: what is missing, in one `go build` for each Go module."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from e2e.cluster.build_folder import partial_folder
from e2e.cluster.progress import Progress
from e2e.cluster.recipe import GoModule, Recipe
from e2e.cluster.tether import tethered
from e2e.cluster.toolchain import BuildError, find_go, go_environment, run

# Seen on two cores with empty caches of Go.
_CLUSTER_TAKES: Final = "5 to 15 minutes"
_HELM_TAKES: Final = "2 to 4 minutes"
_CACHES_GB: Final = 4


def build(missing: Sequence[Recipe]) -> None:
    """Build programs, and place all of a Go module when its build has ended well.

    The caller holds the lock of all builds.
    """
    go = find_go()
    environment = go_environment(go)
    _announce(missing, go, environment)
    for module in {recipe.module.folder: recipe.module for recipe in missing}.values():
        ours = [recipe for recipe in missing if recipe.module is module]
        with partial_folder() as partial, Progress(_title(ours)) as progress:
            _Build(go, environment, module, partial).run(ours, progress)


def module_folders(modules: Mapping[str, GoModule]) -> dict[str, Path]:
    """Return the folder of each module in the version that a go.mod selects; download it first."""
    go = find_go()
    environment = go_environment(go)
    folders: dict[str, Path] = {}
    for source in {module.folder: module for module in modules.values()}.values():
        paths = [path for path, module in modules.items() if module is source]
        command = tethered([str(go), "mod", "download", "-json", *paths])
        objects = run(command, source.folder, environment).replace("}\n{", "},{")
        folders |= {it["Path"]: Path(it["Dir"]) for it in json.loads(f"[{objects}]")}
    return folders


def _announce(missing: Sequence[Recipe], go: Path, environment: dict[str, str]) -> None:
    """Say what will be built, and what it takes where Go has nothing of it in its caches."""
    listed = run([str(go), "env", "GOCACHE", "GOMODCACHE"], None, environment).splitlines()
    exists = next(it for it in (Path(listed[0]), *Path(listed[0]).parents) if it.is_dir())
    free_gb = shutil.disk_usage(exists).free / 1e9
    print(
        f"building from source what is not in the cache: {_names(missing)}\n"
        f"  The first time, on two cores, the programs of a cluster take {_CLUSTER_TAKES} and Helm "
        f"{_HELM_TAKES};\n  all need {_CACHES_GB} GB in {' and '.join(listed)} "
        f"({free_gb:.0f} GB are free). Later builds use what is there.",
        flush=True,
    )


def _names(recipes: Sequence[Recipe]) -> str:
    return ", ".join(recipe.name for recipe in recipes)


def _title(recipes: Sequence[Recipe]) -> str:
    return f"building {f'{len(recipes)} programs' if recipes[1:] else recipes[0].name}"


class _Build(NamedTuple):
    go: Path
    environment: dict[str, str]
    module: GoModule
    partial: Path

    def run(self, recipes: Sequence[Recipe], progress: Progress) -> None:
        """Build the programs, and place each of them."""
        packages = [recipe.package for recipe in recipes]
        progress.say("downloading modules and counting packages")
        total = len(self._go("list", "-deps", *packages).splitlines())
        flags = ["-v", *self.module.flags(), "-o", f"{self.partial}/"]
        self._compile(["build", *flags, *packages], len(recipes), total, progress)
        progress.say("reading what each is made of")
        programs = [self.partial / recipe.name for recipe in recipes]
        made_of = _modules_in(run([str(self.go), "version", "-m", *map(str, programs)]))
        for recipe, program in zip(recipes, programs, strict=True):
            recipe.place(program, made_of[str(program)])

    def _go(self, *arguments: str) -> str:
        return run(self._tethered(*arguments), self.module.folder, self.environment)

    def _compile(self, arguments: list[str], count: int, total: int, progress: Progress) -> None:
        """Run `go build -v`, which names each package it compiles on its standard error."""
        output: list[str] = []
        progress.follow(
            lambda: (
                f"compiled {len(output)} of at most {total} packages, "
                f"finished {sum(1 for _ in self.partial.iterdir())} of {count} programs"
            )
        )
        with subprocess.Popen(
            self._tethered(*arguments),
            cwd=self.module.folder,
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        ) as running:
            assert running.stderr is not None
            try:
                output.extend(running.stderr)
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


def _modules_in(said: str) -> dict[str, list[str]]:
    """Read what `go version -m` says: for each program the modules that have packages in it."""
    found: dict[str, list[str]] = {}
    modules: list[str] = []
    for line in said.splitlines():
        program, *words = line.split("\t")
        if program:
            modules = found.setdefault(program.rpartition(": ")[0], [])
        elif words[0] in ("mod", "dep"):
            modules.append(words[1])
    return found
