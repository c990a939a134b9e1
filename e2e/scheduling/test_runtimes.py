"""Every runtime that Trainer ships, through all its stages to Complete, by our processes.

All TrainJobs are on the chain at the same time.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from e2e.cluster.audit import Write
from e2e.cluster.nodes import GPU
from e2e.cluster.resources import CLUSTER_RUNTIMES, EVENTS, JOBSETS, PODS, TRAINJOBS, Obj, Resource
from e2e.cluster.timeline import Moment, State, replay
from e2e.cluster.trainjobs import Submission, condition
from e2e.fixtures.install import PODGROUPS
from e2e.fixtures.installation import Installation
from e2e.fixtures.podgroups import (
    PODGROUP,
    QUEUE,
    SUBGROUP,
    finishing_pods,
    groups_in,
    podgroup_summary,
)

_MPI: Final = [["node"], ["launcher"]]  # the launcher is a node as well
_INITIALIZERS: Final = ("dataset-initializer", "model-initializer")
# runtime -> its stages, by the replicatedJobs that exist together
_STAGES: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    "torch-distributed": [["node"]],
    "jax-distributed": [["node"]],
    "xgboost-distributed": [["node"]],
    "deepspeed-distributed": _MPI,
    "mlx-distributed": _MPI,
    "torch-distributed-with-cache": [["dataset-initializer"], ["node"]],
    "torchtune-llama3.2-1b": [_INITIALIZERS, ["node"]],
    "torchtune-llama3.2-3b": [_INITIALIZERS, ["node"]],
    "torchtune-qwen2.5-1.5b": [_INITIALIZERS, ["node"]],
}
_ONE_INITIALIZER: Final = ["1 dataset-initializer"]
_TWO_INITIALIZERS: Final = ["1 dataset-initializer", "1 model-initializer"]
# runtime -> nodes -> its groups: who has to be there, how many of them
_GROUPS: Final[Mapping[str, Mapping[int, Sequence[str]]]] = {
    "torch-distributed": {1: ["1 node"], 4: ["4 node"]},
    "jax-distributed": {1: ["1 node"], 4: ["4 node"]},
    "xgboost-distributed": {1: ["1 node"], 4: ["4 node"]},
    "deepspeed-distributed": {1: ["1 node + 1 launcher"], 4: ["3 node + 1 launcher"]},
    "mlx-distributed": {1: ["1 node + 1 launcher"], 4: ["3 node + 1 launcher"]},
    "torch-distributed-with-cache": {
        1: [*_ONE_INITIALIZER, "1 node"],
        4: [*_ONE_INITIALIZER, "4 node"],
    },
    "torchtune-llama3.2-1b": {1: [*_TWO_INITIALIZERS, "1 node"], 4: [*_TWO_INITIALIZERS, "4 node"]},
    "torchtune-llama3.2-3b": {4: [*_TWO_INITIALIZERS, "4 node"]},
    "torchtune-qwen2.5-1.5b": {4: [*_TWO_INITIALIZERS, "4 node"]},
}
_KINDS: Final = (TRAINJOBS, JOBSETS, PODGROUPS, PODS)
_COMPLETE_S: Final = 120.0
_WEBHOOK_WRITERS: Final = ("trainer-kai-webhook", "trainer-kai-podgrouper")
_RESERVED: Final = "trainer-kai.dev/reserved"
_LABELS: Final = {QUEUE: "default-queue"}
_JOBSET: Final = "jobset.sigs.k8s.io/jobset-name"
_SUBGROUP: Final = "jobset.sigs.k8s.io/replicatedjob-name"


class _Run(NamedTuple):
    """One TrainJob of a shipped runtime, and all that happened to its objects."""

    runtime: str
    nodes: int
    history: Sequence[Moment]

    def of(self, resource: Resource) -> list[Obj]:
        """Return the last state of each object of a kind."""
        last = {it.key: it.obj for it in self.history if it.key.resource == resource}
        return list(last.values())


async def test_every_shipped_runtime_is_covered(installation: Installation) -> None:
    """A runtime that a new Trainer ships must be added here."""
    installed, _ = await installation.cluster.api.list(CLUSTER_RUNTIMES)

    assert sorted(it["metadata"]["name"] for it in installed) == sorted(_STAGES) == sorted(_GROUPS)


async def test_every_shipped_runtime_is_complete(
    installation: Installation, own_namespace: str, stage_table: list[tuple[str, ...]]
) -> None:
    """Stage after stage, in the expected groups, with a write for each group and one Event."""
    api = installation.cluster.api
    jobs = {
        f"job-{number}": (runtime, nodes)
        for number, (runtime, nodes) in enumerate((it, n) for it in _GROUPS for n in _GROUPS[it])
    }
    mark = await installation.cluster.audit.mark()
    async with installation.cluster.timeline(*_KINDS, namespace=own_namespace) as seen:
        for name, (runtime, nodes) in jobs.items():
            patches = finishing_pods(await api.get(CLUSTER_RUNTIMES, None, runtime))
            job = Submission(name, runtime, own_namespace, nodes, 1, patches, labels=_LABELS)
            await api.create(job.trainjob())
        await seen.until(lambda state: _completed(state) == jobs.keys(), "all are", _COMPLETE_S)
        await seen.until(
            lambda state: not any(map(_reserved, groups_in(state))), "no place is held"
        )
    history = seen.history()
    runs = [_Run(*jobs[name], [it for it in history if _is_of(it, name)]) for name in jobs]
    stage_table += map(_row, runs)
    written = await installation.cluster.audit.writes(mark)
    ours = [
        it for it in written if it.user.endswith(_WEBHOOK_WRITERS) and it.namespace == own_namespace
    ]
    made = [it for it in ours if it.status == 201]
    # A PodGroup is applied a second time where the first is not heard of yet; that changes nothing.
    repeated = [it for it in ours if it.status == 200]

    events = [it for it in made if it.resource == EVENTS.plural]  # the log has no names of these
    counted = {name: sum(_is_about(it, name) for it in made) for name in jobs}
    groups = {name: len(run.of(PODGROUPS)) for name, run in zip(jobs, runs, strict=True)}

    assert {run[:2]: found for run in runs if (found := _faults(run))} == {}
    assert counted == groups
    assert len(events) <= len(jobs)
    assert sum(counted.values()) + len(events) == len(made)
    assert {it.resource for it in repeated} <= {PODGROUPS.plural}
    assert len(repeated) <= sum(groups.values())
    assert {it["metadata"]["generation"] for run in runs for it in run.of(PODGROUPS)} == {1}


def _completed(state: State) -> set[str]:
    found = (it for key, it in state.items() if key.resource == TRAINJOBS)
    return {it["metadata"]["name"] for it in found if condition(it, "Complete")}


def _is_of(moment: Moment, job: str) -> bool:
    """Say whether a moment is of a TrainJob, or of what was made for it."""
    meta = moment.obj["metadata"]
    return job in (meta["name"], meta.get("labels", {}).get(_JOBSET))


def _is_about(write: Write, job: str) -> bool:
    """Say whether a write is of a TrainJob's group or pod."""
    return write.name.removeprefix("pg-").startswith(f"{job}-") or write.name == job


