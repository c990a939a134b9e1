"""The report on a TrainJob: its PodGroups, their states, and what may not be read."""

import json
from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.workloads.jobsets import UID
from tests.trainer_kai.cli.commands.why.trainjob_cluster import (
    NO_ROOM_REASONS,
    TrainJobCluster,
    without_capacity,
)
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import LEASES, PODGROUPS, TRAINJOBS
from trainer_kai.cli.commands.plan.preview import Preview, PreviewContext, preview_workload
from trainer_kai.cli.commands.why import podgroups
from trainer_kai.cli.commands.why.output import as_json, as_text
from trainer_kai.errors import ConfigError
from trainer_kai.kube.rest.response import Forbidden
from trainer_kai.policy.workloads.state import WorkloadState
from trainer_kai.policy.workloads.workload import Workload

GROUP: Final = f"pg-job-{UID}"
_JSON_COUNTS: Final = [
    "running",
    "starting",
    "nominated",
    "gated",
    "waiting",
    "terminating",
    "succeeded",
    "failed",
]


async def test_a_scheduler_in_another_namespace_is_believed() -> None:
    """Where there is no Lease of ours, and the PodGroup has a reason."""
    cluster = TrainJobCluster()
    without_capacity(cluster)
    cluster.store.remove(LEASES, Key("trainer-kai", "trainer-kai-scheduler"))

    report = await cluster.why()

    assert [podgroup.reason.title for podgroup in report.podgroups if podgroup.reason] == [
        "NoCapacity"
    ]


# spec of the TrainJob, which was created at 2025-12-31T23:00:00Z -> what is said of its end
DEADLINES: list[Case[dict[str, Any], str]] = [
    Case("none", {}, ""),
    Case(
        "a deadline",
        {"activeDeadlineSeconds": 7200},
        "it will be ended at 2026-01-01T01:00:00Z (activeDeadlineSeconds: 7200), "
        "also if its pods still wait then",
    ),
    Case(
        "a deadline that does not run yet",
        {"activeDeadlineSeconds": 7200, "suspend": True},
        "activeDeadlineSeconds: 7200 counts from when the TrainJob starts, "
        "also while its pods wait",
    ),
    Case("a deadline beyond any life", {"activeDeadlineSeconds": 2**62}, ""),
]


@pytest.mark.parametrize("case", DEADLINES, ids=ids)
async def test_when_it_will_be_ended(case: Case[dict[str, Any], str]) -> None:
    """By its controller, which counts from the creation or the resume."""
    cluster = TrainJobCluster()
    without_capacity(cluster)
    cluster.trainjob["metadata"]["creationTimestamp"] = "2025-12-31T23:00:00Z"
    cluster.change(**case.given)
    assert "".join((await cluster.why()).notes) == case.want


TUNE: Final = "torchtune-llama3.2-1b"


async def test_stages_as_people_read_them() -> None:
    """Each PodGroup has a row as in a plan; one that waits has its reason below."""
    cluster = TrainJobCluster(TUNE)
    cluster.running("dataset-initializer", group="dataset-initializer")
    cluster.pods("model-initializer", group="model-initializer")
    cluster.condition(*NO_ROOM_REASONS, group="model-initializer")

    text = as_text(await cluster.why(), 100)

    short = [" ".join(line.split()) for line in text.splitlines()]
    assert short == [
        f"TrainJob default/job waits runtime ClusterTrainingRuntime {TUNE} queue team-a",
        "",
        "TrainJob → JobSet → 3 PodGroups → 2 pods: 1 running, 1 waiting",
        "",
        "STAGE PODGROUP AFTER MEMBERS STATE PODS",
        "1/2 pg-job-11111111…-dataset-initializer - 1 dataset-initializer runs 1 running",
        "1/2 pg-job-11111111…-model-initializer - 1 model-initializer waits 1 waiting",
        "NoCapacity (for 2m): 0 of 4 pods have room. It can.",
        "2/2 pg-job-11111111…-node dataset-initializer, model-initializer Complete 4 node waits -",
        (
            "WaitingForStage: dataset-initializer is not Complete (0 of 1 Jobs); model-initializer "
            "is not"
        ),
        "Complete (0 of 1 Jobs). The pods of this PodGroup are created afterwards",
    ]


