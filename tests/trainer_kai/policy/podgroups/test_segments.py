"""Segments: parts of a Job by completion index, each a sub-group with a place of its own."""

from typing import Any, Final

import msgspec
import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.lint.cluster import known_cluster, node
from tests.trainer_kai.policy.specs import UID, jobset, rjob
from tests.webhook.objects import applied, reviewed_pod
from tests.webhook.objects import pod as pod_object
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import Job, JobSet
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod
from trainer_kai.podgrouper.plan import ObservedState, plan
from trainer_kai.podgrouper.store import PodRecord
from trainer_kai.policy.lint.trainjob import lint_jobset
from trainer_kai.policy.podgroups.anticipated import read_anticipated
from trainer_kai.policy.podgroups.grouping import observe_pod, plan_podgroups
from trainer_kai.policy.podgroups.manifests import (
    GroupingRules,
    ManifestFields,
    podgroup_manifests,
)
from trainer_kai.policy.workloads.job import job_workload
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.workload import Workload

OURS: Final = "kai-scheduler"
RULES: Final = GroupingRules("bundled", OURS, "default-queue")
SIZE: Final = "kai.scheduler/segment-size"
REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"
TOPOLOGY: Final = "kai.scheduler/topology"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
LEAF: Final = "kai.scheduler/subgroup-name"
GANG: Final = "trainer-kai.dev/gang"
PATH: Final = "spec.replicatedJobs[0].template.spec.template.metadata.annotations"
LONG: Final = "n" * 48
Obj = dict[str, Any]


def divided(name: str, size: str, *after: str, more: Obj | None = None, **fields: Any) -> Obj:
    """Return a replicatedJob with the segment size, and *more* annotations, on its pods."""
    found = rjob(name, *after, **fields)
    annotations = {SIZE: size, **(more or {})}
    found["template"]["spec"]["template"]["metadata"] = {
        "annotations": annotations,
        "labels": {GANG: "Main"},
    }
    return found


def one_job(pods: int, size: str, minimum: str = "", **spec: Any) -> Workload:
    template = {
        "metadata": {"annotations": {SIZE: size, REQUIRED: "rack"}},
        "spec": {"schedulerName": OURS},
    }
    annotations = {TOPOLOGY: "dc"} | (
        {"kai.scheduler/batch-min-member": minimum} if minimum else {}
    )
    whole = {
        "metadata": {"name": "job", "namespace": "default", "uid": UID, "annotations": annotations},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": template,
            **spec,
        },
    }
    found = job_workload(decode(Job, encode(whole)))
    assert found is not None
    return found


def specs(workload: Workload) -> list[ManifestFields]:
    planned = plan_podgroups(workload, OURS, form=workload.kind.form)
    return [it["spec"] for it in podgroup_manifests(workload, planned, RULES)]


def leaves(spec: ManifestFields) -> dict[str, Any]:
    return {it["name"]: it.get("minMember") for it in spec.get("subGroups", ())}


def words(*parts: tuple[str, int | None]) -> dict[str, int | None]:
    return dict(parts)


NODE: Final = "node-replica-0"
# a workload -> the sub-groups of its PodGroup, and their minimum; None: of sub-groups
DIVIDED: list[Case[Workload, dict[str, int | None]]] = [
    Case(
        "equal segments",
        jobset_workload(jobset(divided("node", "2", parallelism=4))),
        words(("node", None), (NODE, None), (f"{NODE}-segment-0", 2), (f"{NODE}-segment-1", 2)),
    ),
    Case(
        "a last one that is smaller",
        jobset_workload(jobset(divided("node", "2", parallelism=3))),
        words(("node", None), (NODE, None), (f"{NODE}-segment-0", 2), (f"{NODE}-segment-1", 1)),
    ),
    Case(
        "each Job, and not the others",
        jobset_workload(jobset(divided("node", "1", replicas=2, parallelism=1), rjob("other"))),
        words(
            ("node", None),
            (NODE, None),
            (f"{NODE}-segment-0", 1),
            ("node-replica-1", None),
            ("node-replica-1-segment-0", 1),
            ("other", None),
            ("other-replica-0", 1),
        ),
    ),
    Case(
        "whole ones start, the others when there is space",
        jobset_workload(jobset(divided("node", "2", parallelism=6, minimum="3"))),
        words(
            ("node", None),
            (NODE, None),
            (f"{NODE}-segment-0", 2),
            (f"{NODE}-segment-1", 2),
            (f"{NODE}-segment-2", 0),
        ),
    ),
    Case(
        "indexes that come later",
        jobset_workload(jobset(divided("node", "2", parallelism=2, completions=4))),
        words(("node", None), (NODE, None), (f"{NODE}-segment-0", 2), (f"{NODE}-segment-1", 0)),
    ),
    Case(
        "pods without an index",
        jobset_workload(jobset(divided("node", "2", parallelism=4, mode="NonIndexed"))),
        words(("node", None), (NODE, 4)),
    ),
    Case(
        "an invalid size",
        jobset_workload(jobset(divided("node", "0", parallelism=4))),
        words(("node", None), (NODE, 4)),
    ),
    Case(
        "a Job starts with its first segment",
        one_job(4, "2"),
        words(("segment-0", 2), ("segment-1", 0)),
    ),
    Case(
        "or with as many as it asks for",
        one_job(5, "2", "5"),
        words(("segment-0", 2), ("segment-1", 2), ("segment-2", 1)),
    ),
    Case("a Job without indexes", one_job(4, "2", completionMode="NonIndexed"), {}),
]


