"""The layout of a cluster that is never started, and the KWOK stages it would have.

The stages are cut down to what is read from them. They say what KWOK's own say in the places that
matter, so a test that passes here still has to be seen passing on the real ones.
"""

from pathlib import Path
from typing import Final

from e2e.cluster.certificates import KeyPair
from e2e.cluster.programs import ClusterLayout
from e2e.cluster.resources import Obj

PORTS: Final = {
    "etcd": 1,
    "etcd-peer": 2,
    "kube-apiserver": 3,
    "jobset-webhook": 4,
    "jobset-health": 5,
    "trainer-webhook": 6,
    "trainer-health": 7,
}
PROGRAMS: Final = (
    "etcd",
    "jobset",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "trainer-controller-manager",
)


def make_layout(run: Path) -> ClusterLayout:
    """Return the ground of a cluster in a run folder, without writing anything."""
    pki = run / "pki"
    return ClusterLayout(
        run=run,
        programs={name: Path("/programs") / name for name in PROGRAMS},
        ports=PORTS,
        authority=pki / "ca.crt",
        serving=KeyPair(pki / "serving" / "tls.crt", pki / "serving" / "tls.key"),
        service_accounts=KeyPair(pki / "sa.pub", pki / "sa.key"),
    )


def _stage(name: str, kind: str, *expressions: Obj, **spec: object) -> Obj:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": list(expressions)},
            **spec,
        },
    }


def _key(key: str, operator: str, *values: str) -> Obj:
    return {"key": key, "operator": operator, "values": list(values)}


def _cel(expression: str) -> Obj:
    return {"cel": {"expression": expression}}


def _status(*lines: str) -> Obj:
    return {"statusTemplate": "\n".join(lines)}


_OF_THE_DEFAULT_CLASS: Final = _cel("self.spec.storageClassName == 'kwok-volume'")
_NOT_DELETED: Final = _cel("!has(self.metadata.deletionTimestamp)")
_DELETED: Final = _cel("has(self.metadata.deletionTimestamp)")
_READY_STATUS: Final = _status(
    "conditions:",
    '- status: "True"',
    "  type: Initialized",
    '- status: "True"',
    "  type: Ready",
    '- status: "True"',
    "  type: ContainersReady",
    "containerStatuses:",
    "- ready: true",
    "initContainerStatuses:",
    "- ready: true",
    "phase: Running",
)
_SHIPPED_STAGES: Final = [
    _stage("node-initialize", "Node", next=_status("phase: Running")),
    _stage("node-heartbeat-with-lease", "Node", delay={"durationMilliseconds": 600_000}),
    _stage("pod-ready", "Pod", _key(".status.phase", "In", "Pending"), next=_READY_STATUS),
    _stage(
        "pod-complete",
        "Pod",
        _key(".status.phase", "In", "Running"),
        _key(".metadata.ownerReferences.[].kind", "In", "Job"),
        next=_status("phase: Succeeded"),
    ),
    _stage(
        "pod-delete",
        "Pod",
        {"key": ".metadata.deletionTimestamp", "operator": "Exists"},
        next={"delete": True},
    ),
    _stage(
        "pod-container-running-failed",
        "Pod",
        _key('.metadata.labels["fail"]', "In", "true"),
        delay={"durationMilliseconds": 1000, "jitterDurationMilliseconds": 1000},
        weight=10_000,
        next=_status("phase: Failed"),
    ),
    _stage("pv-bind", "PersistentVolume", _OF_THE_DEFAULT_CLASS, _NOT_DELETED),
    _stage("pv-delete", "PersistentVolume", _OF_THE_DEFAULT_CLASS, _NOT_DELETED),
    _stage("pvc-delete", "PersistentVolumeClaim", _OF_THE_DEFAULT_CLASS, _DELETED),
    _stage(
        "pvc-provision",
        "PersistentVolumeClaim",
        _OF_THE_DEFAULT_CLASS,
        _NOT_DELETED,
        steps=[
            {"apply": {"template": "kind: PersistentVolume\nspec:\n  capacity: 1\n"}},
            {"patch": {"template": "phase: Bound\n"}},
        ],
    ),
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "kwok-volume",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kwok.x-k8s.io/volume",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    },
]
KWOK: Final[dict[str, Obj]] = {obj["metadata"]["name"]: obj for obj in _SHIPPED_STAGES}