async def test_a_trainjob_that_runs_stage_by_stage_does_not_wait() -> None:
    """All is as it should be: a script that looks at the exit code goes on as well."""
    cluster = TrainJobCluster(TUNE)
    cluster.running("dataset-initializer", group="dataset-initializer")
    cluster.running("model-initializer", group="model-initializer")

    report = await cluster.why()

    assert [podgroup.state for podgroup in report.podgroups] == [
        WorkloadState.RUNS,
        WorkloadState.RUNS,
        WorkloadState.WAITS,
    ]
    assert (report.state, report.waits) == (WorkloadState.RUNS, False)


async def test_a_label_that_does_not_count_yet_is_reported() -> None:
    """A user names another queue in place of a missing one, and nothing happens."""
    cluster = TrainJobCluster()
    cluster.pods("node", 4)
    before = await cluster.why()
    cluster.trainjob["metadata"]["labels"] = {"kai.scheduler/queue": "team-b"}
    cluster.store.put(TRAINJOBS, cluster.trainjob)

    after = await cluster.why()

    cluster.trainjob["spec"]["suspend"] = True
    cluster.store.put(TRAINJOBS, cluster.trainjob)
    suspended = await cluster.why()
    finished = {"type": "Complete", "status": "True", "reason": "Why", "message": "so"}
    cluster.trainjob["status"] = {"conditions": [finished]}
    cluster.store.put(TRAINJOBS, cluster.trainjob)
    done = await cluster.why("job-node-0-1")

    note = "the label names queue team-b; it takes effect when the TrainJob is"
    assert (before.notes, after.queue) == ((), "team-a")
    assert after.notes == (f"{note} suspended and resumed",)
    assert suspended.notes == (f"{note} resumed",)
    assert not any(it.startswith(note) for it in done.notes)


async def test_a_stage_that_is_over_waits_for_nothing() -> None:
    """Its pods may be gone, and those of the next one run."""
    cluster = TrainJobCluster(TUNE)
    cluster.counted(dataset_initializer=1, model_initializer=1)
    cluster.running("node", 4, group="node")

    report = await cluster.why()

    assert [podgroup.state for podgroup in report.podgroups] == [
        WorkloadState.COMPLETE,
        WorkloadState.COMPLETE,
        WorkloadState.RUNS,
    ]
    assert not report.waits


@pytest.mark.parametrize("forbidden", [set[str](), {"jobsets"}])
async def test_expected_pods_do_not_make_the_podgroup_wait(forbidden: set[str]) -> None:
    """The launcher of DeepSpeed, whether the JobSet may be read or only the PodGroup."""
    cluster = TrainJobCluster("deepspeed-distributed")
    cluster.store.forbidden = forbidden
    cluster.running("node", 3)
    early = await cluster.why()
    cluster.pods("launcher", spec={"nodeName": ""})
    late = await cluster.why()

    assert [(it.state, it.note) for it in early.podgroups] == [
        (WorkloadState.RUNS, "the pods of launcher are created when the others are Ready")
    ]
    assert [it.state for it in late.podgroups] == [WorkloadState.WAITS]
    assert early.unknown == ()


async def test_expected_segments_are_of_their_replicated_job() -> None:
    """The PodGroup alone says so, by the sub-groups above them."""
    cluster = TrainJobCluster("deepspeed-distributed")
    cluster.store.forbidden = {"jobsets"}
    (group,) = cluster.groups.values()
    whole, name = "launcher-replica-0", "launcher-replica-0-segment-0"
    group["spec"]["subGroups"][-1:] = [
        {"name": whole, "minSubGroup": 1, "parent": "launcher"},
        {"name": name, "minMember": 1, "parent": whole},
    ]
    annotations = group["metadata"]["annotations"]
    anticipated = annotations["trainer-kai.dev/anticipated"]
    annotations["trainer-kai.dev/anticipated"] = anticipated.replace(
        '-replica-"', '-replica-0-segment-"'
    )
    cluster.store.put(PODGROUPS, group)
    cluster.running("node", 3)

    report = await cluster.why()

    assert [(it.state, it.note) for it in report.podgroups] == [
        (WorkloadState.RUNS, "the pods of launcher are created when the others are Ready")
    ]


