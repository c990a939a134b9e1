"""The PodGroup manifests: complete each time, and such as KAI admits."""

from typing import Any

import pytest
from hypothesis import given, settings

from tests.support.case import Case, ids
from tests.support.documents import documents
from tests.support.repository import ROOT
from tests.support.size import examples
from tests.trainer_kai.policy.specs import UID, any_jobset, jobset, rjob
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.kai_kinds import PodGroup
from trainer_kai.api.validate import podgroup_faults
from trainer_kai.policy.podgroups.grouping import JobPodCounts, plan_podgroups
from trainer_kai.policy.podgroups.manifests import GroupingRules, ManifestFields, podgroup_manifests
from trainer_kai.policy.workloads.jobset import jobset_workload

OURS = "kai-scheduler"
BUNDLED = GroupingRules("bundled", OURS, "default-queue")
EXTERNAL = GroupingRules("external", OURS, "default-queue")
FIXTURES = ROOT / "tests" / "fixtures" / "jobsets"
MIN = "kai.scheduler/batch-min-member"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = "kai.scheduler/topology-required-placement"
PREFERRED = "kai.scheduler/topology-preferred-placement"


def wanted(
    subject: JobSet, rules: GroupingRules = BUNDLED, **counts: JobPodCounts
) -> list[ManifestFields]:
    """Return the groups of a JobSet; counts are named after the Jobs, `a_0` for the first of a."""
    plan = plan_podgroups(subject, OURS, staged=rules.mode == "external")
    by_podset = {"-replica-".join(name.rsplit("_", 1)): count for name, count in counts.items()}
    return list(podgroup_manifests(jobset_workload(subject), plan, rules, by_podset))


def specs(subject: JobSet, rules: GroupingRules = BUNDLED) -> list[ManifestFields]:
    common = {"queue": "default-queue", "priorityClassName": "train"}
    if rules is EXTERNAL:
        common["stalenessGracePeriod"] = "-1s"
    found = []
    for group in wanted(subject, rules):
        assert common.items() <= group["spec"].items()
        found.append({k: v for k, v in group["spec"].items() if k not in common})
    return found


def tree(*nodes: tuple[str, int, int], least: int | None = None) -> ManifestFields:
    podsets: list[ManifestFields] = []
    for name, replicas, pods in nodes:
        podsets.append({"name": name, "minSubGroup": replicas})
        podsets += (
            {"name": f"{name}-replica-{i}", "minMember": pods, "parent": name}
            for i in range(replicas)
        )
    return {"minSubGroup": least or len(nodes), "subGroups": podsets}


def recorded(runtime: str) -> JobSet:
    obj = documents(FIXTURES / runtime / "4-nodes.yaml")[1]
    return decode(JobSet, encode(obj))


DATA, MODEL = "dataset-initializer", "model-initializer"
INITIALIZERS = [tree((DATA, 1, 1)), tree((MODEL, 1, 1))]
ONE: tuple[list[ManifestFields], list[int]] = ([tree(("node", 1, 4))], [4])
MPI = ([tree(("node", 1, 3), ("launcher", 1, 1))], [3, 1])
TUNE = ([*INITIALIZERS, *ONE[0]], [1, 1, 4])
# a shipped runtime on four nodes -> its groups for us, and the minima of an external one
RUNTIMES = [
    Case("deepspeed-distributed", "", MPI),
    Case("jax-distributed", "", ONE),
    Case("mlx-distributed", "", MPI),
    Case("torch-distributed", "", ONE),
    Case("torch-distributed-with-cache", "", ([tree((DATA, 1, 1)), *ONE[0]], [1, 4])),
    Case("torchtune-llama3.2-1b", "", TUNE),
    Case("torchtune-llama3.2-3b", "", TUNE),
    Case("torchtune-qwen2.5-1.5b", "", TUNE),
    Case("xgboost-distributed", "", ONE),
]


@pytest.mark.parametrize("case", RUNTIMES, ids=ids)
def test_podgroups_of_shipped_runtimes(
    case: Case[str, tuple[list[ManifestFields], list[int]]],
) -> None:
    """A tree for each PodGroup, or a number for each stage."""
    trees, minima = case.want

    assert specs(recorded(case.name)) == trees
    assert specs(recorded(case.name), EXTERNAL) == [{"minMember": least} for least in minima]


