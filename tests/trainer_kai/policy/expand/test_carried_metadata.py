"""Which pods of a TrainJob get the share of a GPU, or the segments, that it requests."""

from typing import Any, Final

import pytest

from tests.support.case import Case, ids
from tests.support.documents import documents
from tests.support.repository import ROOT
from tests.trainer_kai.policy.specs import STEP, expanded, rjob
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.trainjob import MLPolicy, MPIPolicy
from trainer_kai.policy.expand.jobset import (
    carried_to_pods,
    launcher_trains,
    with_carried_metadata,
)

CONTAINER: Final = "gpu-fraction-container-name"
HALF: Final = {"gpu-fraction": "0.5"}
ALL: Final = {**HALF, "gpu-fraction-num-devices": "2", CONTAINER: "node", "mps": "true"}
Obj = dict[str, Any]


def job(name: str, step: str = "", *containers: str, own: Obj | None = None) -> Obj:
    pods = {"containers": [{"name": it} for it in containers or ("node",)]}
    found: Obj = rjob(name, pod=pods)
    found["template"]["metadata"] = {"labels": {STEP: step} if step else {}}
    found["template"]["spec"]["template"]["metadata"] = {"annotations": own or {}}
    return found


def jobset(*jobs: Obj) -> JobSet:
    whole = {"metadata": {"name": "job"}, "spec": {"replicatedJobs": list(jobs)}}
    return decode(JobSet, encode(whole))


def carried(whole: JobSet, given: Obj, *, with_launcher: bool = True) -> dict[str, Obj]:
    jobs = whole.spec.replicated_jobs
    found = carried_to_pods(jobs, given, with_launcher=with_launcher)
    return {jobs[i].name: dict(added) for i, added in found}


def many(own: Obj | None = None) -> Obj:
    """Return a replicatedJob with 16 pods."""
    found = job("node", own=own)
    found["template"]["spec"] |= {"parallelism": 16, "completions": 16}
    return found


NODE: Final = job("node", "trainer")
MANY: Final = many()
SEGMENTS: Final = {
    "kai.scheduler/segment-size": "4",
    "kai.scheduler/segment-topology-required-placement": "rack",
    "kai.scheduler/segment-topology-preferred-placement": "host",
}
MPI: Final = (job("node"), job("launcher", "trainer"))
# replicatedJobs, and annotations of the TrainJob -> what the pods of which get
CARRIED: Final[list[Case[tuple[tuple[Obj, ...], Obj], dict[str, Obj]]]] = [
    Case("nothing requested", ((NODE,), {"team": "a"}), {}),
    Case("all that belongs to a share", ((NODE,), {**ALL, "team": "a"}), {"node": ALL}),
    Case(
        "not initializers",
        ((job("node", "dataset-initializer"), job("t", "trainer")), HALF),
        {"t": HALF},
    ),
    Case("not other parts", ((job("extra"), NODE), HALF), {"node": HALF}),
    Case(
        "segments, of several pods",
        ((MANY, job("launcher", "trainer")), SEGMENTS),
        {"node": SEGMENTS},
    ),
    Case("no segments for one pod", ((NODE,), {**SEGMENTS, **HALF}), {"node": HALF}),
    Case(
        "segments of the runtime stay",
        ((many({"kai.scheduler/segment-size": "8"}),), SEGMENTS),
        {},
    ),
    Case("workers and launcher of MPI", (MPI, HALF), {"node": HALF, "launcher": HALF}),
    Case(
        "two that train",
        ((job("a", "trainer"), job("b", "trainer")), HALF),
        {"a": HALF, "b": HALF},
    ),
    Case("a template with a share", ((job("node", "trainer", own={"gpu-memory": "9"}),), HALF), {}),
    Case(
        "a template with a part of it",
        ((job("node", "trainer", own={CONTAINER: "x"}),), ALL),
        {"node": {name: it for name, it in ALL.items() if name != CONTAINER}},
    ),
    Case(
        "the container that trains",
        ((job("node", "trainer", "side", "node"),), HALF),
        {"node": {CONTAINER: "node", **HALF}},
    ),
    Case(
        "another container",
        ((job("node", "trainer", "side", "node"),), {**HALF, CONTAINER: "side"}),
        {"node": {CONTAINER: "side", **HALF}},
    ),
    Case(
        "no container that trains",
        ((job("node", "trainer", "a", "b"),), HALF),
        {"node": HALF},
    ),
]


@pytest.mark.parametrize("case", CARRIED, ids=ids)
def test_what_pods_get(case: Case[tuple[tuple[Obj, ...], Obj], dict[str, Obj]]) -> None:
    """The pods that train; and lint sees the JobSet as admission writes it."""
    jobs, given = case.given
    whole = jobset(*jobs)

    assert carried(whole, given) == case.want
    copied = with_carried_metadata(whole, {}, given)
    for before, after in zip(whole.spec.replicated_jobs, copied.spec.replicated_jobs, strict=True):
        own = before.template.spec.template.metadata.annotations
        wanted = {**own, **case.want.get(before.name, {})}
        assert after.template.spec.template.metadata.annotations == wanted
    assert carried(copied, given) == {}


def test_segments_of_a_runtime() -> None:
    """They come before those of the TrainJob, one by one."""
    size, required, _ = SEGMENTS
    obj = {"metadata": {"name": "job", "annotations": {size: "8"}}}
    whole = decode(JobSet, encode({**obj, "spec": {"replicatedJobs": [MANY]}}))

    copied = with_carried_metadata(whole, {}, {size: "4", required: "rack"})

    pods = copied.spec.replicated_jobs[0].template.spec.template
    assert pods.metadata.annotations == {size: "8", required: "rack"}
    assert copied.metadata.annotations == {size: "8"}


def test_a_launcher_that_is_no_node_gets_none() -> None:
    """It only starts the workers; without workers it is no launcher."""
    assert carried(jobset(*MPI), HALF, with_launcher=False) == {"node": HALF}
    assert carried(jobset(job("launcher", "trainer")), HALF, with_launcher=False) == {
        "launcher": HALF
    }
    assert [
        launcher_trains(policy)
        for policy in (
            None,
            MLPolicy(),
            MLPolicy(mpi=MPIPolicy(run_launcher_as_node=True)),
            MLPolicy(mpi=MPIPolicy()),
        )
    ] == [True, True, True, False]


RUNTIMES: Final = sorted((ROOT / "tests" / "fixtures" / "runtimes").glob("*.yaml"))


@pytest.mark.parametrize("path", RUNTIMES, ids=lambda path: path.stem)
def test_runtimes_of_trainer(path: Any) -> None:
    """All that trains in them gets the share, and nothing else does."""
    [runtime] = documents(path)
    built = expanded({"spec": {"runtimeRef": {"name": "r"}}}, runtime).jobset

    names = {it.name for it in built.spec.replicated_jobs}

    assert set(carried(built, HALF)) == names & {"node", "launcher"}
