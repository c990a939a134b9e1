"""Which pods belong to which PodGroup, and which of them count (rules 5 to 8)."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.support.state.objects import (
    JOBSET,
    encode_objects,
    group,
    grouped_pods,
    jobset_pod,
    make_object,
    node,
    pod,
    podgroup_of,
    podset_of,
    prefilter_failure_of,
)

_SUBS = [{"name": "n-replica-0", "minMember": 2}, {"name": "l-replica-0", "minMember": 1}]
_OF_JOBSET = {"meta": {"ownerReferences": [JOBSET]}}


# the spec of a PodGroup, the sub-group that a pod names → its PodSet, or the warning
PODSET_CASES = [
    Case("without sub-groups it is the default one", ({}, ""), "default"),
    Case("no sub-groups, and their name", ({}, "default"), "default"),
    Case("no sub-groups, and another name", ({}, "x"), "name sub-group x, which does not exist"),
    Case("one of them", ({"subGroups": _SUBS}, "l-replica-0"), "l-replica-0"),
    Case("none of them", ({"subGroups": _SUBS}, "x"), "to one of: n-replica-0, l-replica-0"),
    Case(
        "a pod that names no sub-group does not count",
        ({"subGroups": _SUBS}, ""),
        "name no sub-group, so they do not count",
    ),
    Case(
        "the case of a name matters",
        ({"subGroups": _SUBS}, "L-replica-0"),
        "name sub-group L-replica-0, which does not exist",
    ),
    Case(
        "an inner one",
        ({"subGroups": [{"name": "n"}, {"name": "x", "parent": "n", "minMember": 1}]}, "n"),
        "Pods of PodGroup ns/g name sub-group n, which does not exist, so they do not count. Set "
        "their label kai.scheduler/subgroup-name to one of: x",
    ),
]


@pytest.mark.parametrize("case", PODSET_CASES, ids=ids)
def test_podsets_of_pods(case: Case[tuple[dict[str, Any], str], str]) -> None:
    """A running pod without a PodSet keeps its resources, and is a PodGroup of its own."""
    spec, sub = case.given

    encoded = encode_objects(
        group("g", **spec), pod("p", "g", sub), node("a"), pod("q", "g", sub, node="a")
    )

    if encoded.warnings:
        assert [warning.object_key.name for warning in encoded.warnings] == ["g"]
        assert case.want in encoded.warnings[0].message
        assert [podgroup.name for podgroup in encoded.podgroup_keys] == ["pg-q-q"]
        assert encoded.snapshot.podgroups[0].is_preemptible
        assert encoded.snapshot.nodes.idle[0, encoded.snapshot.resources.pods] == 109
    else:
        podset = podset_of(encoded, "g", case.want)
        assert (len(podset.pending), podset.running) == (1, 1)


def test_gated_pods_are_counted() -> None:
    """They exist, and are not pending; also pods without a PodGroup."""
    gated: dict[str, Any] = {"schedulingGates": [{"name": "x"}]}

    encoded = encode_objects(group("g"), pod("p", "g"), pod("q", "g", **gated), pod("r", **gated))

    podset = podset_of(encoded, "g")
    assert (len(podset.pending), podset.gated) == (1, 1)
    assert podset_of(encoded, "pg-r-r").gated == 1


def test_groups_of_one_name_in_two_namespaces() -> None:
    """They are two PodGroups."""
    one = pod("p", "g")
    other = pod("p", "g", meta={"namespace": "other"})

    encoded = encode_objects(group("g"), group("g", meta={"namespace": "other"}), one, other)

    assert [str(name) for name in encoded.podgroup_keys] == ["ns/g", "other/g"]


def test_a_group_that_does_not_exist() -> None:
    """Its pods wait for it; they never count as pods without a PodGroup."""
    encoded = encode_objects(pod("p", "g"), pod("q", "g", "x"))

    assert [key.name for key in encoded.podgroup_keys] == ["g"]
    assert prefilter_failure_of(encoded, "g") == (
        "Misconfigured",
        "The pods name PodGroup ns/g, which does not exist. They can start when it is created",
    )
    assert podset_of(encoded, "g").pending == (0, 1)


def test_a_pod_without_a_group_is_a_podgroup() -> None:
    """It has the name of the PodGroup that KAI would create."""
    encoded = encode_objects(pod("p", meta={"uid": "123"}))

    podgroup = podgroup_of(encoded, "pg-p-123")
    assert (
        podgroup.tree.minimum,
        podset_of(encoded, "pg-p-123").pending,
        podgroup.prefilter_failure,
    ) == (
        1,
        (0,),
        None,
    )


def test_a_pod_of_another_scheduler_is_in_no_podgroup() -> None:
    """Whatever it names."""
    assert (
        encode_objects(group("g"), pod("p", "g", schedulerName="default-scheduler")).podgroup_keys
        == ()
    )


def test_podgroups_are_rows_by_age_then_uid() -> None:
    """PodGroups and pods without one are sorted together."""
    old, young = ({"creationTimestamp": f"2026-01-0{day}T00:00:00Z"} for day in (1, 2))
    encoded = encode_objects(
        group("c", meta={**old, "uid": "2"}),
        group("a", meta={**young, "uid": "9"}),
        pod("p1", "c", meta=young),
        pod("p2", "a", meta=old),
        pod("b", meta={**old, "uid": "1"}),
    )

    assert [key.name for key in encoded.podgroup_keys] == ["pg-b-1", "c", "a"]
    of = {
        key.name: int(row)
        for key, row in zip(encoded.pod_keys, encoded.snapshot.pods.podgroup, strict=True)
    }
    assert of == {"b": 0, "p1": 1, "p2": 2}


# pods of a PodGroup of a JobSet → pending, running and succeeded, or nothing for no PodGroup
ATTEMPTS = [
    Case("pods of one attempt all count", [{}, {"node": "a"}], (1, 1, 0)),
    Case("an older one of the JobSet", [{"attempt": 1}, {"node": "a"}], (1, 0, 0)),
    Case("an older one of the Job", [{"job_attempt": 1}, {"node": "a"}], (1, 0, 0)),
    Case("the JobSet counts first", [{"attempt": 1}, {"job_attempt": 5}], (1, 0, 0)),
    Case("an old success does not count", [{"attempt": 1}, {"phase": "Succeeded"}], (1, 0, 0)),
    Case("a new success counts", [{}, {"phase": "Succeeded"}], (1, 0, 1)),
    Case("an attempt of failures counts", [{"attempt": 1, "phase": "Failed"}, {}], None),
    Case("no number is 0", [{"attempt": "x"}, {"node": "a"}], (1, 1, 0)),
]


@pytest.mark.parametrize("case", ATTEMPTS, ids=ids)
def test_attempts(case: Case[list[dict[str, Any]], tuple[int, int, int] | None]) -> None:
    """Only the newest counts."""
    pods = [jobset_pod(f"p{i}", "g", **pod_fields) for i, pod_fields in enumerate(case.given)]

    encoded = encode_objects(node("a"), group("g", subGroups=_SUBS, **_OF_JOBSET), *pods)

    if case.want is None:
        assert encoded.podgroup_keys == ()
    else:
        podset = podset_of(encoded, "g", "n-replica-0")
        assert (len(podset.pending), podset.running, podset.succeeded) == case.want


def test_an_attempt_is_one_of_all_groups_of_a_jobset() -> None:
    """A restart of the JobSet restarts all of them."""
    first = group("first", subGroups=_SUBS, **_OF_JOBSET)
    second = group("second", subGroups=_SUBS, **_OF_JOBSET)
    pods = [jobset_pod("old", "first", node="a"), jobset_pod("new", "second", job="l", attempt=1)]

    encoded = encode_objects(node("a"), first, second, *pods)

    assert [key.name for key in encoded.podgroup_keys] == ["second"]


def test_attempts_without_a_jobset_are_only_labels() -> None:
    """Any user may write them."""
    pods = [jobset_pod("p", "g", attempt=1), jobset_pod("q", "g")]

    assert podset_of(
        encode_objects(group("g", subGroups=_SUBS), *pods), "g", "n-replica-0"
    ).pending == (
        0,
        1,
    )


def test_pods_that_no_job_made_never_count_into_a_jobset() -> None:
    """Nor do they make other attempts old."""
    forged = jobset_pod("forged", "g", attempt=9, meta={"ownerReferences": []})

    encoded = encode_objects(
        group("g", subGroups=_SUBS, **_OF_JOBSET), jobset_pod("p", "g"), forged
    )

    assert grouped_pods(encoded) == {"p"}
    assert [warning.object_key.name for warning in encoded.warnings] == ["g"]


def test_older_attempts_just_occupy() -> None:
    """The resources that they use are charged; those that they request are not."""
    pods = [jobset_pod("new", "g", attempt=1), jobset_pod("there", "g", node="a")]
    pending = jobset_pod("waiting", "g")

    encoded = encode_objects(node("a"), group("g", subGroups=_SUBS, **_OF_JOBSET), *pods, pending)

    assert grouped_pods(encoded) == {"new", "there"}
    assert encoded.snapshot.queues.allocated[0, 2] == 1000
    assert encoded.snapshot.queues.requested[0, 2] == 2000


# pods of a suspended JobSet → pending and running of its PodGroup, or nothing for no PodGroup
SUSPENDED = [
    Case("a suspended JobSet without pods has no PodGroup", [], None),
    Case("a pod waits", [{}], None),
    Case("a pod is there", [{}, {"node": "a"}], (0, 1)),
    Case(
        "a pod is going",
        [{"node": "a", "meta": {"deletionTimestamp": "2026-01-05T08:00:00Z"}}],
        None,
    ),
]


@pytest.mark.parametrize("case", SUSPENDED, ids=ids)
def test_a_suspended_podgroup_requests_nothing(
    case: Case[list[dict[str, Any]], tuple[int, int] | None],
) -> None:
    """It keeps what its pods still use."""
    jobset = make_object("JobSet", "j", {"uid": "u"}, spec={"suspend": True})
    pods = [
        pod(
            f"p{i}",
            "g",
            meta=dict(
                one.get("meta", {}),
                ownerReferences=[{"apiVersion": "batch/v1", "kind": "Job", "controller": True}],
            ),
            **{key: value for key, value in one.items() if key != "meta"},
        )
        for i, one in enumerate(case.given)
    ]

    encoded = encode_objects(jobset, node("a"), group("g", **_OF_JOBSET), *pods)

    if case.want is None:
        assert encoded.podgroup_keys == ()
        assert encoded.snapshot.queues.requested.sum() == 0
    else:
        podset = podset_of(encoded, "g")
        assert (len(podset.pending), podset.running) == case.want
        assert not podgroup_of(encoded, "g").has_running


@pytest.mark.parametrize("uid", ["u", "another"])
def test_a_jobset_that_was_made_again_is_another(uid: str) -> None:
    """It does not suspend the PodGroup of the first."""
    jobset = make_object("JobSet", "j", {"uid": uid}, spec={"suspend": True})
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "controller": True}]

    encoded = encode_objects(
        jobset, group("g", **_OF_JOBSET), pod("p", "g", meta={"ownerReferences": owner})
    )

    assert bool(encoded.podgroup_keys) == (uid == "another")


# pods → whether the PodGroup has started
HAS_STARTED_CASES = [
    Case("a PodGroup whose pods all wait has not started", [{}], False),
    Case("one is there", [{}, {"node": "a"}], True),
    Case("one is promised a node", [{"status": {"nominatedNodeName": "a"}}], True),
    Case("the node is gone", [{"status": {"nominatedNodeName": "b"}}], False),
]


@pytest.mark.parametrize("case", HAS_STARTED_CASES, ids=ids)
def test_has_started(case: Case[list[dict[str, Any]], bool]) -> None:
    """Then places for its missing pods are kept."""
    pods = [pod(f"p{i}", "g", **one) for i, one in enumerate(case.given)]

    assert podgroup_of(encode_objects(node("a"), group("g"), *pods), "g").has_running == case.want


_ADMITTED = {"trainer-kai.dev/admitted": "v1"}
_TRAINJOB = make_object("TrainJob", "j", {"uid": "t"}, spec={})


def _jobset(suspend: bool = False, record: str = "Main", annotations: Any = None) -> dict[str, Any]:
    """Return the JobSet of the TrainJob, which will get the PodGroup pg-j-u."""
    api = "trainer.kubeflow.org/v1alpha1"
    owner = {"apiVersion": api, "kind": "TrainJob", "name": "j", "uid": "t", "controller": True}
    notes = _ADMITTED if annotations is None else annotations
    meta = {"uid": "u", "ownerReferences": [owner], "annotations": notes}
    pods = {"metadata": {"labels": {"trainer-kai.dev/gang": record}}}
    jobs = [{"name": "n", "template": {"spec": {"template": pods}}}]
    return make_object("JobSet", "j", meta, spec={"suspend": suspend, "replicatedJobs": jobs})


# objects -> whether running pods of a PodGroup that does not exist may be evicted
MISSING: list[Case[list[dict[str, Any]], bool]] = [
    Case("it is about to be made again", [_jobset(), _TRAINJOB], False),
    Case("the JobSet does not exist", [_TRAINJOB], True),
    Case("the TrainJob does not exist", [_jobset()], True),
    Case("the JobSet is suspended", [_jobset(suspend=True), _TRAINJOB], True),
    Case("it was not admitted", [_jobset(annotations={}), _TRAINJOB], True),
    Case("it has another group", [_jobset(record="other"), _TRAINJOB], True),
]


@pytest.mark.parametrize("case", MISSING, ids=ids)
def test_pods_of_a_missing_group(case: Case[list[dict[str, Any]], bool]) -> None:
    """To delete them would end their TrainJob, so they stay while the PodGroup may be created."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "j"}
    running = pod("p", "pg-j-u", node="a", meta={"labels": labels})

    encoded = encode_objects(node("a"), running, *case.given)

    assert [podgroup.is_preemptible for podgroup in encoded.snapshot.podgroups] == [case.want]