def test_every_shipped_runtime_has_a_row() -> None:
    """So that a new one is thought about."""
    assert [case.name for case in RUNTIMES] == sorted(path.name for path in FIXTURES.iterdir())


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=["bundled", "external"])
def test_groups_of_what_trainer_built_have_no_fault(rules: GroupingRules) -> None:
    """All sizes, patched or not."""
    files = sorted(FIXTURES.rglob("*.yaml"))
    assert len(files) == 72
    for file in files:
        subject = decode(JobSet, encode(documents(file)[1]))
        for group in wanted(subject, rules):
            assert podgroup_faults(decode(PodGroup, encode(group))) == ()


@settings(max_examples=examples(100))
@given(any_jobset())
def test_no_group_has_a_fault(subject: JobSet) -> None:
    """Whatever the JobSet is, for either scheduler; and asked twice, the answer is the same."""
    for rules in (BUNDLED, EXTERNAL):
        found = wanted(subject, rules)
        for group in found:
            assert podgroup_faults(decode(PodGroup, encode(group))) == ()
        names = [group["metadata"]["name"] for group in found]
        assert len(names) == len(set(names))
        assert found == wanted(subject, rules)


# All fields of a PodGroup, but the anticipated annotation.
FULL: ManifestFields = {
    "apiVersion": "scheduling.run.ai/v2alpha2",
    "kind": "PodGroup",
    "metadata": {
        "name": f"pg-job-{UID}-node",
        "namespace": "default",
        "labels": {
            "jobset.sigs.k8s.io/jobset-name": "job",
            "trainer-kai.dev/gang": "node",
            "kai.scheduler/queue": "team-a",
            "kai.scheduler/node-pool": "east",
        },
        "annotations": {
            "trainer-kai.dev/stage": "2/2 after data Complete",
            "trainer-kai.dev/members": "2 node + 1 launcher later",
            "kai.scheduler/top-owner-metadata": (
                f"name: job\nuid: {UID}\ngroup: jobset.x-k8s.io\nversion: v1alpha2\nkind: JobSet\n"
            ),
        },
        "ownerReferences": [
            {
                "apiVersion": "jobset.x-k8s.io/v1alpha2",
                "kind": "JobSet",
                "name": "job",
                "uid": UID,
            }
        ],
    },
    "spec": {
        "queue": "team-a",
        "priorityClassName": "high",
        "preemptibility": "preemptible",
        "preemptionDelay": "5m",
        "stalenessGracePeriod": "2m",
        "topologyConstraint": {
            "topology": "racks",
            "requiredTopologyLevel": "rack",
            "preferredTopologyLevel": "host",
        },
        **tree(("node", 1, 2), ("launcher", 1, 1)),
    },
}


def test_an_apply_carries_all_that_is_ours() -> None:
    """What were left out would be taken away from the group."""
    subject = jobset(
        rjob("data", step=DATA),
        rjob("node", "data Complete", parallelism=2),
        rjob("launcher", "node Ready"),
        labels={
            "kai.scheduler/queue": "team-a",
            "kai.scheduler/node-pool": "east",
            "kai.scheduler/preemptibility": "preemptible",
            "priorityClassName": "high",
            "other": "x",
        },
        annotations={
            TOPOLOGY: "racks",
            REQUIRED: "rack",
            PREFERRED: "host",
            "kai.scheduler/preemption-delay": "5m",
            "kai.scheduler/staleness-grace-period": "2m",
            "other": "x",
        },
    )

    _, group = wanted(subject)

    anticipated = group["metadata"]["annotations"].pop("trainer-kai.dev/anticipated")
    assert '"subGroupPrefix":"launcher-replica-"' in anticipated
    assert f'"group":"pg-job-{UID}-data"' in anticipated
    assert group == FULL


def test_invalid_annotations_are_left_out() -> None:
    """As if they were not there; but a queue stays, for it must not silently be another one."""
    subject = jobset(
        rjob("a"),
        labels={
            "kai.scheduler/queue": "Team_A",
            "kai.scheduler/preemptibility": "maybe",
            "priorityClassName": "High",
        },
        annotations={
            "kai.scheduler/preemption-delay": "-5m",
            "kai.scheduler/staleness-grace-period": "soon",
            TOPOLOGY: "Racks!",
            MIN: "none",
        },
    )

    counts_left = {"queue": "Team_A", "priorityClassName": "train"}
    assert wanted(subject)[0]["spec"] == {**counts_left, **tree(("a", 1, 1))}
    assert wanted(subject, EXTERNAL)[0]["spec"] == {
        **counts_left,
        "stalenessGracePeriod": "-1s",
        "minMember": 1,
    }


