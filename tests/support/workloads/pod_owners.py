"""Objects that own pods by one template, as a user writes them."""

from typing import Any

Fields = dict[str, Any]


def template(gpus: int = 1, scheduler: str = "kai-scheduler", **meta: Any) -> Fields:
    container = {"name": "main", "image": "a", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"metadata": meta, "spec": {"schedulerName": scheduler, "containers": [container]}}


def pod_owner(kind: str, name: str = "web", replicas: int | None = None, **meta: Any) -> Fields:
    """Return an object of queue team-a; *meta* replaces parts of its metadata."""
    spec: Fields = {"template": meta.pop("template", template())}
    if replicas is not None:
        spec["replicas"] = replicas
    labels = {"kai.scheduler/queue": "team-a"}
    return {
        "apiVersion": "kubeflow.org/v1" if kind == "Notebook" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "labels": labels, **meta},
        "spec": spec,
    }


def owned_by(owner: Fields, uid: str = "") -> list[Fields]:
    """Return the owners of what an object controls."""
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return [{**reference, "name": owner["metadata"]["name"], "uid": uid}]