@pytest.mark.parametrize("case", DIVIDED, ids=ids)
def test_segments_are_sub_groups(case: Case[Workload, dict[str, int | None]]) -> None:
    (spec,) = specs(case.given)

    assert leaves(spec) == case.want


def test_each_segment_has_the_constraint() -> None:
    """The PodGroup has its own around them, and the workload may name the Topology for both."""
    given = divided("node", "2", parallelism=4, more={REQUIRED: "rack", PREFERRED: "No Level"})
    block = "kai.scheduler/topology-required-placement"
    (spec,) = specs(jobset_workload(jobset(given, annotations={TOPOLOGY: "dc", block: "block"})))

    assert spec["topologyConstraint"] == {"topology": "dc", "requiredTopologyLevel": "block"}
    found = {it["name"]: it.get("topologyConstraint") for it in spec["subGroups"]}
    rack = {"topology": "dc", "requiredTopologyLevel": "rack"}
    assert found == {
        "node": None,
        NODE: None,
        f"{NODE}-segment-0": rack,
        f"{NODE}-segment-1": rack,
    }
    parents = {it["name"]: it.get("parent") for it in spec["subGroups"]}
    assert parents[f"{NODE}-segment-1"] == NODE


AGREED: list[Case[tuple[Workload, str], str]] = [
    Case("the first", (DIVIDED[0].given, "1"), f"{NODE}-segment-0"),
    Case("the second", (DIVIDED[0].given, "2"), f"{NODE}-segment-1"),
    Case("an index without a segment size", (DIVIDED[6].given, "2"), NODE),
    Case("no index", (DIVIDED[5].given, ""), NODE),
    Case(
        "a long name",
        (jobset_workload(jobset(divided(LONG, "2", parallelism=4))), "3"),
        f"{LONG[:40]}-6508b4d4-segment-1",
    ),
]


@pytest.mark.parametrize("case", AGREED, ids=ids)
def test_admission_and_podgrouper_agree(case: Case[tuple[Workload, str], str]) -> None:
    """Each names the sub-group of a pod, the one from the pod alone, and it exists."""
    workload, index = case.given
    template = workload.spec.replicated_jobs[0].template.spec.template.metadata
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "job",
        "jobset.sigs.k8s.io/jobset-uid": UID,
        "jobset.sigs.k8s.io/replicatedjob-name": workload.spec.replicated_jobs[0].name,
        "jobset.sigs.k8s.io/job-index": "0",
        **template.labels,
        **({INDEX: index} if index else {}),
    }
    given = pod_object(name="p", namespace="default", labels=labels, uid="u")
    given["metadata"]["annotations"] = dict(template.annotations)

    admitted = applied(given, reviewed_pod(given))
    pod = decode(Pod, encode(given))
    place = workload.kind.pod_place(labels)
    record = PodRecord(Key("default", "p"), "u", "j", place, "", observe_pod(pod, place))
    marked = {"annotations": {"trainer-kai.dev/admitted": "v1"}}
    ours = decode(
        JobSet,
        encode(
            {
                "metadata": {"name": "job", "namespace": "default", "uid": UID, **marked},
                "spec": workload.spec,
            }
        ),
    )
    (assigned,) = plan(jobset_workload(ours), ObservedState({}), [record], RULES).assign

    assert admitted["metadata"]["labels"][LEAF] == case.want
    assert assigned.fields["metadata"]["labels"][LEAF] == case.want
    assert case.want in leaves(specs(workload)[0])
    assert len(case.want) <= 63


def test_a_job_of_its_own() -> None:
    """Its segments are named without a sub-group of the Job."""
    labels = {
        "batch.kubernetes.io/job-name": "job",
        "batch.kubernetes.io/controller-uid": UID,
        GANG: "Main",
        INDEX: "3",
    }
    given = pod_object(labels=labels, annotations={SIZE: "2"})

    assert applied(given, reviewed_pod(given))["metadata"]["labels"][LEAF] == "segment-1"


def test_segments_that_come_later_are_expected() -> None:
    after = "launcher Ready"
    given = jobset(rjob("launcher"), divided("node", "2", after, replicas=2, parallelism=5))
    (group,) = podgroup_manifests(jobset_workload(given), plan_podgroups(given, OURS), RULES)

    text = group["metadata"]["annotations"]["trainer-kai.dev/anticipated"]
    found = [(it.sub_group_prefix, it.replicas, it.count) for it in read_anticipated(text).later]
    assert found == [
        ("node-replica-0-segment-", 2, 2),
        ("node-replica-0-segment-2", 1, 1),
        ("node-replica-1-segment-", 2, 2),
        ("node-replica-1-segment-2", 1, 1),
    ]