def test_a_level_without_a_topology_is_left_out() -> None:
    """Its Topology is unknown."""
    subject = jobset(rjob("a", annotations={REQUIRED: "rack"}), annotations={REQUIRED: "rack"})

    assert specs(subject) == [tree(("a", 1, 1))]


def test_a_topology_on_a_template_is_that_of_each_job() -> None:
    """Where it names a level; not of the node above, and not of the group."""
    subject = jobset(
        rjob("a", replicas=2, annotations={TOPOLOGY: "racks", PREFERRED: "rack"}),
        rjob("b", annotations={TOPOLOGY: "racks"}),
    )
    topology_constraint = {
        "topologyConstraint": {"topology": "racks", "preferredTopologyLevel": "rack"}
    }

    want = tree(("a", 2, 1), ("b", 1, 1))
    for number in (1, 2):
        want["subGroups"][number] |= topology_constraint
    assert specs(subject) == [want]


# labels and pods' classes -> the group's
CLASSES = [
    Case("no object names one", ({}, "", ""), "train"),
    Case("the first pod template that names one", ({}, "", "low"), "low"),
    Case("of two the first", ({}, "mid", "low"), "mid"),
    Case("the JobSet's label", ({"priorityClassName": "high"}, "mid", "low"), "high"),
    Case("an empty label names none", ({"priorityClassName": ""}, "mid", ""), "mid"),
]


@pytest.mark.parametrize("case", CLASSES, ids=ids)
def test_priority_classes(case: Case[tuple[dict[str, str], str, str], str]) -> None:
    """The label outranks the templates."""
    labels, *classes = case.given
    jobs = (
        rjob(name, pod={"priorityClassName": text})
        for name, text in zip("ab", classes, strict=True)
    )

    [group] = wanted(jobset(*jobs, labels=labels))

    assert group["spec"]["priorityClassName"] == case.want


# the label and the pods' classes -> the group's, where KAI schedules
OF_SYSTEM = [
    Case("the system's class becomes train", ("system-node-critical", "", ""), "train"),
    Case("over a class of pods", ("system-node-critical", "mid", ""), "mid"),
    Case("that all pods have", ("system-x", "system-x", "system-x"), "system-x"),
    Case("that some pods have", ("system-x", "system-x", "low"), "system-x"),
    Case("another class stays", ("high", "", ""), "high"),
]


@pytest.mark.parametrize("case", OF_SYSTEM, ids=ids)
def test_classes_of_the_system(case: Case[tuple[str, str, str], str]) -> None:
    """KAI gives a PodGroup whatever priority it names, and a label is no admission."""
    label, *classes = case.given
    jobs = [
        rjob(name, pod={"priorityClassName": text})
        for name, text in zip("ab", classes, strict=True)
    ]

    [group] = wanted(jobset(*jobs, labels={"priorityClassName": label}), EXTERNAL)

    assert group["spec"]["priorityClassName"] == case.want


def test_a_replicated_job_may_be_called_like_the_sub_group_of_another() -> None:
    """Then there are only PodSets, and all are needed."""
    subject = jobset(
        rjob("a", replicas=2), rjob("a-replica-0", parallelism=3), annotations={MIN: "1"}
    )

    podsets = [("a-replica-0", 1), ("a-replica-1", 1), ("a-replica-0-replica-0", 3)]
    assert specs(subject) == [
        {
            "minSubGroup": 3,
            "subGroups": [{"name": name, "minMember": least} for name, least in podsets],
        }
    ]


def test_what_is_asked_for_is_the_minimum() -> None:
    """Of SubGroups on the JobSet, of pods on a template."""
    subject = jobset(
        rjob("a", parallelism=4, minimum="2"), rjob("b", parallelism=3), annotations={MIN: "1"}
    )

    assert specs(subject) == [tree(("a", 1, 2), ("b", 1, 3), least=1)]
    assert specs(subject, EXTERNAL) == [{"minMember": 2}]


