"""Objects of other systems, and what a move makes of them."""

from collections.abc import Iterable
from typing import Any, Final

import yaml

from tests.support.repository import ROOT
from tests.support.schemas import crd_schema
from trainer_kai.cli.commands.migrate.migration import Migration, MigrationNote
from trainer_kai.cli.commands.migrate.plan_migration import plan_migration
from trainer_kai.cli.input.documents import Document

Obj = dict[str, Any]
Share = tuple[float, float, float]
EXAMPLES: Final = ROOT / "tests/fixtures/migrate"
_CRDS: Final = ROOT / "manifests/base/crds"
_TYPES: Final[dict[str, Any]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
}


def migrate(system: str, *objects: Obj, file: str = "in.yaml") -> Migration:
    return plan_migration(system, [Document(file, it) for it in objects])


def example(system: str) -> list[Obj]:
    return [it for it in yaml.safe_load_all((EXAMPLES / f"{system}.yaml").read_text()) if it]


def notes(found: Iterable[MigrationNote]) -> list[tuple[str, str]]:
    return [(str(it.source), it.path) for it in found]


def shares(migration: Migration, name: str) -> dict[str, Share]:
    (queue,) = (
        it for it in migration.manifests if it["kind"] == "Queue" and it["metadata"]["name"] == name
    )
    return {
        resource: (it["quota"], it["limit"], it["overQuotaWeight"])
        for resource, it in queue["spec"]["resources"].items()
    }


def faults_against_schema(manifest: Obj) -> list[str]:
    """Return where an object differs from the definition of its kind; none for other kinds."""
    for path in sorted(_CRDS.glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        if crd.get("kind") == "CustomResourceDefinition":
            group, _, version = manifest["apiVersion"].rpartition("/")
            spec = crd["spec"]
            if (spec["group"], spec["names"]["kind"]) == (group, manifest["kind"]):
                schema = crd_schema(crd, version)["properties"]["spec"]
                return list(_faults(schema, manifest["spec"], "spec"))
    return []


def _faults(schema: Any, value: Any, path: str) -> Iterable[str]:
    if not isinstance(value, _TYPES[schema["type"]]) or isinstance(value, bool):
        yield f"{path}: {value!r} is no {schema['type']}"
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _faults(schema["items"], item, f"{path}[{i}]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, item in value.items():
            if name in schema["properties"]:
                yield from _faults(schema["properties"][name], item, f"{path}.{name}")
            else:
                yield f"{path}.{name}: is unknown"