def test_a_stage_of_segments() -> None:
    """What follows it knows its segments, and it knows by which pods it has begun."""
    given = jobset(divided("a", "2", parallelism=3), divided("b", "1", "a Complete"))
    groups = [*podgroup_manifests(jobset_workload(given), plan_podgroups(given, OURS), RULES)]

    text = groups[1]["metadata"]["annotations"]["trainer-kai.dev/anticipated"]
    (after,) = read_anticipated(text).after
    assert (after.sub_group_prefix, after.replicas, after.segments) == ("a-replica-", 1, 2)
    assert after.before == ("b-replica-0-segment-",)
    with pytest.raises(msgspec.ValidationError, match="after: 3001 segments, and the maximum"):
        read_anticipated(text.replace('"segments":2', '"segments":3001'))


UNUSED: Final = (
    f"metadata.annotations[{SIZE}]: has no effect here. Set it on the pod template of the Job to "
    "divide"
)
TOO_MANY: Final = (
    "spec.replicatedJobs: the PodGroup of node would have 3002 sub-groups, and the maximum is "
    f"3000. Lower replicas, or raise {SIZE}"
)
# the annotations of the pods of a replicatedJob -> what is reported
FAULTS: list[Case[JobSet, list[str]]] = [
    Case(
        "no number",
        jobset(divided("node", "two", parallelism=4)),
        [f"{PATH}[{SIZE}]: ignored: 'two' must be a whole number, 1 or more"],
    ),
    Case(
        "no index",
        jobset(divided("node", "2", parallelism=4, mode="NonIndexed")),
        [
            f"{PATH}[{SIZE}]: ignored: only pods of an Indexed Job have an index that divides them",
        ],
    ),
    Case(
        "a placement without a Topology",
        jobset(divided("node", "2", parallelism=4, more={REQUIRED: "rack"})),
        [f"{PATH}[{REQUIRED}]: ignored: can only be set together with {TOPOLOGY}"],
    ),
    Case(
        "not on a pod template",
        jobset(rjob("node", parallelism=4), annotations={SIZE: "2"}),
        [UNUSED],
    ),
    Case("too many", jobset(divided("node", "1", parallelism=3000)), [TOO_MANY]),
]


@pytest.mark.parametrize("case", FAULTS, ids=ids)
def test_what_is_wrong_with_segments(case: Case[JobSet, list[str]]) -> None:
    assert [str(it) for it in plan_podgroups(case.given, OURS).findings] == case.want


def test_initializers_are_not_bound() -> None:
    """The constraint of a TrainJob is one for the nodes and their launcher."""
    annotations = {TOPOLOGY: "dc", "kai.scheduler/topology-required-placement": "rack"}
    given = jobset(
        rjob("data", step="dataset-initializer"),
        rjob("node", "data Complete"),
        rjob("launcher", "node Ready", step="trainer"),
        annotations=annotations,
    )

    found = [(it["subGroups"][0]["name"], it.get("topologyConstraint")) for it in specs_of(given)]

    rack = {"topology": "dc", "requiredTopologyLevel": "rack"}
    assert found == [("data", None), ("node", rack)]
    assert "launcher-replica-0" in leaves(specs_of(given)[1])


def test_lint_knows_that_initializers_are_not_bound() -> None:
    """Three pods fit in no rack of one node; those of an initializer need not."""
    pods = {"containers": [{"name": "node", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    known = known_cluster(*(node(f"n{i}", zone="z", rack=f"r{i}") for i in range(4)))
    annotations = {TOPOLOGY: "racks", "kai.scheduler/topology-required-placement": "rack"}
    found = {
        step: [
            it.code
            for it in lint_jobset(
                jobset(rjob("a", step=step, parallelism=3, pod=pods), annotations=annotations),
                "team",
                RULES,
                known,
            )
        ]
        for step in ("dataset-initializer", "trainer")
    }

    assert found == {"dataset-initializer": [], "trainer": ["domain-too-small"]}


def specs_of(given: JobSet) -> list[ManifestFields]:
    return specs(jobset_workload(given))


def test_lint_reports_the_fields_of_segments() -> None:
    known = known_cluster(*(node(f"n{i}", zone="z", rack=f"r{i}") for i in range(4)))
    pods = {"containers": [{"name": "node", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    found = {
        level: [
            f"{it.code} {it.path}"
            for it in lint_jobset(
                jobset(
                    divided("node", "2", parallelism=4, pod=pods, more={REQUIRED: level}),
                    annotations={TOPOLOGY: "racks"},
                ),
                "team",
                RULES,
                known,
            )
        ]
        for level in ("zone", "rack", "row")
    }

    assert found == {
        "zone": [],
        "rack": [f"domain-too-small {PATH}[{REQUIRED}]"],
        "row": [f"unknown-topology {PATH}[{REQUIRED}]"],
    }
