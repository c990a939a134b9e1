"""Invalid stages, names, amounts and annotations, each with its path and what is right."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.lint.cluster import GPU, RULES, known_cluster, short
from tests.trainer_kai.policy.specs import jobset, rjob
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.kai_kinds import TopologyLevel, TopologySpec
from trainer_kai.policy.lint.node_index import KnownCluster
from trainer_kai.policy.lint.trainjob import lint_jobset
from trainer_kai.policy.podgroups.manifests import GroupingRules

POD = "spec.replicatedJobs[0].template.spec.template.spec"
RESOURCES = f"{POD}.containers[0].resources"
TOPOLOGY = "kai.scheduler/topology"
REQUIRED = f"{TOPOLOGY}-required-placement"
PREFERRED = f"{TOPOLOGY}-preferred-placement"
EXTERNAL = GroupingRules("external", "kai-scheduler", "default-queue")


def pod(limits: dict[str, Any] | None = None, requests: dict[str, Any] | None = None) -> JobSet:
    resources = {"limits": limits or {}, "requests": requests or {}}
    return jobset(rjob("node", pod={"containers": [{"name": "node", "resources": resources}]}))


def wrong(place: str, message: str) -> list[str]:
    return [f"invalid-amount! {RESOURCES}.{place}: {message}. Otherwise no pod can be created"]


AMOUNTS = [
    Case(
        "limits above the requests are no fault",
        pod({GPU: 1, "cpu": "2"}, {GPU: "1", "cpu": "500m"}),
        [],
    ),
    Case(
        "a part of a GPU",
        pod({GPU: "0.5"}),
        wrong(
            f"limits[{GPU}]",
            "0.5 must be a whole number, or use the annotation gpu-fraction for a part of a GPU",
        ),
    ),
    Case(
        "a part of another device",
        pod({"rdma/hca": "500m"}),
        wrong("limits[rdma/hca]", "500m must be a whole number"),
    ),
    Case(
        "more asked for than the limit",
        pod({"cpu": 1}, {"cpu": 2}),
        wrong("requests[cpu]", "2 must not be above the limit, which is 1"),
    ),
    Case(
        "of GPUs both must be the same",
        pod({GPU: 8}, {GPU: 4}),
        wrong(f"requests[{GPU}]", "4 must equal the limit, which is 8"),
    ),
    Case(
        "of GPUs there must be a limit",
        pod(None, {GPU: 4}),
        wrong(f"requests[{GPU}]", "4 must equal the limit, which is not set"),
    ),
    Case("less than nothing", pod({"cpu": "-1"}), wrong("limits[cpu]", "-1 must not be negative")),
    Case(
        "a text that is no quantity is named",
        pod({"cpu": "many"}),
        wrong(
            "limits[cpu]",
            '\'many\' is not a quantity; write one such as "2", "500m", "1.5", "16Gi" or "1e3"',
        ),
    ),
]


@pytest.mark.parametrize("case", AMOUNTS, ids=ids)
def test_amounts_that_the_api_server_refuses(case: Case[JobSet, list[str]]) -> None:
    """Their pods are never made."""
    assert jobset_findings(case.given) == case.want


MIG = "nvidia.com/mig-1g.5gb"
TEMPLATE = POD.removesuffix("spec")


def sharing(
    annotations: dict[str, str], labels: dict[str, str] | None = None, **spec: Any
) -> JobSet:
    job = rjob("node", pod={"containers": [{"name": "node"}], **spec})
    metadata = {"annotations": annotations, "labels": labels or {}}
    job["template"]["spec"]["template"]["metadata"] = metadata
    return jobset(job)


SHARES = [
    Case(
        "a fraction in any notation is right",
        sharing({"gpu-fraction": "5e-1", "gpu-fraction-num-devices": "2"}),
        [],
    ),
    Case("memory in MiB is right", sharing({"gpu-memory": "3072", "mps": "true"}), []),
    Case(
        "a whole GPU",
        sharing({"gpu-fraction": "1"}),
        [
            (
                f"invalid-amount! {TEMPLATE}metadata.annotations[gpu-fraction]: '1' must be a "
                "number above 0 and below 1, such as 0.5. For whole GPUs remove the annotation and "
                "request nvidia.com/gpu: 1. Otherwise no pod starts"
            )
        ],
    ),
    Case(
        "both, and the number of GPUs",
        sharing({"gpu-fraction": "0.5", "gpu-memory": "1Gi", "gpu-fraction-num-devices": "65"}),
        [
            (
                f"invalid-amount! {TEMPLATE}metadata.annotations[{name}]: {message}. "
                "Otherwise no pod starts"
            )
            for name, message in (
                ("gpu-memory", "'1Gi' must be MiB as a whole number; write 1024"),
                ("gpu-fraction-num-devices", "'65' must be a whole number from 1 to 64"),
                (
                    "gpu-memory",
                    "cannot be set together with gpu-fraction. Remove one of the two",
                ),
            )
        ],
    ),
    Case(
        "a share beside MIG is named",
        sharing(
            {"gpu-fraction": "0.5"},
            initContainers=[{"name": "i", "resources": {"limits": {"nvidia.com/mig-1g.5gb": "1"}}}],
        ),
        [
            (
                f"invalid-amount! {POD}.initContainers[0].resources.limits[nvidia.com/mig-1g.5gb]: "
                "whole GPUs and MIG profiles cannot be requested together with the annotation "
                "gpu-fraction. Remove one of the two. Otherwise no pod starts"
            )
        ],
    ),
    Case(
        "labels of the scheduler, also for another one",
        sharing(
            {"gpu-fraction": "x"},
            {"runai-gpu-group/a": "a", "app": "kai-resource-reservation"},
            schedulerName="other",
        ),
        [
            (
                f"reserved-label! {TEMPLATE}metadata.labels[{name}]: no pod can be created with "
                f"the label {label}: only the scheduler sets it, on pods that share or reserve a "
                "GPU. Remove the label"
            )
            for name, label in (
                ("runai-gpu-group/a", "runai-gpu-group/a"),
                ("app", "app: kai-resource-reservation"),
            )
        ],
    ),
    Case("other labels are no fault", sharing({}, {"app": "web", "runai-gpu-groups": "a"}), []),
]


SHARES += [
    Case(
        "a misspelled one",
        sharing({"gpu_fraction": "0.5", "example.com/gpu-fraction": "1"}),
        [
            (
                f"invalid-value? {TEMPLATE}metadata.annotations[gpu_fraction]: has no effect: "
                "unknown name. Did you mean gpu-fraction?"
            )
        ],
    ),
    Case(
        "MIG profiles by annotation",
        sharing({f"{MIG}.me": "1", f"{MIG}.a": "0", f"{MIG}.b": "one"}),
        [
            (
                f"invalid-amount! {TEMPLATE}metadata.annotations[{MIG}.me]: MIG profiles cannot be "
                "requested by an annotation. Remove the annotation, and request the profile in the "
                "resources of a container. Otherwise no pod starts"
            )
        ],
    ),
    Case(
        "a PodGroup of another name",
        sharing({"pod-group-name": "mine"}),
        [
            (
                f"reserved-label? {TEMPLATE}metadata.annotations[pod-group-name]: it is replaced: "
                "the pods are in the PodGroup of their workload. Remove it"
            )
        ],
    ),
    Case("MIG profiles for another scheduler", sharing({MIG: "1"}, schedulerName="other"), []),
]


@pytest.mark.parametrize("case", SHARES, ids=ids)
def test_shares_of_gpus(case: Case[JobSet, list[str]]) -> None:
    """What the scheduler or a policy would refuse of the pods is a fault of their template."""
    found = [it for it in jobset_findings(case.given) if "schedulerName" not in it]

    assert found == case.want


@pytest.mark.parametrize("name", ["gpu-fraction", "gpu-memory"])
def test_shares_that_are_switched_off(name: str) -> None:
    """Pods of our scheduler wait, also where users group them; KAI has settings of its own."""
    share = {name: "0.5" if name == "gpu-fraction" else "100"}
    job = rjob("node", pod={"containers": [{"name": "node"}]})
    job["template"]["spec"]["template"]["metadata"] = {"annotations": share}
    grouped = jobset(job, annotations={"kai.scheduler/skip-podgrouper": "true"})
    off = known_cluster()._replace(shares_gpus=False)
    wait = (
        f"gpu-sharing-off! {POD.removesuffix('spec')}metadata.annotations[{name}]: shares of GPUs "
        "are switched off (setting gpu_sharing.enabled), so the pods never start. Remove the "
        "annotation, and request whole GPUs (nvidia.com/gpu) or a MIG profile"
    )

    of_another = jobset_findings(sharing(share, schedulerName="other"), RULES, off)

    assert jobset_findings(sharing(share), RULES, off) == [wait]
    assert jobset_findings(grouped, RULES, off) == [wait]
    assert jobset_findings(sharing(share), RULES) == []
    assert jobset_findings(sharing(share), EXTERNAL, off) == []
    assert not any(it.startswith("gpu-sharing-off") for it in of_another)


def jobset_findings(
    whole: JobSet, rules: GroupingRules = EXTERNAL, cluster: KnownCluster | None = None
) -> list[str]:
    return [short(it) for it in lint_jobset(whole, "team", rules, cluster or known_cluster())]


def named(**metadata: Any) -> JobSet:
    return jobset(rjob("node"), **metadata)


NAMES = [
    Case("a class that there is", named(labels={"priorityClassName": "build"}), []),
    Case(
        "a class that there is not",
        named(labels={"priorityClassName": "gold"}),
        [
            (
                "unknown-priority? metadata.labels[priorityClassName]: PriorityClass 'gold' "
                "does not exist, so the label is ignored. Name an existing one: build, train"
            )
        ],
    ),
    Case(
        "no pod is made of a template that names one",
        jobset(rjob("node", pod={"priorityClassName": "gold"})),
        [
            (
                f"unknown-priority! {POD}.priorityClassName: PriorityClass 'gold' does not "
                "exist, so no pod can be created. Name an existing one: build, train"
            )
        ],
    ),
    Case(
        "a preemptibility that there is not",
        named(labels={"kai.scheduler/preemptibility": "maybe"}),
        [
            (
                "invalid-value? metadata.labels[kai.scheduler/preemptibility]: ignored: 'maybe' "
                "must be 'preemptible' or 'non-preemptible'"
            )
        ],
    ),
    Case(
        "a text that is no duration is named",
        named(annotations={"kai.scheduler/preemption-delay": "soon"}),
        [
            (
                "invalid-value? metadata.annotations[kai.scheduler/preemption-delay]: ignored: "
                "'soon' is "
                'not a duration; write a duration such as "90s", "10m" or "1h30m"; units are ns, '
                "us, ms, s, m and h"
            )
        ],
    ),
    Case("a queue is validated by another rule", named(labels={"kai.scheduler/queue": "-"}), []),
]


@pytest.mark.parametrize("case", NAMES, ids=ids)
def test_names_and_annotations(case: Case[JobSet, list[str]]) -> None:
    """The finding names what exists instead."""
    assert jobset_findings(case.given) == case.want


SYSTEM = "system-node-critical"

# a label, and the classes of the pods → what is found
REFUSED = (
    "priority-refused! metadata.labels[priorityClassName]: choose build or train, or set "
    f"spec.priorityClassName of all pods to {SYSTEM}, which the API server checks. A label or "
    f"PodGroup may not choose PriorityClass {SYSTEM}: its value 2000001000 is not below 1000000000"
)
CHOSEN = [
    Case("by a label alone", (SYSTEM, "", ""), [REFUSED]),
    Case("one pod template has it", (SYSTEM, SYSTEM, ""), [REFUSED]),
    Case("all of them have it", (SYSTEM, SYSTEM, SYSTEM), []),
    Case("they have it, and there is no label", ("", SYSTEM, SYSTEM), []),
    Case("another class is no fault", ("build", "", ""), []),
]


@pytest.mark.parametrize("case", CHOSEN, ids=ids)
def test_classes_that_a_label_may_not_choose(
    case: Case[tuple[str, str, str], list[str]],
) -> None:
    """In both modes: KAI would accept it."""
    label, *classes = case.given
    jobs = [
        rjob(name, pod={"priorityClassName": text})
        for name, text in zip("ab", classes, strict=True)
    ]
    whole = jobset(*jobs, labels={"priorityClassName": label} if label else {})
    known = known_cluster(priorities={"train": 50, "build": 100, SYSTEM: 2_000_001_000})

    for rules in (RULES, EXTERNAL):
        assert [short(it) for it in lint_jobset(whole, "team", rules, known)] == case.want


def test_a_pod_that_says_too_much() -> None:
    """Our scheduler looks at so much of it; KAI at all of it."""
    whole = pod({f"example.com/r{n}": "1" for n in range(65)})

    what = (
        "spec.containers[*].resources: the pod requests 65 resources, but at most 64 are "
        "supported; name at most 64"
    )
    assert jobset_findings(whole, RULES) == [f"pod-spec-too-large! {POD}: {what}"]
    assert jobset_findings(whole, EXTERNAL) == []


TEMPLATE = "spec.replicatedJobs[0].template.metadata.annotations"
UNKNOWN = [
    Case(
        "a required placement in a Topology that does not exist",
        named(annotations={TOPOLOGY: "rooms", REQUIRED: "rack"}),
        [
            (
                f"unknown-topology? metadata.annotations[{TOPOLOGY}]: Topology 'rooms' does not "
                "exist, so no pod starts until it does. Name an existing one: racks"
            )
        ],
    ),
    Case(
        "a preferred placement in one that does not exist",
        jobset(rjob("node", annotations={TOPOLOGY: "rooms", PREFERRED: "rack"})),
        [
            (
                f"unknown-topology? {TEMPLATE}[{TOPOLOGY}]: Topology 'rooms' does not exist, so "
                "it has no effect. Name an existing one: racks"
            )
        ],
    ),
    Case(
        "a required and a preferred level that it does not have",
        named(annotations={TOPOLOGY: "racks", REQUIRED: "block", PREFERRED: "row"}),
        [
            (
                f"unknown-topology? metadata.annotations[{REQUIRED}]: Topology 'racks' has no "
                "level 'block', so no pod starts until it does. Name one of its levels: "
                "example.org/zone (zone), example.org/rack"
            ),
            (
                f"unknown-topology? metadata.annotations[{PREFERRED}]: Topology 'racks' has no "
                "level 'row', so it has no effect. Name one of its levels: "
                "example.org/zone (zone), example.org/rack"
            ),
        ],
    ),
    Case("an alias", named(annotations={TOPOLOGY: "racks", REQUIRED: "zone"}), []),
    Case(
        "a placement without a Topology",
        named(annotations={REQUIRED: "zone"}),
        [
            (
                f"invalid-value? metadata.annotations[{REQUIRED}]: ignored: can only be set "
                f"together with {TOPOLOGY}"
            )
        ],
    ),
    Case(
        "an invalid name is reported once",
        named(annotations={TOPOLOGY: "No Topology", REQUIRED: "rack"}),
        None,
    ),
]


@pytest.mark.parametrize("case", UNKNOWN, ids=ids)
def test_a_topology_that_does_not_exist(case: Case[JobSet, list[str] | None]) -> None:
    levels = (
        TopologyLevel(node_label="example.org/zone", alias="zone"),
        TopologyLevel(node_label="example.org/rack"),
    )
    known = KnownCluster(topologies={"racks": TopologySpec(levels=levels)})
    for rules in (RULES, EXTERNAL):
        found = [short(it) for it in lint_jobset(case.given, "team", rules, known)]
        if case.want is None:
            assert [it.split()[0] for it in found] == ["invalid-value?"]
        else:
            assert found == case.want


STAGES = [
    Case(
        "a replicatedJob that there is not",
        jobset(rjob("a"), rjob("b", "x Ready")),
        [
            (
                "unreachable! spec.replicatedJobs[1].dependsOn[0].name: replicatedJob 'x' "
                "does not exist. Name one that is listed before: a"
            )
        ],
    ),
    Case(
        "a circle of stages is unreachable",
        jobset(rjob("a", "b Ready"), rjob("b", "a Complete")),
        [
            "unreachable! spec.replicatedJobs[0].dependsOn[0].name: 'b' must be listed before 'a'",
            (
                "unreachable! spec.replicatedJobs: replicatedJobs a and b depend on each other, "
                "so they never begin"
            ),
        ],
    ),
    Case(
        "one that never ends",
        jobset(rjob("a", parallelism=0, completions=1), rjob("b", "a Complete")),
        [
            (
                "unreachable! spec.replicatedJobs[1].dependsOn: 'a' never becomes Complete, "
                "so 'b' never begins"
            )
        ],
    ),
]


@pytest.mark.parametrize("case", STAGES, ids=ids)
def test_stages_that_are_never_reached(case: Case[JobSet, list[str]]) -> None:
    assert jobset_findings(case.given) == case.want


def test_blocking_findings_come_first_and_sixteen_are_the_most() -> None:
    """The API server passes no more on."""
    broken = {"resources": {"limits": {f"a/{i}": "0.5" for i in range(40)}}}
    whole = jobset(rjob("node", pod={"containers": [broken]}), labels={"priorityClassName": "gold"})

    found = lint_jobset(whole, "team", RULES, known_cluster())

    assert [it.code for it in found] == ["invalid-amount"] * 16


def test_kinds_that_are_not_listed_have_no_findings() -> None:
    """The caches of a process that has just started are empty."""
    whole = jobset(
        rjob("node"),
        labels={"priorityClassName": "gold"},
        annotations={TOPOLOGY: "rings", REQUIRED: "rack"},
    )
    nothing = known_cluster()._replace(priorities=None, topologies=None)

    assert lint_jobset(whole, "team", EXTERNAL, nothing) == ()
