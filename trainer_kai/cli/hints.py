"""What people should know of groups that the plan says nothing of.

A group without pods has no verdict, nor has one whose pods wait for what is being released; some of
what groups ask for is not looked at yet, and some of it is in no file.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from scheduler.state.cluster import Cluster
from scheduler.state.queues import QueueRows
from trainer_kai.api.meta import Key
from trainer_kai.api.names import (
    ANTICIPATED,
    DEFAULT_SCHEDULER,
    JOBSET_NAME,
    NODE_POOL,
    POD_GROUP,
    PRIORITY_CLASS_NAME,
    QUEUE,
)
from trainer_kai.api.podgroup import PodGroup
from trainer_kai.cli.suspended import why_suspended
from trainer_kai.policy.access import Access
from trainer_kai.policy.anticipated import After, read_anticipated
from trainer_kai.policy.classes import default_priority

__all__ = ["hints", "in_no_file", "left_to_others", "not_asked", "not_looked_at", "suspended"]

_OVER = frozenset({"Succeeded", "Failed"})
_TRAIN = ("train", 50)  # the class of a group whose TrainJob names none, and its value


def not_looked_at(cluster: Cluster) -> Iterator[str]:
    """Yield what groups ask for in vain."""
    groups = sorted(cluster.pod_groups.items())
    near = [key for key, group in groups if _prefers_near(group)]
    if near:
        begin = "a preferred topology has no effect yet"
        yield f"{begin}: nothing keeps the pods of {_some(near)} together"
    pooled = [key for key, group in groups if NODE_POOL in group.metadata.labels]
    if pooled:
        yield f"the label {NODE_POOL} is not looked at: all nodes count for {_some(pooled)}"


def in_no_file(cluster: Cluster, scheduler_name: str) -> Iterator[str]:
    """Yield the nodes and priority classes that are named and nobody knows, with what follows."""
    beyond: dict[Key, str] = {}
    for key, pod in cluster.pods.items():
        name = pod.spec.node_name
        if name and name not in cluster.nodes and pod.status.phase not in _OVER:
            beyond[key] = name
    if beyond:
        first, more = min(beyond.values()), len(set(beyond.values())) - 1
        nodes = f"Node {first} and {more} more are" if more else f"Node {first} is"
        yield f"{nodes} in no file, though pods run there: {_some(beyond)}"
    yield from _classes(cluster, scheduler_name)


def left_to_others(cluster: Cluster, scheduler_name: str) -> Iterator[str]:
    """Yield which schedulers the pods of groups wait for that are not ours."""
    theirs: dict[str, set[Key]] = {}
    for key, pod in cluster.pods.items():
        asked = pod.spec.scheduler_name
        waits = not pod.spec.node_name and pod.status.phase not in _OVER
        if asked != scheduler_name and waits and POD_GROUP in pod.metadata.annotations:
            theirs.setdefault(asked or DEFAULT_SCHEDULER, set()).add(key)
    for name in sorted(theirs):
        yield f"{_some(theirs[name])} in a group: left to {name}, for this is {scheduler_name}"


def _classes(cluster: Cluster, scheduler_name: str) -> Iterator[str]:
    asked: dict[str, set[Key]] = {}
    for key, group in cluster.pod_groups.items():
        asked.setdefault(group.spec.priority_class_name, set()).add(key)
    for key, pod in cluster.pods.items():
        if pod.spec.scheduler_name == scheduler_name and POD_GROUP not in pod.metadata.annotations:
            label = pod.metadata.labels.get(PRIORITY_CLASS_NAME)
            asked.setdefault(label or pod.spec.priority_class_name, set()).add(key)
    by_pods = {pod.spec.priority_class_name for pod in cluster.pods.values()}
    priority = default_priority(cluster.priority_classes)
    for name in sorted(asked.keys() - cluster.priority_classes.keys() - {""}):
        if (name, priority) != _TRAIN:
            taken = f"the priority of {_some(asked[name])} is taken to be {priority}"
            refused = ", but a cluster without it refuses such pods" if name in by_pods else ""
            yield f"PriorityClass {name} is in no file: {taken}{refused}"


def not_asked(cluster: Cluster, scheduler_name: str, default_queue: str) -> Iterator[str]:
    """Yield which namespaces are taken to be allowed to use closed queues, for no file says it."""
    uses = {Key(key.namespace, it.spec.queue) for key, it in cluster.pod_groups.items()}
    for key, pod in cluster.pods.items():
        is_alone = POD_GROUP not in pod.metadata.annotations
        if is_alone and pod.spec.scheduler_name == scheduler_name:
            uses.add(Key(key.namespace, pod.metadata.labels.get(QUEUE) or default_queue))
    rows = QueueRows(cluster.queues)
    unknown = [it for it in uses - cluster.permits.keys() if _is_closed(rows, it.name)]
    if unknown:
        namespace, queue = min(unknown)
        more = f", and {len(unknown) - 1} more alike" if len(unknown) > 1 else ""
        yield (
            f"queue {queue} is closed, and no SubjectAccessReview says whether namespace "
            f"{namespace} may use it: it is taken for granted{more}"
        )


def _is_closed(rows: QueueRows, queue: str) -> bool:
    return rows.bar(queue) is None and rows.access(queue).access is Access.CLOSED


def hints(
    cluster: Cluster, groups: Mapping[Key, Key], nominated: Iterable[Key], evicted: Iterable[Key]
) -> dict[Key, str]:
    """Return what to say of groups; *groups* are those of pods, the pods are the last plan's."""
    promised = Counter(groups[pod] for pod in nominated if pod in groups)
    going = Counter(groups[pod] for pod in evicted if pod in groups)
    peopled = frozenset(groups.values())
    absent = (key for key in cluster.pod_groups if key not in peopled)
    return {
        **{key: _promised(count) for key, count in promised.items()},
        **{key: _going(count) for key, count in going.items()},
        **{key: _without_pods(cluster.pod_groups[key]) for key in absent},
        **suspended(cluster),
    }


