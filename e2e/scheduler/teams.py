"""Two teams on one chain: queues that own GPUs, and TrainJobs that borrow and are asked to go."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NamedTuple

from e2e.cluster.cluster import Cluster
from e2e.cluster.nodes import GPU
from e2e.cluster.resources import CLUSTER_RUNTIMES, JOBS, JOBSETS, PODS, TRAINJOBS, Obj
from e2e.cluster.stages import RUN_SECONDS
from e2e.cluster.timeline import Moment, State, Timeline
from e2e.cluster.trainjobs import Submission, condition
from e2e.front.install import QUEUES
from e2e.front.ours import QUEUE, finishing_pods
from e2e.front.queues import grant_queue_use, queue

__all__ = [
    "WATCHED",
    "Job",
    "bare_pod",
    "complete",
    "end_stage_now",
    "events_of",
    "failures",
    "has_failed",
    "has_no_annotation",
    "has_no_running_pods",
    "has_node",
    "is_gone",
    "is_suspended",
    "kubelets_paused",
    "let_finish",
    "make_queue",
    "on_nodes",
    "pods_created",
    "resumptions",
    "submit",
    "suspensions",
    "was_suspended",
]

WATCHED: Final = (TRAINJOBS, JOBSETS, JOBS, PODS)
_RUNTIME: Final = "torch-distributed"


class Job(NamedTuple):
    """A TrainJob of pods with one GPU each, or as many as it says."""

    name: str
    queue: str
    nodes: int
    run_for: str = "600s"
    gpus: int = 1
    priority: str = ""
    labels: Mapping[str, str] = MappingProxyType({})


async def make_queue(cluster: Cluster, name: str, gpus: int, *namespaces: str) -> None:
    """Make a closed queue that owns so many GPUs and may borrow any; namespaces may use it."""
    await cluster.api.request("POST", QUEUES.path(), queue(name, gpus))
    await grant_queue_use(cluster, name, *namespaces)


async def submit(cluster: Cluster, room: str, job: Job, manager: str = "") -> Obj:
    """Create a TrainJob, or apply it in somebody's name; return it as it was submitted."""
    installed = await cluster.api.get(CLUSTER_RUNTIMES, None, _RUNTIME)
    labels = {QUEUE: job.queue, **job.labels}
    if job.priority:
        labels["priorityClassName"] = job.priority
    patches = finishing_pods(installed, job.run_for)
    given = Submission(job.name, _RUNTIME, room, job.nodes, job.gpus, patches, labels=labels)
    manifest = given.trainjob()
    # As it is read back: whoever applies it anew must not seem to change it.
    manifest["spec"]["trainer"]["resourcesPerNode"]["limits"] = {GPU: str(job.gpus)}
    await (cluster.api.apply(manifest, manager) if manager else cluster.api.create(manifest))
    return manifest


@contextmanager
def kubelets_paused(cluster: Cluster) -> Iterator[None]:
    """Let no pod begin, end or leave meanwhile: what would last a moment lasts until this ends."""
    kubelets = cluster.process("kwok")
    kubelets.pause()
    try:
        yield
    finally:
        kubelets.resume()


async def end_stage_now(cluster: Cluster, pods: Iterable[Obj], stage: str = RUN_SECONDS) -> None:
    """Let pods that wait for the end of a stage wait no longer."""
    for pod in pods:
        meta = pod["metadata"]
        if stage in meta["annotations"]:
            fields = {"metadata": {"annotations": {stage: "0s"}}}
            await cluster.api.merge(PODS, meta["namespace"], meta["name"], fields)


async def let_finish(cluster: Cluster, seen: Timeline, name: str, nodes: int) -> None:
    """Wait until a TrainJob runs, and let it be Complete."""
    await seen.settle()  # what ran before is not what runs now
    await seen.until(on_nodes(name, nodes), f"{name} runs", 60)
    await end_stage_now(cluster, _running(seen.state, name))
    await seen.until(complete(name), f"{name} is Complete", 60)


def bare_pod(room: str, name: str, queue: str, gpus: int) -> Obj:
    """Return a pod on its own."""
    limits = {GPU: str(gpus)}
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": room, "labels": {QUEUE: queue}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
    }


def has_node(name: str) -> Callable[[State], bool]:
    """Return a test whether a pod of this name has a node."""
    return lambda state: any(
        key.name == name and bool(it["spec"].get("nodeName"))
        for key, it in state.items()
        if key.resource == PODS
    )


