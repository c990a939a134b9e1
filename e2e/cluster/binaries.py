"""The programs of a chain, and Helm: each is built once from its Go module and kept by its key."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from e2e.cluster import catalog
from e2e.cluster.build_folder import build_lock, partial_folder
from e2e.cluster.catalog import COMPONENTS, Catalog
from e2e.cluster.go_build import build, module_folders
from e2e.cluster.paths import programs_root
from e2e.cluster.recipe import Recipe, all_recipes

# What each cluster starts, and kubectl, which renders manifests.
_CLUSTER: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "jobset",
    "trainer-controller-manager",
    "kwok",
    "kubectl",
)
OTHERS: Final = ("kube-scheduler", "helm")  # what some tests and benchmarks need besides


class BuiltPrograms(NamedTuple):
    """Programs that are built, and what clusters are furnished with."""

    programs: Mapping[str, Path]
    catalog_file: Path

    def program(self, name: str) -> Path:
        """Return the path of one program, which lies alone in its folder but for a list."""
        return self.programs[name]

    def catalog(self) -> Catalog:
        """Read the upstream objects kept beside the programs."""
        return Catalog.read(self.catalog_file)


def ensure_built(*others: str) -> BuiltPrograms:
    """Return the programs of a cluster, and others; build what is missing, and say so."""
    recipes = all_recipes()
    wanted = [recipes[name] for name in (*_CLUSTER, *others)]
    built = _find(wanted, recipes)
    if built is None:
        with build_lock():
            _build(wanted, recipes)
        built = _find(wanted, recipes)
        assert built is not None
    return built


def _find(wanted: Sequence[Recipe], recipes: Mapping[str, Recipe]) -> BuiltPrograms | None:
    programs = {it.name: found for it in wanted if (found := it.find()) is not None}
    if len(programs) < len(wanted):
        return None
    file = _catalog_file(_versions(recipes), programs["kubectl"])
    return BuiltPrograms(programs, file) if file.exists() else None


def _build(wanted: Sequence[Recipe], recipes: Mapping[str, Recipe]) -> None:
    """Build the programs that are not there, then the catalogue if it is not there."""
    if missing := [recipe for recipe in wanted if recipe.find() is None]:
        build(missing)
    kubectl = recipes["kubectl"].find()
    assert kubectl is not None
    versions = _versions(recipes)
    file = _catalog_file(versions, kubectl)
    if file.exists():
        return
    print("reading the manifests of the chain's Go modules", flush=True)
    modules = {it.module: recipes[it.program].module for it in COMPONENTS.values()}
    collected = Catalog.collect(module_folders(modules), versions, kubectl)
    file.parent.mkdir(exist_ok=True)
    with partial_folder() as partial:
        collected.write(partial / file.name)
        (partial / file.name).rename(file)


def _versions(recipes: Mapping[str, Recipe]) -> dict[str, str]:
    """Return the version of each component of the chain."""
    return {name: recipes[it.program].module.versions[it.module] for name, it in COMPONENTS.items()}


def _catalog_file(versions: Mapping[str, str], kubectl: Path) -> Path:
    """Return the place of the catalogue: another one for other versions and for other code."""
    code = Path(catalog.__file__).read_bytes()
    digest = hashlib.sha256(code + repr((versions, kubectl.parent.name)).encode())
    return programs_root() / "catalog" / f"{digest.hexdigest()[:16]}.json"
