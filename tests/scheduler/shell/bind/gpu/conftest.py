"""A scheduler on an API server in memory, whose reservation pods get their devices."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.scheduler.shell.conftest import SchedulerHarness
from tests.support.fakes.fake_cluster import Fields
from tests.support.state.objects import make_object, pod

GROUP: Final = "runai-gpu-group"
DEVICE: Final = "run.ai/reserve_for_gpu_index"
PREFIX: Final = "runai/shared-gpu-configmap"
AGENT_S: Final = 0.5  # until a reservation pod has its device
_REJECTED: Final = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}


def share(name: str, fraction: str = "0.5", devices: int = 1, **more: Any) -> Fields:
    """Return a pod that requests a share of a GPU, as the webhook prepares it."""
    annotations = {
        "gpu-fraction": fraction,
        "gpu-fraction-num-devices": str(devices),
        PREFIX: f"{name}-x1y2z3a-shared-gpu",
    }
    return pod(name, asks={"cpu": "1"}, annotations=annotations, **more)


class SharingHarness(SchedulerHarness):
    """Plays the agents too: the reservation pods of a node get its devices in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.is_agent_silent = False
        self.rejects = False  # the kubelets refuse reservation pods
        self.rejecting_node = ""  # only its kubelet does

    def reservation_pods(self) -> list[Fields]:
        return [*self._reservation_pods()]

    def _reservation_pods(self) -> Iterator[Fields]:
        for name in self.api.names("Pod"):
            if name.startswith("gpu-reservation-"):
                yield self.api.get("Pod", name)

    async def advance(self, seconds: float) -> None:
        """Let time pass, and have the agents work."""
        while seconds > 0:
            await super().advance(min(seconds, AGENT_S))
            seconds -= AGENT_S
            self._work_as_agents()

    def _work_as_agents(self) -> None:
        for it in self.reservation_pods():
            annotations = it["metadata"].get("annotations", {})
            if self.rejects or it["spec"]["nodeName"] == self.rejecting_node:
                self.api.put({**it, "status": _REJECTED})
            elif not self.is_agent_silent and DEVICE not in annotations:
                device = f"GPU-{it['spec']['nodeName']}-{self._free_device(it)}"
                self.annotate(it, {DEVICE: device})

    def _free_device(self, of: Fields) -> int:
        taken = {
            it["metadata"].get("annotations", {}).get(DEVICE)
            for it in self.reservation_pods()
            if it["spec"]["nodeName"] == of["spec"]["nodeName"]
        }
        node = of["spec"]["nodeName"]
        return next(number for number in range(99) if f"GPU-{node}-{number}" not in taken)

    def annotate(self, obj: Fields, annotations: dict[str, str]) -> None:
        meta = obj["metadata"]
        annotations = {**meta.get("annotations", {}), **annotations}
        self.api.put({**obj, "kind": "Pod", "metadata": {**meta, "annotations": annotations}})

    def groups_of_pods(self) -> dict[str, list[str]]:
        found = {}
        for name in self.api.names("Pod"):
            labels = self.api.get("Pod", name)["metadata"].get("labels", {})
            groups = sorted(text for label, text in labels.items() if label.startswith(GROUP))
            if groups and not name.startswith("gpu-reservation-"):
                found[name] = groups
        return found

    def config_maps(self) -> list[str]:
        return sorted(self.api.names("ConfigMap"))


@pytest.fixture
def sharing() -> SharingHarness:
    return SharingHarness()


def reservation_of_kai(name: str = "gpu-reservation-a-x7f2k", of: str = "g1") -> Fields:
    labels = {"app": "kai-resource-reservation", GROUP: of}
    limits = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    spec = {
        "nodeName": "a",
        "serviceAccountName": "kai-resource-reservation",
        "schedulerName": "default-scheduler",
        "containers": [{"name": "resource-reservation", "resources": limits}],
    }
    meta = {"uid": name, "labels": labels, "annotations": {DEVICE: "GPU-kai"}}
    meta["namespace"] = "kai-resource-reservation"
    return make_object("Pod", name, meta, spec=spec, status={"phase": "Running"})