async def test_stages_are_known_from_groups_alone() -> None:
    """Most users may not read JobSets."""
    cluster = TrainJobCluster(TUNE)
    cluster.store.forbidden = {"jobsets", "leases"}
    cluster.running("dataset-initializer", group="dataset-initializer")
    finished = {"nodeName": "node-1"}
    cluster.pods(
        "model-initializer", 1, "model-initializer", spec=finished, status={"phase": "Succeeded"}
    )

    report = await cluster.why()

    assert [(it.podgroup.stage, it.state) for it in report.podgroups] == [
        ("1/2", WorkloadState.RUNS),
        ("1/2", WorkloadState.COMPLETE),
        ("2/2", WorkloadState.WAITS),
    ]
    assert report.podgroups[2].reason is not None
    assert report.podgroups[2].reason.message == (
        "dataset-initializer is not Complete (0 of 1 pods). The pods of this PodGroup are created "
        "afterwards"
    )


async def test_an_external_scheduler_has_groups_of_its_own() -> None:
    """One for each stage; our Lease says nothing about it."""
    cluster = TrainJobCluster("deepspeed-distributed", "external")
    cluster.pods("node", 3, "node")
    cluster.condition(("OverLimit", "team-a has all it may have"), group="node")
    cluster.lease(3600)

    report = await cluster.why()

    titles = [podgroup.reason.title for podgroup in report.podgroups if podgroup.reason]
    assert titles == ["OverLimit", "WaitingForStage"]


async def test_a_pod_is_answered_for_by_its_podgroup() -> None:
    """Other PodGroups are not reported, and it does not matter that they wait."""
    cluster = TrainJobCluster(TUNE)
    cluster.running("dataset-initializer", group="dataset-initializer")

    report = await cluster.why("job-dataset-initializer-0-1")

    assert [podgroup.podgroup.replicated_jobs for podgroup in report.podgroups] == [
        {"dataset-initializer"}
    ]
    assert (report.waits, report.kind, report.key.name) == (False, "TrainJob", "job")


async def test_a_pod_of_no_jobset_is_asked_about_itself() -> None:
    """Its PodGroup says why."""
    cluster = TrainJobCluster()
    cluster.pods("node", labels={"jobset.sigs.k8s.io/jobset-name": ""})
    cluster.condition(*NO_ROOM_REASONS)

    report = await cluster.why("job-node-0-1")

    assert [podgroup.reason.title for podgroup in report.podgroups if podgroup.reason] == [
        "NoCapacity"
    ]
    assert report.kind == "Pod"


@pytest.mark.parametrize("name", ["Complete", "Failed"])
async def test_of_what_is_over_nothing_more_is_asked(name: str) -> None:
    """Two requests, and nothing waits; of a pod that is left one more."""
    cluster = TrainJobCluster()
    cluster.pods("node")
    finished = {"type": name, "status": "True", "reason": "Why", "message": "so"}
    cluster.trainjob["status"] = {"conditions": [finished]}
    cluster.store.put(TRAINJOBS, cluster.trainjob)

    report = await cluster.why()

    assert (report.state.value, report.waits) == (name.lower(), False)
    assert len(cluster.store.requests) == 2
    assert await cluster.why("job-node-0-1") == report
    assert len(cluster.store.requests) == 5


async def test_what_is_over_still_tells_its_last_eviction() -> None:
    """The PodGroup keeps the record as long as the TrainJob exists."""
    cluster = TrainJobCluster()
    record = {"at": _THEN, "message": "default/b gets its resources", "evictions": 1}
    cluster.groups[""]["metadata"]["annotations"] = {
        "trainer-kai.dev/last-eviction": json.dumps(record)
    }
    cluster.condition(*NO_ROOM_REASONS)
    finished = {"type": "Complete", "status": "True"}
    cluster.trainjob["status"] = {"conditions": [finished]}
    cluster.store.put(TRAINJOBS, cluster.trainjob)
    report = await cluster.why()

    assert report.state.value == "complete"
    (note,) = report.notes
    assert note.startswith(f"PodGroup {GROUP} was evicted at {_THEN}: default/b gets")


