"""TrainJobs to submit, and what to read off them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from e2e.cluster.nodes import GPU
from e2e.cluster.resources import Obj

_MANAGER: Final = "trainer-kai.dev/e2e"


@dataclass(frozen=True)
class Submission:
    """What a user asks Trainer for."""

    name: str
    runtime: str
    namespace: str = "default"
    num_nodes: int | None = None  # None leaves it to the runtime
    gpus: int | None = None  # of each node; None leaves it to the runtime
    patches: Mapping[str, Any] | None = None  # the JobSet template to merge in
    kind: str = "ClusterTrainingRuntime"
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def trainjob(self) -> Obj:
        """Return the TrainJob to create."""
        spec: Obj = {"runtimeRef": {"name": self.runtime, "kind": self.kind}}
        trainer: Obj = {}
        if self.num_nodes is not None:
            trainer["numNodes"] = self.num_nodes
        if self.gpus is not None:
            trainer["resourcesPerNode"] = {"limits": {GPU: self.gpus}}
        if trainer:
            spec["trainer"] = trainer
        if self.patches:
            spec["runtimePatches"] = [patch_entry(self.patches)]
        metadata: Obj = {"namespace": self.namespace, "name": self.name}
        if self.labels:
            metadata["labels"] = dict(self.labels)
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        return {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": metadata,
            "spec": spec,
        }


def patch_entry(template: Mapping[str, Any]) -> Obj:
    """Return a runtimePatches entry that merges *template* into the JobSet's template."""
    return {"manager": _MANAGER, "trainingRuntimeSpec": {"template": dict(template)}}


def pod_annotations(annotations: Mapping[str, Mapping[str, str]]) -> Obj:
    """Return the patch that annotates the pods of some replicatedJobs: name → annotations."""
    jobs = [
        {
            "name": name,
            "template": {"spec": {"template": {"metadata": {"annotations": dict(wanted)}}}},
        }
        for name, wanted in annotations.items()
    ]
    return {"spec": {"replicatedJobs": jobs}}


def replicated_jobs(runtime: Obj) -> list[str]:
    """Return the names of a runtime's replicatedJobs in their order."""
    return [job["name"] for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]]


def condition(obj: Obj, name: str) -> bool:
    """Say whether an object's condition is True."""
    conditions: Iterable[Obj] = obj.get("status", {}).get("conditions") or ()
    return any(c["type"] == name and c["status"] == "True" for c in conditions)
