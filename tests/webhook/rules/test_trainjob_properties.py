"""What holds for every TrainJob: its JobSet is foreseen, and no update is validated twice."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.size import examples
from tests.webhook.objects import BUNDLED, QUEUE, Obj
from tests.webhook.trainjobs import (
    patch,
    pod_patch,
    submitted,
    trainjob_context,
    validated_trainjob,
)
from trainer_kai.api.names import EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY
from trainer_kai.api.trainjob import Runtime as WholeRuntime
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.policy.expand.jobset import expand
from trainer_kai.policy.queueing.queue_resolution import RequestedQueues, resolve_queue
from webhook.admission.review import NO_OBJECTIONS
from webhook.cache.runtimes import SlimRuntimeSpec, summarize_runtime
from webhook.rules.jobset_deny import deny_exclusive_placement, other_schedulers
from webhook.rules.trainjob_queue_sources import SlimRuntimePatch, resolve_trainjob_queues
from webhook.rules.trainjob_validate import TrainJobValidation

QUEUES = st.sampled_from(["", "a", "b", "Team_C", "x" * 64])
LABELS = st.dictionaries(st.sampled_from([QUEUE, "other"]), QUEUES)
PLACING = st.dictionaries(
    st.sampled_from([EXCLUSIVE_TOPOLOGY, NODE_SELECTOR_STRATEGY]), st.just("rack")
)
METADATA = st.fixed_dictionaries({}, optional={"labels": LABELS, "annotations": PLACING})
NAMES = ("a", "b", "c")
POLICIES: st.SearchStrategy[Obj | None] = st.none() | st.dictionaries(
    st.sampled_from(["coscheduling", "volcano"]), st.just({})
)


@st.composite
def jobs(draw: st.DrawFn, name: str) -> Obj:
    scheduler = draw(st.sampled_from(["", "kai-scheduler", "volcano"]))
    pods = {"metadata": draw(METADATA), "spec": {"schedulerName": scheduler}}
    return {"name": name, "template": {"metadata": draw(METADATA), "spec": {"template": pods}}}


@st.composite
def runtimes(draw: st.DrawFn) -> Obj:
    template = {
        "metadata": draw(METADATA),
        "spec": {"replicatedJobs": [draw(jobs(name)) for name in NAMES[: draw(st.integers(1, 3))]]},
    }
    spec = {"podGroupPolicy": draw(POLICIES), "template": template}
    return {"metadata": {"name": "torch"}, "spec": spec}


@st.composite
def patches(draw: st.DrawFn) -> list[Obj]:
    drawn = []
    for _ in range(draw(st.integers(0, 2))):
        overlay = []
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
            job = pod_patch(name, **draw(METADATA))
            job["template"]["metadata"] = draw(METADATA)
            overlay.append(job)
        drawn.append(patch(*overlay, **draw(METADATA)))
    return drawn


TRAINJOBS = st.builds(
    lambda labels, over, suspend: submitted(labels, runtimePatches=over, suspend=suspend),
    LABELS,
    patches(),
    st.booleans(),
)


@settings(max_examples=examples(50))
@given(job=TRAINJOBS, runtime=runtimes(), namespace=LABELS)
def test_it_foresees_the_jobset_that_is_built(job: Obj, runtime: Obj, namespace: Obj) -> None:
    """The queue that wins, other schedulers, and exclusive placement: as if it were there."""
    whole = msgspec.convert(runtime, WholeRuntime)
    built = expand(msgspec.convert(job, TrainJob), whole).jobset
    templates = tuple(
        it.template.spec.template.metadata.labels for it in built.spec.replicated_jobs
    )
    asked = RequestedQueues(
        job["metadata"]["labels"], "", built.metadata.labels, templates, namespace
    )

    found = resolve_trainjob_queues(
        job["metadata"]["labels"],
        msgspec.convert(job["spec"]["runtimePatches"], tuple[SlimRuntimePatch, ...]),
        summarize_runtime(msgspec.convert(runtime["spec"], SlimRuntimeSpec)),
        namespace,
        "default-queue",
    )

    ours = dict(enumerate(built.spec.replicated_jobs))
    foreseen = dict(enumerate(found.jobset.spec.replicated_jobs))
    assert found.choice == resolve_queue(asked, "default-queue")
    assert other_schedulers(found.jobset) == other_schedulers(built)
    assert deny_exclusive_placement(found.jobset, foreseen) == deny_exclusive_placement(built, ours)


@settings(max_examples=examples(50))
@given(job=TRAINJOBS, runtime=runtimes(), suspend=st.booleans())
def test_suspending_or_resuming_is_not_validated(job: Obj, runtime: Obj, suspend: bool) -> None:
    """Whatever the TrainJob and its runtime are, and whatever would be refused today."""
    kept = summarize_runtime(msgspec.convert(runtime["spec"], SlimRuntimeSpec))
    later = {**job, "spec": {**job["spec"], "suspend": suspend}}

    assert validated_trainjob(
        later, trainjob_context(kept, denies_unknown_queues=True), job
    ) == TrainJobValidation(NO_OBJECTIONS)


@settings(max_examples=examples(50))
@given(job=TRAINJOBS, runtime=runtimes())
def test_it_is_validated_alike_each_time(job: Obj, runtime: Obj) -> None:
    """The same TrainJob gets the same answer, and a refusal is never without words."""
    context = trainjob_context(summarize_runtime(msgspec.convert(runtime["spec"], SlimRuntimeSpec)))
    first = validated_trainjob(job, context)

    assert validated_trainjob(job, context) == first
    assert all(it.message and it.code == 422 for it in first.result.denials)
    assert BUNDLED.default_queue not in {
        it.queue for it in first.requested_queues if it.is_user_choice
    }
