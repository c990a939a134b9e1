"""What the upstream modules ship besides programs: CRDs, webhooks, runtimes and KWOK stages.

Read with the kustomizations their authors wrote when this file or a version has changed, and kept
as JSON beside the programs. Nothing of theirs is copied into this repository.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Self

import yaml

from e2e.cluster.resources import Obj
from e2e.cluster.tether import tethered
from e2e.cluster.toolchain import run

_JOBSET: Final = "sigs.k8s.io/jobset"
_TRAINER: Final = "github.com/kubeflow/trainer/v2"
_KWOK: Final = "sigs.k8s.io/kwok"
_KWOK_STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-complete",
    "pod/fast/pod-delete",
    "pod/chaos/pod-container-running-failed",
    "volume/fast/pv-bind",
    "volume/fast/pv-delete",
    "volume/fast/pvc-delete",
    "volume/fast/pvc-provision",
    "volume/fast/storage-class",
)


class Component(NamedTuple):
    """A part of the chain: one of its programs, and the Go module that has its version."""

    program: str
    module: str


COMPONENTS: Final = {
    "Kubernetes": Component("kube-apiserver", "k8s.io/kubernetes"),
    "etcd": Component("etcd", "go.etcd.io/etcd/server/v3"),
    "JobSet": Component("jobset", _JOBSET),
    "Trainer": Component("trainer-controller-manager", _TRAINER),
    "KWOK": Component("kwok", _KWOK),
}


class Catalog(NamedTuple):
    """The objects a fresh cluster is furnished with, and the versions of its programs."""

    crds: list[Obj]
    jobset_webhooks: list[Obj]
    trainer_webhooks: list[Obj]
    runtimes: list[Obj]
    kwok: dict[str, Obj]  # stages and the storage class, by name
    versions: dict[str, str]  # of the modules that the programs are built from, by component

    @classmethod
    def collect(cls, modules: Mapping[str, Path], versions: dict[str, str], kubectl: Path) -> Self:
        """Read the objects out of the folders of the modules."""
        jobset = modules[_JOBSET] / "config" / "components"
        trainer = modules[_TRAINER] / "manifests" / "base"
        stages = modules[_KWOK] / "kustomize" / "stage"

        def built(folder: Path) -> list[Obj]:
            return _documents(run(tethered([str(kubectl), "kustomize", str(folder)])))

        kwok = [_documents((stages / f"{name}.yaml").read_bytes())[0] for name in _KWOK_STAGES]
        crd_files = sorted((jobset / "crd" / "bases").glob("*.yaml"))
        return cls(
            crds=[d for file in crd_files for d in _documents(file.read_bytes())]
            + built(trainer / "crds"),
            jobset_webhooks=_webhooks(built(jobset / "webhook")),
            trainer_webhooks=_webhooks(built(trainer / "webhook")),
            runtimes=built(trainer / "runtimes") + built(trainer / "runtimes" / "data-cache"),
            kwok={obj["metadata"]["name"]: obj for obj in kwok},
            versions=versions,
        )

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read what `write` wrote."""
        return cls(**json.loads(file.read_bytes()))

    def write(self, file: Path) -> None:
        """Write everything as one JSON file."""
        file.write_text(json.dumps(self._asdict()))


def _documents(text: str | bytes) -> list[Obj]:
    return [document for document in yaml.load_all(text, yaml.CSafeLoader) if document]


def _webhooks(objects: list[Obj]) -> list[Obj]:
    return [obj for obj in objects if obj["kind"].endswith("WebhookConfiguration")]