def _faults(run: _Run) -> list[str]:
    """Say what of a run is not as it should be."""
    groups = run.of(PODGROUPS)
    found = [*_badly_grouped(run), *_too_early(run), *_outside_reservation(run)]
    if sorted(map(podgroup_summary, groups)) != sorted(_GROUPS[run.runtime][run.nodes]):
        found.append(f"its groups are {sorted(map(podgroup_summary, groups))}")
    if any(group["spec"]["queue"] != _LABELS[QUEUE] for group in groups):
        found.append("a group is in another queue")
    wanted = max(run.nodes, len(_MPI)) if _STAGES[run.runtime] == _MPI else run.nodes
    if (gpus := sum(map(_gpus_of, run.of(PODS)))) != wanted:
        found.append(f"its pods asked for {gpus} GPUs")
    return found


def _badly_grouped(run: _Run) -> list[str]:
    """Return the pods that at some moment did not name a PodSet of their group."""
    podsets = {
        (group["metadata"]["name"], one["name"])
        for group in run.of(PODGROUPS)
        for one in group["spec"]["subGroups"]
        if "minMember" in one
    }
    pods = [it.obj["metadata"] for it in run.history if it.key.resource == PODS]
    return [
        f"{pod['name']} is in no leaf of a group"
        for pod in pods
        if (pod["annotations"].get(PODGROUP), pod["labels"].get(SUBGROUP)) not in podsets
    ]


def _too_early(run: _Run) -> list[str]:
    """Return the pods that were created before the stage ahead of theirs was ready or done."""
    stages = _STAGES[run.runtime]
    stage_of = {name: number for number, stage in enumerate(stages) for name in stage}
    early = []
    for moment, state in replay(run.history):
        if moment.type != "ADDED" or moment.key.resource != PODS:
            continue
        ahead = stage_of[_subgroup_of(moment.obj)] - 1
        pods = [obj for key, obj in state.items() if key.resource == PODS]
        before = [pod for pod in pods if stage_of[_subgroup_of(pod)] == ahead]
        if ahead >= 0 and not (before and all(map(_is_ready_or_done, before))):
            early.append(f"{moment.key.name} came before the stage ahead of it was ready")
    return early


def _outside_reservation(run: _Run) -> list[str]:
    """Return the launchers whose node was not held for them."""
    held = [
        json.loads(reserved).get("launcher-replica-0", {})
        for moment in run.history
        if moment.key.resource == PODGROUPS
        if (reserved := _reserved(moment.obj))
    ]
    launchers = [pod for pod in run.of(PODS) if _subgroup_of(pod) == "launcher"]
    return [
        f"{pod['metadata']['name']} is on {pod['spec']['nodeName']}, held was {held}"
        for pod in launchers
        if {"nodes": {pod["spec"]["nodeName"]: 1}, "cause": "anticipated"} not in held
    ]


def _reserved(group: Obj) -> str:
    """Return what a group holds for pods that do not exist yet."""
    written: str = group["metadata"].get("annotations", {}).get(_RESERVED, "")
    return written


def _is_ready_or_done(pod: Obj) -> bool:
    return condition(pod, "Ready") or pod["status"]["phase"] == "Succeeded"


def _subgroup_of(pod: Obj) -> str:
    name: str = pod["metadata"]["labels"][_SUBGROUP]
    return name


def _gpus_of(pod: Obj) -> int:
    """Return what the trainer of a pod asks for."""
    trainers = [it for it in pod["spec"]["containers"] if it["name"] == "node"]
    return sum(int(it["resources"].get("limits", {}).get(GPU, 0)) for it in trainers)


def _row(run: _Run) -> tuple[str, ...]:
    groups = run.of(PODGROUPS)
    stages: dict[str, list[str]] = {}
    for group in sorted(groups, key=_stage):
        stages.setdefault(_stage(group).partition(" ")[0], []).append(podgroup_summary(group))
    podgroups = " → ".join(", ".join(of) for of in stages.values())
    took = f"{run.history[-1].at_s - run.history[0].at_s:.1f} s"
    pods = len(run.of(PODS))
    return (run.runtime, f"{run.nodes}", f"{len(groups)}", podgroups, f"{pods}", took)


def _stage(group: Obj) -> str:
    stage: str = group["metadata"]["annotations"]["trainer-kai.dev/stage"]
    return stage
