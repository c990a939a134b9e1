"""Random pods: requests, constraints and states."""

from random import Random
from typing import Any, Final

from tests.reference.random_clusters.constraints import add_constraints
from tests.reference.scheduler.resources import (
    Amounts,
    fits,
    parse_quantities,
    pod_requests,
    subtracted,
)

# Around the end of what is overdue: releasing until 120 s before 01:00:00.
_DELETION_TIMES: Final = ("00:59:50", "00:58:01", "00:58:00", "00:57:59", "00:40:00")
_CLASSES: Final = ("low", "low", "high", "high", "build", "higher", "unknown")


class Sampler:
    """Luck, and what is still free on each node."""

    def __init__(self, random: Random, *, crowded: bool = False) -> None:
        self.random = random
        self.crowded = crowded
        self.is_next_running = False  # what comes next
        self.free: dict[str, Amounts] = {}
        self.is_spacious = (
            random.random() < 0.5 and not crowded
        )  # then the order matters more than the node
        self.limit_chance = random.choice((0.0, 0.0, 0.2, 0.5))  # of queues that have limits
        self._hours = random.choice((("00:00:00",), ("00:00:00", "00:00:01", "00:10:00")))

    def happens(self, chance: float) -> bool:
        """Say yes with a chance."""
        return self.random.random() < chance

    def timestamp(self) -> str:
        """Return one of few moments."""
        return f"2026-01-01T{self.random.choice(self._hours)}Z"

    def uid(self) -> str:
        """Return a uid, which follows no other order."""
        return f"{self.random.getrandbits(32):08x}"

    def priority_class(self) -> dict[str, str]:
        """Return the name of a priority class, or none."""
        return {"priorityClassName": self.random.choice(_CLASSES)} if self.happens(0.35) else {}

    def add_node(self, name: str, allocatable: dict[str, str]) -> None:
        """Remember a node."""
        self.free[name] = parse_quantities(allocatable)

    def take_node(self, needs: Amounts) -> str:
        """Return a node with room and take it, or nothing."""
        able = [name for name, room in self.free.items() if fits(needs, room)]
        if not able:
            return ""
        name = self.random.choice(able)
        self.free[name] = subtracted(self.free[name], needs)
        return name


def container(lot: Sampler) -> dict[str, Any]:
    """Return a container that asks for little."""
    random = lot.random
    requests = {"cpu": random.choice(("1", "1", "1", "2", "500m", "500m", "0", "4"))}
    if lot.happens(0.8):
        requests["memory"] = random.choice(("1G", "1G", "1G", "2G", "500M", "4G"))
    if lot.happens(0.35):
        requests["nvidia.com/gpu"] = random.choice(("1", "1", "1", "2", "4", "0"))
    if lot.happens(0.015):
        requests["cpu"] = "9"  # more than any node has
    return {"name": "main", "image": "x", "resources": {"requests": requests}}


def pod_template(lot: Sampler, app: str) -> dict[str, Any]:
    """Return what the pods of a PodSet have in common: labels, and a spec with wishes."""
    spec: dict[str, Any] = {"containers": [container(lot)], "schedulerName": "kai-scheduler"}
    if lot.happens(0.05):
        spec["initContainers"] = [container(lot) | {"name": "first"}]
    if lot.happens(0.05):
        spec["overhead"] = {"cpu": "250m"}
    labels = {"app": lot.random.choice((app, "shared"))}
    add_constraints(lot.random, spec, labels["app"], list(lot.free))
    return {"labels": labels, "spec": spec}


def pod(
    lot: Sampler, name: str, namespace: str, like: dict[str, Any], state: str
) -> dict[str, Any]:
    """Return a pod in a state: waiting, gated, there, going, succeeded or failed."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": lot.uid(),
        "creationTimestamp": lot.timestamp(),
        "labels": dict(like["labels"]),
    }
    spec = dict(like["spec"])
    status = {"phase": "Pending"}
    if state in ("there", "going"):
        spec["nodeName"] = lot.take_node(pod_requests(spec))
        if not spec["nodeName"]:
            del spec["nodeName"]
        elif not lot.happens(0.15):
            status["phase"] = "Running"
    if state == "going":
        meta["deletionTimestamp"] = f"2026-01-01T{lot.random.choice(_DELETION_TIMES)}Z"
        meta["deletionGracePeriodSeconds"] = 30
    if state == "gated":
        spec["schedulingGates"] = [{"name": "example.com/gate"}]
    if state in ("succeeded", "failed"):
        spec["nodeName"] = lot.random.choice(list(lot.free))
        status["phase"] = state.capitalize()
    if state == "waiting" and lot.happens(0.08):
        status["nominatedNodeName"] = lot.random.choice([*lot.free, "gone"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def bare_pod(lot: Sampler, name: str, queues: list[str]) -> dict[str, Any]:
    """Return a pod of ours without a group."""
    like = pod_template(lot, name)
    if lot.happens(0.9):
        like["labels"]["kai.scheduler/queue"] = lot.random.choice(queues)
    if lot.happens(0.15):
        wish = lot.random.choice(("preemptible", "non-preemptible"))
        like["labels"]["kai.scheduler/preemptibility"] = wish
    like["spec"].update(lot.priority_class())
    state = lot.random.choice(("waiting", "waiting", "waiting", "there", "going", "gated"))
    if lot.crowded:
        state = "there" if lot.is_next_running else "waiting"
    return pod(lot, name, lot.random.choice("ab"), like, state)


def foreign_pod(lot: Sampler, name: str) -> dict[str, Any]:
    """Return a pod of another scheduler."""
    like = pod_template(lot, name)
    like["spec"]["schedulerName"] = lot.random.choice(("default-scheduler", "other"))
    state = lot.random.choice(("there", "there", "there", "going", "waiting", "succeeded"))
    return pod(lot, name, lot.random.choice("ab"), like, state)
