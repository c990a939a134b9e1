"""A JobSet with a Job that cannot create its three pods, and its events."""

from typing import Any, Final

from tests.support.state.objects import JOBSET, group, jobset_pod, make_object
from trainer_kai.api.cluster_kinds import Event, ObjectReference
from trainer_kai.api.meta import Meta

PODGROUP_NAME: Final = "pg-j-u"
QUOTA: Final = "exceeded quota: gpus"
MESSAGE: Final = f"Job j-n-0 cannot create its pods: {QUOTA}"
TIME_FORMAT: Final = "2026-01-05T08:00:0{}Z"


def jobset(**spec: Any) -> dict[str, Any]:
    """Return a JobSet of one Job with three pods, in one group."""
    labels = {"trainer-kai.dev/gang": "Main"}
    template = {"parallelism": 3, "completions": 3, "template": {"metadata": {"labels": labels}}}
    jobs = [{"name": "n", "replicas": 1, "template": {"spec": template}}]
    return make_object("JobSet", "j", {"uid": "u"}, spec={"replicatedJobs": jobs, **spec})


def podgroup_object() -> dict[str, Any]:
    """Return its group."""
    subgroups = [{"name": "n-replica-0", "minMember": 3}]
    return group(PODGROUP_NAME, meta={"ownerReferences": [JOBSET]}, subGroups=subgroups)


def pod_of_job(number: int, second: int) -> dict[str, Any]:
    """Return a pod of the Job, made in such a second."""
    fields = jobset_pod(f"p{number}", PODGROUP_NAME)
    fields["metadata"]["labels"]["batch.kubernetes.io/job-name"] = "j-n-0"
    fields["metadata"]["creationTimestamp"] = TIME_FORMAT.format(second)
    return fields


def failed_create_event(
    second: int, job: str = "j-n-0", why: str = QUOTA, name: str = "e"
) -> Event:
    """Return what a Job says."""
    return Event(
        metadata=Meta(namespace="ns", name=name),
        involved_object=ObjectReference(kind="Job", namespace="ns", name=job),
        reason="FailedCreate",
        message=f'Error creating: pods "{job}-x" is forbidden: {why}',
        last_timestamp=TIME_FORMAT.format(second),
    )
