"""Pods by lot: what they need, where they want to be, and how they are."""

from random import Random
from typing import Any, Final

from tests.support.reference.amounts import Amounts, asked, fits, parsed, subtracted
from tests.support.reference.chance_wishes import wishes

__all__ = ["Lot", "bare_pod", "container", "filler", "pod", "template"]

# Around the end of what is overdue: releasing until 120 s before 01:00:00.
_GOING: Final = ("00:59:50", "00:58:01", "00:58:00", "00:57:59", "00:40:00")
_CLASSES: Final = ("low", "low", "high", "high", "build", "higher", "unknown")


class Lot:
    """Luck, and what is still free on each node."""

    def __init__(self, random: Random, *, crowded: bool = False) -> None:
        self.random = random
        self.crowded = crowded
        self.runs = False  # what comes next
        self.free: dict[str, Amounts] = {}
        self.roomy = (
            random.random() < 0.5 and not crowded
        )  # then who is next matters more than where
        self.strictness = random.choice((0.0, 0.0, 0.2, 0.5))  # of queues that have limits
        self._hours = random.choice((("00:00:00",), ("00:00:00", "00:00:01", "00:10:00")))

    def maybe(self, chance: float) -> bool:
        """Say yes with a chance."""
        return self.random.random() < chance

    def moment(self) -> str:
        """Return one of few moments."""
        return f"2026-01-01T{self.random.choice(self._hours)}Z"

    def uid(self) -> str:
        """Return a uid, which follows no other order."""
        return f"{self.random.getrandbits(32):08x}"

    def class_name(self) -> dict[str, str]:
        """Return the name of a priority class, or none."""
        return {"priorityClassName": self.random.choice(_CLASSES)} if self.maybe(0.35) else {}

    def add_node(self, name: str, allocatable: dict[str, str]) -> None:
        """Remember a node."""
        self.free[name] = parsed(allocatable)

    def seat(self, needs: Amounts) -> str:
        """Return a node with room and take it, or nothing."""
        able = [name for name, room in self.free.items() if fits(needs, room)]
        if not able:
            return ""
        name = self.random.choice(able)
        self.free[name] = subtracted(self.free[name], needs)
        return name


def container(lot: Lot) -> dict[str, Any]:
    """Return a container that asks for little."""
    random = lot.random
    requests = {"cpu": random.choice(("1", "1", "1", "2", "500m", "500m", "0", "4"))}
    if lot.maybe(0.8):
        requests["memory"] = random.choice(("1G", "1G", "1G", "2G", "500M", "4G"))
    if lot.maybe(0.35):
        requests["nvidia.com/gpu"] = random.choice(("1", "1", "1", "2", "4", "0"))
    if lot.maybe(0.015):
        requests["cpu"] = "9"  # more than any node has
    return {"name": "main", "image": "x", "resources": {"requests": requests}}


def template(lot: Lot, app: str) -> dict[str, Any]:
    """Return what the pods of a leaf have in common: labels, and a spec with wishes."""
    spec: dict[str, Any] = {"containers": [container(lot)], "schedulerName": "kai-scheduler"}
    if lot.maybe(0.05):
        spec["initContainers"] = [container(lot) | {"name": "first"}]
    if lot.maybe(0.05):
        spec["overhead"] = {"cpu": "250m"}
    labels = {"app": lot.random.choice((app, "shared"))}
    wishes(lot.random, spec, labels["app"], list(lot.free))
    return {"labels": labels, "spec": spec}


def pod(lot: Lot, name: str, namespace: str, like: dict[str, Any], state: str) -> dict[str, Any]:
    """Return a pod in a state: waiting, gated, there, going, succeeded or failed."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": lot.uid(),
        "creationTimestamp": lot.moment(),
        "labels": dict(like["labels"]),
    }
    spec = dict(like["spec"])
    status = {"phase": "Pending"}
    if state in ("there", "going"):
        spec["nodeName"] = lot.seat(asked(spec))
        if not spec["nodeName"]:
            del spec["nodeName"]
        elif not lot.maybe(0.15):
            status["phase"] = "Running"
    if state == "going":
        meta["deletionTimestamp"] = f"2026-01-01T{lot.random.choice(_GOING)}Z"
        meta["deletionGracePeriodSeconds"] = 30
    if state == "gated":
        spec["schedulingGates"] = [{"name": "example.com/gate"}]
    if state in ("succeeded", "failed"):
        spec["nodeName"] = lot.random.choice(list(lot.free))
        status["phase"] = state.capitalize()
    if state == "waiting" and lot.maybe(0.08):
        status["nominatedNodeName"] = lot.random.choice([*lot.free, "gone"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def bare_pod(lot: Lot, name: str, queues: list[str]) -> dict[str, Any]:
    """Return a pod of ours without a group."""
    like = template(lot, name)
    if lot.maybe(0.9):
        like["labels"]["kai.scheduler/queue"] = lot.random.choice(queues)
    if lot.maybe(0.15):
        wish = lot.random.choice(("preemptible", "non-preemptible"))
        like["labels"]["kai.scheduler/preemptibility"] = wish
    like["spec"].update(lot.class_name())
    state = lot.random.choice(("waiting", "waiting", "waiting", "there", "going", "gated"))
    if lot.crowded:
        state = "there" if lot.runs else "waiting"
    return pod(lot, name, lot.random.choice("ab"), like, state)


def filler(lot: Lot, name: str) -> dict[str, Any]:
    """Return a pod of another scheduler."""
    like = template(lot, name)
    like["spec"]["schedulerName"] = lot.random.choice(("default-scheduler", "other"))
    state = lot.random.choice(("there", "there", "there", "going", "waiting", "succeeded"))
    return pod(lot, name, lot.random.choice("ab"), like, state)