def suspended(cluster: Cluster) -> dict[Key, str]:
    """Return the groups of what is held back, and who holds it back as far as that is told."""
    found = {}
    for key, group in cluster.pod_groups.items():
        name = Key(key.namespace, group.metadata.labels.get(JOBSET_NAME, ""))
        job, jobset = cluster.trainjobs.get(name), cluster.jobsets.get(name)
        if job is not None and job.spec.suspend:
            found[key] = f"it is suspended: {why_suspended(job, (group,))}"
        elif jobset is not None and jobset.spec.suspend:
            found[key] = "its JobSet is suspended"
    return found


def _prefers_near(group: PodGroup) -> bool:
    """Say whether a group prefers its pods close together; if it requires it, a verdict tells."""
    spec = group.spec
    asked = (spec.topology_constraint, *(sub.topology_constraint for sub in spec.sub_groups))
    return any(it and it.topology and it.preferred_topology_level for it in asked)


def _some(keys: Collection[Key]) -> str:
    first = min(keys)
    more = len(keys) - 1
    return f"{first} and {more} more" if more else str(first)


def _promised(count: int) -> str:
    who = "1 pod is" if count == 1 else f"{count} pods are"
    return f"{who} promised room that is being released (nominated), and not placed before"


def _going(count: int) -> str:
    who = "1 pod has" if count == 1 else f"{count} pods have"
    return f"{who} to go (evicted): that counts neither as placed nor as waiting"


def _without_pods(group: PodGroup) -> str:
    try:
        after = read_anticipated(group.metadata.annotations.get(ANTICIPATED, "")).after
    except msgspec.DecodeError:
        after = ()
    if not after:
        return "it has no pods"
    return f"it has no pods yet: they are made when {_stages(after)}, and not judged before"


def _stages(after: Iterable[After]) -> str:
    by_status: dict[str, list[str]] = {}
    for it in after:
        by_status.setdefault(it.status, []).append(it.replicated_job)
    return ", and ".join(
        f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} {status}"
        for status, names in sorted(by_status.items())
    )