async def test_a_jobset_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read after the plan, such as the Lease and Events, is added to the same report."""
    plans = []

    def counted(workload: Workload, context: PreviewContext) -> Preview:
        plans.append(workload.metadata.name)
        return preview_workload(workload, context)

    monkeypatch.setattr(podgroups, "preview_workload", counted)
    cluster = TrainJobCluster()
    cluster.pods("node", 1)
    cluster.event("Job job-node-0", "FailedCreate", "exceeded quota")

    report = await cluster.why()

    (explanation,) = report.podgroups
    assert explanation.reason is not None
    assert "exceeded quota" in explanation.reason.message
    assert plans == ["job"]


async def test_few_requests_are_sent() -> None:
    """TrainJob, JobSet, PodGroups, pods; the Lease, who holds the room and nodes if pods wait."""
    cluster = TrainJobCluster()
    cluster.running("node", 4)
    await cluster.why()
    assert len(cluster.store.requests) == 4

    cluster = TrainJobCluster()
    without_capacity(cluster)
    await cluster.why()
    assert len(cluster.store.requests) == 8


async def test_a_program_gets_plain_values() -> None:
    """All that the text says, and no shortened name."""
    cluster = TrainJobCluster()
    without_capacity(cluster)
    cluster.store.forbidden = {"leases"}

    assert as_json(await cluster.why()) == {
        "schema": "trainer-kai/why/v2",
        "kind": "TrainJob",
        "namespace": "default",
        "name": "job",
        "runtime": "ClusterTrainingRuntime torch-distributed",
        "queue": "team-a",
        "queueSource": "podGroup",
        "node": None,
        "state": "waits",
        "waits": True,
        "reason": None,
        "podGroups": [
            {
                "stage": "1/1",
                "podGroup": GROUP,
                "after": None,
                "members": "4 node",
                "state": "waits",
                "reason": {
                    "title": "NoCapacity",
                    "message": NO_ROOM_REASONS[1][1],
                    "since": "2025-12-31T23:58:00+00:00",
                },
                "note": None,
                "needs": 4,
                "pods": dict.fromkeys(_JSON_COUNTS, 0) | {"waiting": 4},
                "gpuShares": [],
            }
        ],
        "notes": [],
        "unknown": [],
    }


async def test_what_may_not_be_read_is_reported_in_one_line() -> None:
    """It is no error."""
    cluster = TrainJobCluster()
    cluster.pods("node", 4)
    cluster.store.forbidden = {"jobsets", "leases", "podgroups", "trainjobs"}

    *_, last = as_text(await cluster.why(), 100).splitlines()

    unknown = "jobsets, leases, podgroups, trainjobs"
    assert last == f"not known, because you may not read them: {unknown}"


async def test_nothing_is_concluded_from_what_may_not_be_read() -> None:
    """A JobSet may be there all the same."""
    cluster = TrainJobCluster()
    cluster.store.forbidden = {"jobsets", "podgroups"}

    report = await cluster.why()

    assert report.reason is not None
    assert (report.reason.title, report.unknown) == ("PodsMissing", ("jobsets", "podgroups"))


async def test_without_any_read_permission_that_is_reported() -> None:
    """There is no answer then."""
    cluster = TrainJobCluster()
    cluster.store.forbidden = {"jobsets", "podgroups", "pods", "trainjobs"}

    with pytest.raises(Forbidden):
        await cluster.why()


@pytest.mark.parametrize("pod", ["", "missing"])
async def test_what_does_not_exist_is_named(pod: str) -> None:
    """With its kind, and where it was looked for."""
    cluster = TrainJobCluster()
    cluster.store.remove(TRAINJOBS, Key("default", "job"))

    with pytest.raises(
        ConfigError, match=r"^(trainjob/job|pod/missing): not found in namespace def"
    ):
        await cluster.why(pod)


_EVICTED = "kai.scheduler/last-eviction-timestamp"
_STARTED = "kai.scheduler/last-start-timestamp"
_THEN, _LATER = "2025-12-31T23:00:00+00:00", "2025-12-31T23:30:00+00:00"


@pytest.mark.parametrize("is_known", [True, False], ids=["by an event", "that is gone"])
async def test_an_eviction_is_reported_while_the_podgroup_waits(*, is_known: bool) -> None:
    """With the reason as long as the Event exists; not after the PodGroup has started again."""
    cluster = TrainJobCluster()
    cluster.groups[""]["metadata"]["annotations"] = {_EVICTED: _THEN}
    cluster.condition(*NO_ROOM_REASONS)
    cluster.pods("node", 4)
    if is_known:
        cluster.event(f"PodGroup {GROUP}", "Evict", "default/b gets its resources")

    report = await cluster.why()

    more = ": default/b gets its resources" if is_known else ""
    assert report.notes == (f"PodGroup {GROUP} was evicted at {_THEN}{more}",)
    cluster.groups[""]["metadata"]["annotations"] = {_EVICTED: _THEN, _STARTED: _LATER}
    cluster.condition(*NO_ROOM_REASONS)
    assert (await cluster.why()).notes == ()


async def test_an_eviction_is_not_reported_once_the_podgroup_runs_again() -> None:
    """It has what it wants."""
    cluster = TrainJobCluster()
    cluster.groups[""]["metadata"]["annotations"] = {_EVICTED: _THEN}
    cluster.condition(*NO_ROOM_REASONS)
    cluster.running("node", 4)

    assert (await cluster.why()).notes == ()


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_recorded_eviction_is_always_reported(*, is_running: bool) -> None:
    """Its Event may have expired, and the PodGroup may run again."""
    cluster = TrainJobCluster()
    record = {
        "at": _THEN,
        "action": "reclaim",
        "rule": "30",
        "queue": "guests",
        "for": "default/b",
        "forQueue": "owners",
        "gpus": 16,
        "lostGpuSeconds": 7200,
        "evictions": 3,
        "message": "default/b gets its resources",
    }
    annotations = {_EVICTED: _THEN, "trainer-kai.dev/last-eviction": json.dumps(record)}
    cluster.groups[""]["metadata"]["annotations"] = annotations
    cluster.condition(*NO_ROOM_REASONS)
    if is_running:
        cluster.running("node", 4)
    else:
        cluster.pods("node", 4)

    (note,) = (await cluster.why()).notes
    assert note == (
        f"PodGroup {GROUP} was evicted at {_THEN} (action reclaim, rule 30): default/b gets its"
        " resources. It used 16 GPU of queue guests, lost 7200 GPU-seconds of work, and was evicted"
        " 3 times so far"
    )


async def test_a_recorded_eviction_is_cut() -> None:
    """The annotation may have been written by another client."""
    cluster = TrainJobCluster()
    record = {"at": _THEN, "message": "a\nb" + "c" * 5000}
    cluster.groups[""]["metadata"]["annotations"] = {
        "trainer-kai.dev/last-eviction": json.dumps(record)
    }
    cluster.condition(*NO_ROOM_REASONS)

    (note,) = (await cluster.why()).notes
    assert ": a bccc" in note
    assert len(note) < 1500


@pytest.mark.parametrize(("reason", "nominated"), [("NoCapacity", 0), ("WaitingForVictims", 4)])
async def test_a_withdrawn_nomination_does_not_count(reason: str, nominated: int) -> None:
    """It stays on the pods until they get another; the reason says whether it still counts."""
    cluster = TrainJobCluster()
    cluster.pods("node", 4, status={"nominatedNodeName": "node-a"})
    cluster.condition((reason, "so it is"))

    (podgroup,) = (await cluster.why()).podgroups

    assert (podgroup.counts.nominated, podgroup.counts.waiting) == (nominated, 4 - nominated)
