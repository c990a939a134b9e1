"""Objects as the API server returns them, of which a random cluster fills the rest."""

from typing import Any, Final, TypeAlias

Obj: TypeAlias = dict[str, Any]

_VERSIONS: Final = {
    "Queue": "scheduling.run.ai/v2",
    "PodGroup": "scheduling.run.ai/v2alpha2",
    "PriorityClass": "scheduling.k8s.io/v1",
    "SchedulingShard": "kai.scheduler/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}
_NAMESPACED: Final = ("Pod", "PodGroup", "JobSet", "TrainJob")


def make_object(kind: str, name: str, at: str) -> Obj:
    """Return an object that was created at this time of the first day of 2026."""
    meta = {"name": name, "uid": f"{kind}-{name}", "creationTimestamp": f"2026-01-01T{at}Z"}
    if kind in _NAMESPACED:
        meta["namespace"] = "a"
    return {"apiVersion": _VERSIONS.get(kind, "v1"), "kind": kind, "metadata": meta}
