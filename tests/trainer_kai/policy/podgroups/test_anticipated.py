"""The anticipated annotation can be read back, and has a schema."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from tests.support.case import Case, ids
from tests.support.repository import ROOT
from tests.support.size import examples
from tests.trainer_kai.policy.podgroups.schema import PATH, schema
from tests.trainer_kai.policy.specs import any_jobset, jobset, rjob
from trainer_kai.api.jobset import JobSet
from trainer_kai.policy.podgroups.anticipated import (
    AnticipatedAnnotation,
    AnticipatedHostPort,
    AnticipatedPods,
    StageDependency,
    anticipated_annotation,
    read_anticipated,
)
from trainer_kai.policy.podgroups.grouping import plan_podgroups
from trainer_kai.policy.podgroups.manifests import GroupingRules, podgroup_manifests
from trainer_kai.policy.workloads.jobset import jobset_workload

OURS = "kai-scheduler"
PAGE = ROOT / "docs" / "grouping.md"
# What a pod needs, in full.
POD: dict[str, Any] = {
    "containers": [{"resources": {"limits": {"cpu": "500m"}, "requests": {"memory": "1Gi"}}}],
    "nodeSelector": {"pool": "a"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h100"]}]}
                ]
            }
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
            ]
        },
    },
    "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
    "priorityClassName": "high",
}
STAGED = jobset(
    rjob("data", parallelism=2, completions=5, replicas=2),
    rjob("queue", parallelism=3, completions=None, mode="NonIndexed", step="dataset-initializer"),
    rjob("other", scheduler="default-scheduler", parallelism=4),
    rjob("node", "data Complete", "queue Complete", parallelism=3),
    rjob("launcher", "node Ready", "other Ready", pod=POD, replicas=2, parallelism=2),
)

# What the nodes of it wait for.
AFTER = (
    StageDependency(
        replicated_job="data",
        status="Complete",
        group="pg-data",
        sub_group_prefix="data-replica-",
        replicas=2,
        count=5,
        before=("node-replica-",),
    ),
    StageDependency(
        replicated_job="queue",
        status="Complete",
        group="pg-queue",
        sub_group_prefix="queue-replica-",
        replicas=1,
        count=1,
        before=("node-replica-",),
    ),
    StageDependency(
        replicated_job="other",
        status="Ready",
        sub_group_prefix="other-replica-",
        replicas=1,
        count=4,
        before=("launcher-replica-",),
    ),
)


def texts(of: JobSet) -> dict[str, str]:
    plan = plan_podgroups(of, OURS)
    jobs = {job.name: job for job in of.spec.replicated_jobs}

    def group_of(name: str) -> str:
        podgroup = plan.podgroup_of(name)
        return f"pg-{podgroup.suffix}" if podgroup else ""

    return {
        podgroup.suffix: anticipated_annotation(podgroup, jobs, group_of)
        for podgroup in plan.podgroups
    }


def test_stage_dependencies_and_anticipated_pods_are_written() -> None:
    """With all that a scheduler needs to find room, and to see that it may begin."""
    spec = STAGED.spec.replicated_jobs[4].template.spec.template.spec

    text_read = {suffix: read_anticipated(text) for suffix, text in texts(STAGED).items()}

    assert text_read["data"] == text_read["queue"] == AnticipatedAnnotation()
    assert text_read["node"].after == AFTER
    assert text_read["node"].later == (
        AnticipatedPods(
            sub_group_prefix="launcher-replica-",
            replicas=2,
            count=2,
            requests={"cpu": "500m", "memory": "1Gi"},
            node_selector={"pool": "a"},
            affinity=spec.affinity,
            tolerations=spec.tolerations,
            priority_class_name="high",
        ),
    )
    assert text_read["node"].later[0].sub_group_prefix == "launcher-replica-"
    assert text_read["node"].after[0].sub_group_prefix == "data-replica-"


def test_a_gpu_fraction_is_written_as_the_pod_has_it() -> None:
    """It asks for it by annotations, so no request shows it."""
    annotations = {"gpu-fraction": "0.5", "note": "x"}
    anticipated_pods = rjob("b", "a Ready")
    anticipated_pods["template"]["spec"]["template"]["metadata"] = {"annotations": annotations}

    [text] = texts(jobset(rjob("a"), anticipated_pods)).values()

    assert read_anticipated(text).later[0].sharing == {"gpu-fraction": "0.5"}


def test_inter_pod_constraints_are_written() -> None:
    """Labels, spread, host ports and claims: anticipated pods have them too."""
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ports = [{"containerPort": 80}, {"hostPort": 22, "containerPort": 22, "protocol": "TCP"}]
    sidecar = {"restartPolicy": "Always", "ports": [{"hostPort": 9, "hostIP": "10.0.0.1"}]}
    pod = {
        "containers": [{"ports": [*ports, {"hostPort": 53, "protocol": "UDP"}]}],
        "initContainers": [sidecar, {"ports": [{"hostPort": 7}]}],
        "topologySpreadConstraints": [spread],
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
            {"name": "own", "ephemeral": {}},
            {"name": "none", "emptyDir": {}},
        ],
    }
    anticipated_pods = rjob("b", "a Ready", pod=pod)
    anticipated_pods["template"]["spec"]["template"]["metadata"] = {"labels": {"app": "b"}}

    [text] = texts(jobset(rjob("a"), anticipated_pods)).values()

    (text_read,) = read_anticipated(text).later
    assert text_read.labels == {"app": "b"}
    assert [one.topology_key for one in text_read.topology_spread_constraints] == ["zone"]
    assert text_read.host_ports == (
        AnticipatedHostPort(port=9, host_ip="10.0.0.1"),
        AnticipatedHostPort(port=22),
        AnticipatedHostPort(port=53, protocol="UDP"),
    )
    assert [one.name for one in text_read.volumes] == ["data"]
    assert json.loads(text)["later"][0]["hostPorts"][1] == {"port": 22}


def test_in_the_network_of_the_node_every_port_is_one_of_the_node() -> None:
    """The API server fills in host ports only at creation; these pods do not exist yet."""
    pod = {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]}

    [text] = texts(jobset(rjob("a"), rjob("b", "a Ready", pod=pod))).values()

    assert read_anticipated(text).later[0].host_ports == (AnticipatedHostPort(port=80),)


def test_empty_fields_are_not_written() -> None:
    """A text of an earlier version is still the right one."""
    [text] = texts(jobset(rjob("a"), rjob("b", "a Ready"))).values()

    assert set(json.loads(text)["later"][0]) == {"subGroupPrefix", "replicas", "count"}


def test_without_anticipated_pods_there_is_no_annotation() -> None:
    """An empty text means: nothing before, nothing later."""
    assert texts(jobset(rjob("a"), rjob("b"))) == {"Main": ""}
    assert read_anticipated("") == AnticipatedAnnotation()


@pytest.mark.parametrize(
    "text", ["x", "[]", '{"after": [{}]}', '{"later": [{"subGroupPrefix": "a", "replicas": "1"}]}']
)
def test_what_is_none_is_refused(text: str) -> None:
    """Also what only lacks a field, or has one of another type."""
    with pytest.raises(msgspec.DecodeError):
        read_anticipated(text)


def test_what_a_later_version_adds_is_skipped() -> None:
    """A reader may be older than the writer."""
    assert read_anticipated('{"later": [], "until": "noon"}') == AnticipatedAnnotation()


def test_its_size_does_not_grow_with_the_jobset() -> None:
    """An annotation has a limit, and a JobSet may have a thousand Jobs."""
    few, many = (
        texts(jobset(rjob("a", replicas=n), rjob("b", "a Ready", replicas=n)))["Main"]
        for n in (100, 999)
    )

    assert len(few) == len(many) < 200


@settings(max_examples=examples(100))
@given(any_jobset())
def test_it_is_read_as_it_was_written(of: JobSet) -> None:
    """And written the same again, so that no reader sees a change where there is none."""
    for text in texts(of).values():
        assert (
            text == ""
            or msgspec.json.encode(read_anticipated(text), order="sorted").decode() == text
        )
    assert texts(of) == texts(of)


# replicas and count of each of `later`, replicas of `after` -> what is wrong with it
UNREAD: list[Case[tuple[list[tuple[int, int]], int], str]] = [
    Case("as many as are expected", ([(100, 1000)], 3000), ""),
    Case(
        "expected pods of all jobs are counted together",
        ([(100, 1000), (1, 1)], 0),
        "later: 100001 expected pods, and the maximum",
    ),
    Case("what is below zero is nothing", ([(100, 1000), (-5, 7), (5, -7), (-2, -2)], 0), ""),
    Case("too many replicas", ([(3001, 0)], 0), "later: 3001 replicas, and the maximum is 3000"),
    Case("of an earlier stage", ([], 3001), "after: 3001 replicas, and the maximum is 3000"),
    Case("larger than any machine word", ([(1, 10**40)], 0), f"later: {10**40} expected pods"),
]


@pytest.mark.parametrize("case", UNREAD, ids=ids)
def test_what_says_too_much_is_none(case: Case[tuple[list[tuple[int, int]], int], str]) -> None:
    """Of whatever version, and by hand: a reader may count on the bounds."""
    (anticipated_pods, after), prefix = case.given, {"subGroupPrefix": "a-"}
    text = json.dumps(
        {
            "after": [
                {**prefix, "replicatedJob": "a", "status": "Ready", "replicas": after, "count": 1}
            ],
            "later": [{**prefix, "replicas": it, "count": count} for it, count in anticipated_pods],
        }
    )
    if not case.want:
        assert len(read_anticipated(text).later) == len(anticipated_pods)
        return
    with pytest.raises(msgspec.ValidationError) as caught:
        read_anticipated(text)
    assert str(caught.value).startswith(case.want)


_TERM = {"topologyKey": "zone"}
_REQUIRED, _NICE = (
    f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred")
)
_SPREAD = {"maxSkew": 9, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}

# what pods say of others -> whether 5001 of them are too many
RELATED: list[Case[dict[str, Any], bool]] = [
    Case("pods without constraints are not too many", {}, False),
    Case(
        "affinity makes many pods too many",
        {"affinity": {"podAffinity": {_REQUIRED: [_TERM]}}},
        True,
    ),
    Case(
        "anti-affinity makes many pods too many",
        {"affinity": {"podAntiAffinity": {_REQUIRED: [_TERM]}}},
        True,
    ),
    Case(
        "what would be nice",
        {"affinity": {"podAffinity": {_NICE: [{"weight": 1, "podAffinityTerm": _TERM}]}}},
        False,
    ),
    Case("a spread makes many pods too many", {"topologySpreadConstraints": [_SPREAD]}, True),
    Case(
        "spread if it can be",
        {"topologySpreadConstraints": [{**_SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]},
        False,
    ),
]


@pytest.mark.parametrize("case", RELATED, ids=ids)
def test_pods_that_say_something_of_others_are_fewer(case: Case[dict[str, Any], bool]) -> None:
    """No more are read than are written."""
    first = {"subGroupPrefix": "a-", "replicas": 1, "count": 5000, **case.given}
    plain = {"subGroupPrefix": "b-", "replicas": 1, "count": 90_000}
    assert read_anticipated(json.dumps({"later": [first, plain]})).later
    text_read = json.dumps({"later": [{**first, "count": 5001}, plain]})
    pod = {"containers": [{}], **case.given}
    large = plan_podgroups(jobset(rjob("a"), rjob("b", "a Ready", parallelism=5001, pod=pod)), OURS)
    assert (large.too_large == ("a", "b")) == case.want
    if not case.want:
        assert read_anticipated(text_read).later
        return
    with pytest.raises(msgspec.ValidationError) as caught:
        read_anticipated(text_read)
    assert str(caught.value) == (
        "later: 5001 expected pods with affinity, spread or ports, and the maximum for one "
        "PodGroup is 5000"
    )


def test_host_ports_are_such_a_thing() -> None:
    """They are written by the port, not as containers."""
    ports = {"containers": [{"ports": [{"hostPort": 80}]}]}
    one = {"subGroupPrefix": "a-", "replicas": 1, "hostPorts": [{"port": 80}]}
    assert read_anticipated(json.dumps({"later": [{**one, "count": 5000}]})).later
    with pytest.raises(
        msgspec.ValidationError, match="5001 expected pods with affinity, spread or ports"
    ):
        read_anticipated(json.dumps({"later": [{**one, "count": 5001}]}))
    large = plan_podgroups(
        jobset(rjob("a"), rjob("b", "a Ready", parallelism=5001, pod=ports)), OURS
    )
    assert large.too_large == ("a", "b")


def test_the_schema_is_that_of_the_code() -> None:
    """The README of the room has the command that writes it again."""
    assert PATH.read_text() == schema()


def test_the_example_in_the_docs_is_what_a_podgroup_has() -> None:
    """Its nodes wait for its data, and its launcher waits for its nodes."""
    pod = {"containers": [{"resources": {"limits": {"cpu": 1}}}]}
    of = jobset(
        rjob("data", step="dataset-initializer"),
        rjob("node", "data Complete", parallelism=3),
        rjob("launcher", "node Ready", pod=pod),
    )
    rules = GroupingRules("bundled", OURS, "default-queue")
    _, group = podgroup_manifests(jobset_workload(of), plan_podgroups(of, OURS), rules)

    example = PAGE.read_text().split("```json\n")[1].split("```")[0]

    text_read = group["metadata"]["annotations"]["trainer-kai.dev/anticipated"]
    assert json.loads(text_read) == json.loads(example)
