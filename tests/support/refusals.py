"""A JobSet whose Job cannot make its three pods, and says so."""

from typing import Any, Final

from tests.support.clusters import JOBSET, group, jobset_pod, made
from trainer_kai.api.event import Event, ObjectReference
from trainer_kai.api.meta import Meta

__all__ = ["GROUP", "QUOTA", "WHY", "grouped", "jobset", "member", "refusal"]

GROUP: Final = "pg-j-u"
QUOTA: Final = "exceeded quota: gpus"
WHY: Final = f"Job j-n-0 cannot make them: {QUOTA}"
MOMENT: Final = "2026-01-05T08:00:0{}Z"


def jobset(**spec: Any) -> dict[str, Any]:
    """Return a JobSet of one Job with three pods, in one group."""
    labels = {"trainer-kai.dev/gang": "Main"}
    template = {"parallelism": 3, "completions": 3, "template": {"metadata": {"labels": labels}}}
    jobs = [{"name": "n", "replicas": 1, "template": {"spec": template}}]
    return made("JobSet", "j", {"uid": "u"}, spec={"replicatedJobs": jobs, **spec})


def grouped() -> dict[str, Any]:
    """Return its group."""
    subs = [{"name": "n-replica-0", "minMember": 3}]
    return group(GROUP, meta={"ownerReferences": [JOBSET]}, subGroups=subs)


def member(number: int, second: int) -> dict[str, Any]:
    """Return a pod of the Job, made in such a second."""
    fields = jobset_pod(f"p{number}", GROUP)
    fields["metadata"]["labels"]["batch.kubernetes.io/job-name"] = "j-n-0"
    fields["metadata"]["creationTimestamp"] = MOMENT.format(second)
    return fields


def refusal(second: int, job: str = "j-n-0", why: str = QUOTA, name: str = "e") -> Event:
    """Return what a Job says."""
    return Event(
        metadata=Meta(namespace="ns", name=name),
        involved_object=ObjectReference(kind="Job", namespace="ns", name=job),
        reason="FailedCreate",
        message=f'Error creating: pods "{job}-x" is forbidden: {why}',
        last_timestamp=MOMENT.format(second),
    )
