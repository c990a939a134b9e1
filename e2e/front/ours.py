"""What tests ask about groups and pods on a chain with our processes."""

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from e2e.cluster.cluster import Cluster
from e2e.cluster.resources import PODS, TRAINJOBS, Obj
from e2e.cluster.stages import RUN_SECONDS
from e2e.cluster.timeline import State, Timeline
from e2e.cluster.trainjobs import condition, pod_annotations, replicated_jobs
from e2e.front.install import PODGROUPS
from e2e.front.processes import ProductProcess
from tests.support.groupbinder import bindable

__all__ = [
    "PODGROUP",
    "QUEUE",
    "SUBGROUP",
    "WebhookInstallation",
    "bind_by_podgroups",
    "finishing_pods",
    "groups_in",
    "is_complete",
    "podgroup_summary",
    "pods_in",
]

PODGROUP = "pod-group-name"
SUBGROUP = "kai.scheduler/subgroup-name"
QUEUE = "kai.scheduler/queue"


class WebhookInstallation(NamedTuple):
    """A chain, and our processes on it."""

    cluster: Cluster
    webhook: ProductProcess
    podgrouper: ProductProcess


async def bind_by_podgroups(
    cluster: Cluster,
    seen: Timeline,
    done: Callable[[State], bool],
    timeout_s: float = 60.0,
) -> list[str]:
    """Bind whatever the groups let be bound until it is *done*; return the pods in that order.

    It knows groups and pods and nothing else; the timeline must record both.
    """
    nodes = itertools.cycle([f"node-{i}" for i in range(8)])
    bound: list[str] = []
    async for state in seen.follow(done, timeout_s):
        groups, pods = groups_in(state), pods_in(state)
        for namespace, name in bindable(groups, pods):
            if name not in bound:
                bound.append(name)
                await cluster.api.bind(namespace, name, next(nodes))
    return bound


def groups_in(state: State) -> list[Obj]:
    """Return the groups of a state."""
    return [obj for key, obj in state.items() if key.resource == PODGROUPS]


def pods_in(state: State) -> list[Obj]:
    """Return the pods of a state."""
    return [obj for key, obj in state.items() if key.resource == PODS]


def is_complete(state: State) -> bool:
    """Say whether every TrainJob of a state is."""
    jobs = [obj for key, obj in state.items() if key.resource == TRAINJOBS]
    return bool(jobs) and all(condition(job, "Complete") for job in jobs)


def podgroup_summary(group: Obj) -> str:
    """Write down who is in a group: how many of whom must be there, and who comes later."""
    podsets = {
        one["name"]: one["minMember"]
        for one in group["spec"].get("subGroups", ())
        if "minMember" in one
    }
    if not podsets:
        return f"{group['spec']['minMember']}"
    counts: Counter[str] = Counter()
    for name, minimum in podsets.items():
        counts[name.rpartition("-replica-")[0]] += minimum
    return " + ".join(f"{count} {name}" for name, count in counts.items())


def finishing_pods(runtime: Obj, run_for: str = "1s") -> Mapping[str, Obj]:
    """Return the patch that lets pods finish; not MPI workers, whom their launcher ends."""
    names = replicated_jobs(runtime)
    ending = [name for name in names if "launcher" not in names or name == "launcher"]
    return pod_annotations({name: {RUN_SECONDS: run_for} for name in ending})
