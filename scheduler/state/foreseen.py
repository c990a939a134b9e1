"""The pods of a group that do not exist yet, as its annotation foretells them."""

from collections.abc import Iterator, Mapping

from scheduler.state.gang import PodGroupRecord
from scheduler.state.kin import PodClass
from scheduler.state.kins import PodClassTable
from trainer_kai.api.container import Container, ContainerPort, Resources
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import Key, Meta
from trainer_kai.api.names import JOB_INDEX, JOBSET_NAME, JOBSET_UID, REPLICATED_JOB, SUBGROUP
from trainer_kai.api.pod import Pod, PodSpec
from trainer_kai.policy.anticipated import AnticipatedPods
from trainer_kai.policy.names import podset_name_prefix
from trainer_kai.policy.units import MOST_EXPECTED

__all__ = ["expected_pods"]


def expected_pods(
    record: PodGroupRecord, class_table: PodClassTable, scheduler_name: str
) -> dict[str, tuple[PodClass, int]]:
    """Return for each leaf of which kin the pods that come will be, and how many there are."""
    found = {}
    for anticipated_pods in record.anticipated.later:
        pod = _example_pod(anticipated_pods, record.key, scheduler_name)
        count = _count(anticipated_pods)
        for podset, labels in _podsets_of(anticipated_pods, record):
            # Their sub-group is a label, so that those of two leaves are not alike.
            found[podset] = (
                class_table.expect(record.key, pod, (labels, anticipated_pods.sharing)),
                count,
            )
    for podset, reserved in record.relocating.items() if record.is_relocating else ():
        like = reserved.like
        if like is not None and podset in record.min_members and podset not in found:
            metadata = {**like.labels, SUBGROUP: podset}, like.sharing
            pod = _example_pod(like, record.key, scheduler_name)
            found[podset] = class_table.expect(record.key, pod, metadata), _count(like)
    return found


def _count(anticipated_pods: AnticipatedPods) -> int:
    return min(max(anticipated_pods.count, 0), MOST_EXPECTED)


def _podsets_of(
    anticipated_pods: AnticipatedPods, record: PodGroupRecord
) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield the leaves of pods that come later, and what is known of their labels."""
    known = {**anticipated_pods.labels, **_jobset_labels(anticipated_pods, record.jobset)}
    for podset in record.min_members:
        index = podset.removeprefix(anticipated_pods.sub_group_prefix)
        is_its = podset.startswith(anticipated_pods.sub_group_prefix) and index.isdecimal()
        if is_its and len(index) < 10 and int(index) < anticipated_pods.replicas:
            of_job = {JOB_INDEX: index} if record.jobset_uid else {}
            yield podset, {**known, **of_job, SUBGROUP: podset}


def _jobset_labels(anticipated_pods: AnticipatedPods, jobset: JobSet | None) -> Mapping[str, str]:
    """Return what JobSet will write on pods, as far as others may choose them by it."""
    if jobset is None:
        return {}
    known = {JOBSET_NAME: jobset.metadata.name, JOBSET_UID: jobset.metadata.uid}
    for job in jobset.spec.replicated_jobs:
        if podset_name_prefix(job.name) == anticipated_pods.sub_group_prefix:
            known[REPLICATED_JOB] = job.name
    return known


def _example_pod(anticipated_pods: AnticipatedPods, group: Key, scheduler_name: str) -> Pod:
    ports = tuple(
        ContainerPort(host_port=one.port, protocol=one.protocol, host_ip=one.host_ip)
        for one in anticipated_pods.host_ports
    )
    spec = PodSpec(
        containers=(
            Container(resources=Resources(requests=anticipated_pods.requests), ports=ports),
        ),
        volumes=tuple(one for one in anticipated_pods.volumes if one.persistent_volume_claim),
        topology_spread_constraints=anticipated_pods.topology_spread_constraints,
        node_selector=anticipated_pods.node_selector,
        affinity=anticipated_pods.affinity,
        tolerations=anticipated_pods.tolerations,
        priority_class_name=anticipated_pods.priority_class_name,
        scheduler_name=scheduler_name,
    )
    return Pod(metadata=Meta(namespace=group.namespace), spec=spec)
