"""What is read out of the upstream modules."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.cluster.catalog import _COMPONENTS, _KWOK_STAGES, Catalog, ModuleSource

JOBSET, TRAINER, KWOK = "sigs.k8s.io/jobset", "github.com/kubeflow/trainer/v2", "sigs.k8s.io/kwok"
# folder below the modules -> the kinds of the objects in it
TREE = {
    f"{JOBSET}/config/components/crd/bases": ["CustomResourceDefinition"],
    f"{JOBSET}/config/components/webhook": [
        "Service",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
    ],
    f"{TRAINER}/manifests/base/crds": ["CustomResourceDefinition"],
    f"{TRAINER}/manifests/base/webhook": ["ValidatingWebhookConfiguration", "Service"],
    f"{TRAINER}/manifests/base/runtimes": ["ClusterTrainingRuntime"],
    f"{TRAINER}/manifests/base/runtimes/data-cache": ["ClusterTrainingRuntime"],
}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Return the catalogue of modules that hold little, rendered by a kubectl that only reads."""
    for folder, kinds in TREE.items():
        write_objects(tmp_path / folder / "all.yaml", kinds, prefix=folder.rpartition("/")[2])
    for stage in _KWOK_STAGES:
        write_objects(tmp_path / KWOK / "kustomize" / "stage" / f"{stage}.yaml", ["Stage"], stage)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\n[ "$1" = kustomize ] && cat "$2"/*.yaml\n')
    kubectl.chmod(0o755)
    modules = {
        path: ModuleSource(f"v{number}", str(tmp_path / path))
        for number, path in enumerate(_COMPONENTS.values())
    }
    return Catalog.collect(modules, kubectl)


def test_each_object_is_where_it_belongs(catalog: Catalog) -> None:
    """Of the webhook folders only the configurations are kept: there is no Service network."""
    collected = {
        name: [obj["metadata"]["name"] for obj in objects]
        for name, objects in catalog._asdict().items()
        if name not in ("kwok", "versions")
    }

    assert collected == {
        "crds": ["bases-CustomResourceDefinition", "crds-CustomResourceDefinition"],
        "jobset_webhooks": [
            "webhook-MutatingWebhookConfiguration",
            "webhook-ValidatingWebhookConfiguration",
        ],
        "trainer_webhooks": ["webhook-ValidatingWebhookConfiguration"],
        "runtimes": ["runtimes-ClusterTrainingRuntime", "data-cache-ClusterTrainingRuntime"],
    }


def test_stages_are_found_by_name(catalog: Catalog) -> None:
    """KWOK's objects are asked for by the name they carry."""
    assert {name: obj["metadata"]["name"] for name, obj in catalog.kwok.items()} == {
        f"{stage}-Stage": f"{stage}-Stage" for stage in _KWOK_STAGES
    }


def test_the_versions_are_of_the_modules(catalog: Catalog) -> None:
    """Each component has the version of the module that its program was built from."""
    assert catalog.versions == {name: f"v{number}" for number, name in enumerate(_COMPONENTS)}


def test_what_is_written_is_read(catalog: Catalog, tmp_path: Path) -> None:
    """The file beside the programs holds the whole catalogue."""
    catalog.write(tmp_path / "catalog.json")

    assert Catalog.read(tmp_path / "catalog.json") == catalog


def write_objects(file: Path, kinds: Sequence[str], prefix: str) -> None:
    """Write objects of some kinds, an empty document first, as generated files often begin."""
    file.parent.mkdir(parents=True, exist_ok=True)
    documents = [f"kind: {kind}\nmetadata: {{name: {prefix}-{kind}}}\n" for kind in kinds]
    file.write_text("---\n".join(["", "", *documents]))
