"""JobSets for tests: one from short words, and any that hypothesis can think of."""

from collections.abc import Mapping
from typing import Any, Final

from hypothesis import strategies as st

from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.trainjob import Runtime, TrainJob
from trainer_kai.policy.expand.jobset import Expansion, expand

UID: Final = "11111111-2222-3333-4444-555555555555"
NAMES: Final = ("a", "a-replica-0", "b", "c", "d", f"e{'x' * 54}")
_MIN: Final = "kai.scheduler/batch-min-member"
STEP: Final = "trainer.kubeflow.org/trainjob-ancestor-step"
Obj = dict[str, Any]


def rjob(name: str, *after: str, **fields: Any) -> Obj:
    """Return a replicatedJob: *after* is what it depends on, such as "node Ready".

    Keywords are replicas, parallelism, completions, mode, step, scheduler, minimum and pod.
    """
    spec: Obj = {"template": {"spec": {"schedulerName": fields.get("scheduler", "kai-scheduler")}}}
    spec["template"]["spec"] |= fields.get("pod", {})
    for field in ("parallelism", "completions"):
        if fields.get(field, 1) is not None:
            spec[field] = fields.get(field, fields.get("parallelism", 1))
    if "mode" in fields:
        spec["completionMode"] = fields["mode"]
    meta: Obj = {"labels": {}, "annotations": dict(fields.get("annotations", {}))}
    if fields.get("step"):
        meta["labels"][STEP] = fields["step"]
    if fields.get("minimum"):
        meta["annotations"][_MIN] = fields["minimum"]
    job: Obj = {
        "name": name,
        "replicas": fields.get("replicas", 1),
        "template": {"metadata": meta, "spec": spec},
    }
    if after:
        pairs = (one.split() for one in after)
        job["dependsOn"] = [{"name": before, "status": status} for before, status in pairs]
    return job


def jobset(*jobs: Mapping[str, Any], order: str = "AnyOrder", **metadata: Any) -> JobSet:
    meta = {"name": "job", "namespace": "default", "uid": UID, **metadata}
    spec = {"replicatedJobs": jobs, "startupPolicy": {"startupPolicyOrder": order}}
    return decode(JobSet, encode({"metadata": meta, "spec": spec}))


@st.composite
def any_jobset(draw: st.DrawFn) -> JobSet:
    """Return any JobSet that is let in, and some that are not: circles and edges drawn twice."""
    in_order = draw(st.integers(0, 5)) == 0
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, len(NAMES)))]
    jobs = []
    for number, name in enumerate(names):
        after: list[str] = []
        if number and not in_order:
            before = st.sampled_from(names[: number + (draw(st.integers(0, 19)) == 0)])
            edge = st.tuples(before, st.sampled_from(["Ready", "Complete"]))
            after = [" ".join(pair) for pair in draw(st.lists(edge, max_size=3))]
        is_plain = draw(st.booleans())
        jobs.append(rjob(name, *after, **({} if is_plain else _fields(draw))))
    minimum = draw(st.sampled_from([None, None, None, None, "1", "2", "9", "0", "x"]))
    annotations = {_MIN: minimum} if minimum else {}
    order = "InOrder" if in_order else "AnyOrder"
    return jobset(*jobs, order=order, annotations=annotations)


def _fields(draw: st.DrawFn) -> Obj:
    fields: Obj = {
        "replicas": draw(st.sampled_from([1, 1, 1, 1, 2, 2, 0, -1])),
        "parallelism": draw(st.sampled_from([1, 1, 1, 2, 3, None, 0])),
        "completions": draw(st.sampled_from([1, 2, 2, 3, 4, None, 0])),
        "step": draw(st.sampled_from([None, None, None, "dataset-initializer", "trainer"])),
        "scheduler": draw(st.sampled_from(["kai-scheduler"] * 4 + ["", "default-scheduler"])),
        "minimum": draw(st.sampled_from([None] * 4 + ["1", "2", "9", "0", "x"])),
    }
    is_work_queue = draw(st.integers(0, 3)) == 0
    if is_work_queue or fields["completions"] is None:
        fields["mode"] = "NonIndexed"
    if fields["completions"] is None:
        fields["minimum"] = None  # what was asked for cannot come again after the first success
    return fields


def expanded(trainjob: Obj, runtime: Obj) -> Expansion:
    """Expand what was written as plain objects; a recording says which uid it left out."""
    metadata = {"uid": "uid-of-the-trainjob", **trainjob.get("metadata", {"name": "job"})}
    job = decode(TrainJob, encode({**trainjob, "metadata": metadata}))
    return expand(job, decode(Runtime, encode({"metadata": {"name": "r"}, **runtime})))