def test_the_group_of_a_stage_says_after_what() -> None:
    """For users that read it."""
    subject = jobset(
        rjob("x", step=DATA),
        rjob("y", step=MODEL),
        rjob("a", "x Complete", "y Complete"),
        rjob("b", "a Ready", "x Complete"),
    )

    def stages(rules: GroupingRules) -> list[Any]:
        named = (group["metadata"]["annotations"] for group in wanted(subject, rules))
        return [annotations["trainer-kai.dev/stage"] for annotations in named]

    assert stages(BUNDLED) == ["1/2", "1/2", "2/2 after x, y Complete"]
    assert stages(EXTERNAL) == [
        "1/3",
        "1/3",
        "2/3 after x, y Complete",
        "3/3 after a Ready and x Complete",
    ]


GANG = [rjob("a", parallelism=3), rjob("b", parallelism=2)]
LIST = [rjob("a", parallelism=2, completions=6), rjob("b")]
QUEUE = [rjob("a", parallelism=3, completions=None, mode="NonIndexed", minimum="3"), rjob("b")]
# existing pods -> the minimum for an external scheduler
MINIMA: list[Case[tuple[list[ManifestFields], dict[str, JobPodCounts]], int]] = [
    Case("no pod yet", (GANG, {}), 5),
    Case("some are not made yet", (GANG, {"a_0": JobPodCounts(waiting=1)}), 5),
    Case(
        "pods that wait all count",
        (GANG, {"a_0": JobPodCounts(waiting=3), "b_0": JobPodCounts(waiting=2)}),
        5,
    ),
    Case(
        "no pod waits beside finished ones",
        (GANG, {"a_0": JobPodCounts(bound=1, succeeded=2), "b_0": JobPodCounts(succeeded=2)}),
        5,
    ),
    Case(
        "one waits beside those that are done",
        (GANG, {"a_0": JobPodCounts(waiting=1, succeeded=2), "b_0": JobPodCounts(bound=2)}),
        3,
    ),
    Case(
        "the last one waits",
        (GANG, {"a_0": JobPodCounts(waiting=1, succeeded=2), "b_0": JobPodCounts(succeeded=2)}),
        1,
    ),
    Case(
        "one waits beside those that run",
        (GANG, {"a_0": JobPodCounts(waiting=1, bound=2), "b_0": JobPodCounts(bound=2)}),
        5,
    ),
    Case(
        "one waits, and another was not made again yet",
        (GANG, {"a_0": JobPodCounts(waiting=1, succeeded=1), "b_0": JobPodCounts(bound=2)}),
        4,
    ),
    Case(
        "of many completions as many are alive as before",
        (
            LIST,
            {"a_0": JobPodCounts(waiting=1, bound=1, succeeded=3), "b_0": JobPodCounts(bound=1)},
        ),
        3,
    ),
    Case(
        "until there are fewer left",
        (LIST, {"a_0": JobPodCounts(waiting=1, succeeded=5), "b_0": JobPodCounts(bound=1)}),
        2,
    ),
    Case(
        "a work queue recreates no pod once one has succeeded",
        (QUEUE, {"a_0": JobPodCounts(bound=1, succeeded=1), "b_0": JobPodCounts(waiting=1)}),
        2,
    ),
    Case(
        "a pod that only occupies a node is not alive",
        (
            GANG,
            {
                "a_0": JobPodCounts(waiting=1, succeeded=2, occupying=3),
                "b_0": JobPodCounts(bound=2),
            },
        ),
        3,
    ),
]


@pytest.mark.parametrize("case", MINIMA, ids=ids)
def test_minima_of_an_external_scheduler(
    case: Case[tuple[list[ManifestFields], dict[str, JobPodCounts]], int],
) -> None:
    """They sink only when a pod would wait for those that have succeeded."""
    jobs, counts = case.given

    [group] = wanted(jobset(*jobs), EXTERNAL, **counts)

    assert group["spec"]["minMember"] == case.want


def test_jobs_that_are_over_are_not_waited_for_when_their_pods_are_gone() -> None:
    """JobSet still counts them."""
    subject = jobset(*GANG)
    status = {"replicatedJobsStatus": [{"name": "a", "succeeded": 1}]}
    over = decode(
        JobSet, encode({"metadata": subject.metadata, "spec": subject.spec, "status": status})
    )
    counts_left = JobPodCounts(waiting=1, bound=1)

    assert wanted(subject, EXTERNAL, b_0=counts_left)[0]["spec"]["minMember"] == 5
    assert wanted(over, EXTERNAL, b_0=counts_left)[0]["spec"]["minMember"] == 2
