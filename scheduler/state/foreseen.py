"""The pods of a group that do not exist yet, as its annotation foretells them."""

from collections.abc import Iterator, Mapping

from scheduler.state.gang import Gang
from scheduler.state.kin import Kin
from scheduler.state.kins import Kins
from trainer_kai.api.container import Container, ContainerPort, Resources
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import JOB_INDEX, JOBSET_NAME, JOBSET_UID, REPLICATED_JOB, SUBGROUP
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.policy.anticipated import Later
from trainer_kai.policy.names import leaf_prefix
from trainer_kai.policy.units import MOST_EXPECTED

__all__ = ["foresee"]


def foresee(gang: Gang, kins: Kins, scheduler_name: str) -> dict[str, tuple[Kin, int]]:
    """Return for each leaf of which kin the pods that come will be, and how many there are."""
    found = {}
    for later in gang.said.later:
        pod = _pod_of(later, gang.key, scheduler_name)
        count = _count(later)
        for leaf, labels in _later_leaves(later, gang):
            # Their sub-group is a label, so that those of two leaves are not alike.
            found[leaf] = kins.foresee(gang.key, pod, (labels, later.sharing)), count
    for leaf, held in gang.coming_back.items() if gang.is_awaited else ():
        like = held.like
        if like is not None and leaf in gang.minima and leaf not in found:
            said = {**like.labels, SUBGROUP: leaf}, like.sharing
            pod = _pod_of(like, gang.key, scheduler_name)
            found[leaf] = kins.foresee(gang.key, pod, said), _count(like)
    return found


def _count(later: Later) -> int:
    return min(max(later.count, 0), MOST_EXPECTED)


def _later_leaves(later: Later, gang: Gang) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the leaves of pods that come later, and what is known of their labels."""
    known = {**later.labels, **_jobset_labels(later, gang.jobset)}
    for leaf in gang.minima:
        index = leaf.removeprefix(later.sub_group_prefix)
        is_its = leaf.startswith(later.sub_group_prefix) and index.isdecimal()
        if is_its and len(index) < 10 and int(index) < later.replicas:
            of_job = {JOB_INDEX: index} if gang.owner else {}
            yield leaf, {**known, **of_job, SUBGROUP: leaf}


def _jobset_labels(later: Later, jobset: JobSet | None) -> Mapping[str, str]:
    """Return what JobSet will write on pods, as far as others may choose them by it."""
    if jobset is None:
        return {}
    known = {JOBSET_NAME: jobset.metadata.name, JOBSET_UID: jobset.metadata.uid}
    for job in jobset.spec.replicated_jobs:
        if leaf_prefix(job.name) == later.sub_group_prefix:
            known[REPLICATED_JOB] = job.name
    return known


def _pod_of(later: Later, group: Key, scheduler_name: str) -> Pod:
    ports = tuple(
        ContainerPort(host_port=one.port, protocol=one.protocol, host_ip=one.host_ip)
        for one in later.host_ports
    )
    spec = PodSpec(
        containers=(Container(resources=Resources(requests=later.requests), ports=ports),),
        volumes=tuple(one for one in later.volumes if one.persistent_volume_claim),
        topology_spread_constraints=later.topology_spread_constraints,
        node_selector=later.node_selector,
        affinity=later.affinity,
        tolerations=later.tolerations,
        priority_class_name=later.priority_class_name,
        scheduler_name=scheduler_name,
    )
    return Pod(metadata=Meta(namespace=group.namespace), spec=spec)