def has_failed(name: str) -> Callable[[State], bool]:
    """Return a test whether a TrainJob has failed."""
    return lambda state: condition(_find(state, name), "Failed")


def has_no_annotation(name: str, annotation: str) -> Callable[[State], bool]:
    """Return a test whether a TrainJob does not carry an annotation any more."""
    return lambda state: annotation not in _find(state, name)["metadata"].get("annotations", {})


def on_nodes(name: str, count: int) -> Callable[[State], bool]:
    """Return a test whether so many pods of a TrainJob run and none is going."""

    def look(state: State) -> bool:
        return len(_running(state, name)) == count

    return look


def has_no_running_pods(name: str) -> Callable[[State], bool]:
    """Return a test whether no pod of a TrainJob runs on that is not going."""
    return on_nodes(name, 0)


def is_gone(name: str) -> Callable[[State], bool]:
    """Return a test whether a TrainJob has no pods, not even such as are going."""
    return lambda state: (
        not any(_is_pod_of(it, name) for key, it in state.items() if key.resource == PODS)
    )


def complete(*names: str) -> Callable[[State], bool]:
    """Return a test whether these TrainJobs are Complete; one that failed ends the test."""

    def look(state: State) -> bool:
        jobs = [_find(state, name) for name in names]
        failed = [name for name, it in zip(names, jobs, strict=True) if condition(it, "Failed")]
        assert not failed, failed
        return all(condition(it, "Complete") for it in jobs)

    return look


def is_suspended(name: str) -> Callable[[State], bool]:
    """Return a test whether a TrainJob is suspended."""
    return lambda state: bool(_find(state, name).get("spec", {}).get("suspend"))


def was_suspended(seen: Timeline, name: str, times: int = 1) -> Callable[[State], bool]:
    """Return a test whether a TrainJob was suspended so often, even if it is resumed by now."""
    return lambda _: suspensions(seen.moments, name) >= times


def suspensions(history: Sequence[Moment], name: str) -> int:
    """Return how often a TrainJob was suspended."""
    seen = [bool(it.obj["spec"].get("suspend")) for it in _moments_of(history, name)]
    return sum(now and not before for before, now in zip([False, *seen], seen, strict=False))


def resumptions(history: Sequence[Moment], name: str) -> int:
    """Return how often it was resumed."""
    seen = [bool(it.obj["spec"].get("suspend")) for it in _moments_of(history, name)]
    return sum(before and not now for before, now in zip([False, *seen], seen, strict=False))


def pods_created(history: Sequence[Moment], name: str) -> int:
    """Return how many pods a TrainJob had in all."""
    pods = (it.obj for it in history if it.key.resource == PODS)
    return len({it["metadata"]["uid"] for it in pods if _is_pod_of(it, name)})


def failures(state: State, name: str) -> tuple[int, int]:
    """Return what counts against a TrainJob: failed pods of its Jobs, restarts of its JobSet."""
    jobs = [it for key, it in state.items() if key.resource == JOBS and _is_pod_of(it, name)]
    sets = [it for key, it in state.items() if key.resource == JOBSETS and key.name == name]
    failed = sum(it.get("status", {}).get("failed", 0) for it in jobs)
    return failed, sum(it.get("status", {}).get("restarts", 0) for it in sets)


async def events_of(cluster: Cluster, room: str, name: str) -> dict[str, str]:
    """Return what was told of a TrainJob: reason → the last words."""
    answer = await cluster.api.request("GET", f"/api/v1/namespaces/{room}/events")
    return {
        it["reason"]: it.get("message", "")
        for it in answer["items"]
        if it["involvedObject"]["kind"] == "TrainJob" and it["involvedObject"]["name"] == name
    }


def _moments_of(history: Sequence[Moment], name: str) -> list[Moment]:
    return [it for it in history if it.key.resource == TRAINJOBS and it.key.name == name]


def _find(state: State, name: str) -> Obj:
    found = (it for key, it in state.items() if key.resource == TRAINJOBS and key.name == name)
    return next(found, {})


def _is_pod_of(obj: Obj, name: str) -> bool:
    labels = obj["metadata"].get("labels", {})
    return bool(labels.get("jobset.sigs.k8s.io/jobset-name") == name)


def _running(state: State, name: str) -> list[Obj]:
    pods = [it for key, it in state.items() if key.resource == PODS and _is_pod_of(it, name)]
    return [
        it
        for it in pods
        if it["status"].get("phase") == "Running" and not it["metadata"].get("deletionTimestamp")
    ]
