"""JobSets that are made: what is filled in, what is written over, what is left alone."""

import json
from typing import Any, NamedTuple

import pytest

from tests.support.case import Case, ids
from tests.webhook.objects import (
    BUNDLED,
    CONTEXT,
    EXTERNAL,
    GANG,
    JOBSET,
    OWNER,
    QUEUE,
    Obj,
    WrittenFields,
    applied,
    job,
    jobset,
    jobset_context,
    managed,
    recorded,
    request,
    reviewed_jobset,
    template,
    written,
)
from trainer_kai.api.names import FOLLOWS_TRAINJOB
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import UNCHANGED
from webhook.rules.jobset_mutate import JobSetContext, read_jobset

KAI = "kai-scheduler"
MARKED = {"trainer-kai.dev/admitted": "v1"}
SKIP = "kai.scheduler/skip-podgrouper"
READY: Obj = {"dependsOn": [{"name": "node", "status": "Ready"}]}
COMPLETE: Obj = {"dependsOn": [{"name": "node", "status": "Complete"}]}


class JobSetCase(NamedTuple):
    """A JobSet, what is known of its TrainJob, and what the site decides."""

    obj: Obj
    context: JobSetContext = CONTEXT
    rules: GroupingRules = BUNDLED


def labelled(queue: str, **parts: Any) -> Obj:
    return job("node", labels={QUEUE: queue}, **parts)


WHOLE = {"node": (KAI, "default-queue", "Main")}
MANY = [job(f"j{i}", labels={QUEUE: f"q{i}"}) for i in range(20)]
QUEUES = [
    Case("nothing is named", JobSetCase(jobset()), WrittenFields("default-queue", MARKED, WHOLE)),
    Case(
        "the namespace says it",
        JobSetCase(jobset(), jobset_context(namespace_labels={QUEUE: "n"})),
        WrittenFields("n", MARKED, {"node": (KAI, "n", "Main")}),
    ),
    Case(
        "a pod template outranks the namespace, and the other gets its queue",
        JobSetCase(
            managed(jobset(job("a"), labelled("p"))), jobset_context(namespace_labels={QUEUE: "n"})
        ),
        WrittenFields("p", MARKED, {"a": (KAI, "p", "Main"), "node": (KAI, "p", "Main")}),
    ),
    Case(
        "the JobSet outranks a pod template, which keeps what it says",
        JobSetCase(managed(jobset(labelled("p"), job("a"), labels={QUEUE: "j"}))),
        WrittenFields("j", MARKED, {"node": (KAI, "p", "Main"), "a": (KAI, "j", "Main")}),
    ),
    Case(
        "the runtime's field is written over the labels of its own templates",
        JobSetCase(
            managed(jobset(labelled("p"), labels={QUEUE: "j"})), jobset_context(runtime_queue="r")
        ),
        WrittenFields("r", MARKED, {"node": (KAI, "r", "Main")}),
    ),
    Case(
        "the TrainJob's label is written over all of them",
        JobSetCase(
            managed(jobset(labelled("p"), job("a"), labels={QUEUE: "j"})),
            jobset_context({QUEUE: "t"}, runtime_queue="r", namespace_labels={QUEUE: "n"}),
        ),
        WrittenFields("t", MARKED, {"node": (KAI, "t", "Main"), "a": (KAI, "t", "Main")}),
    ),
    Case(
        "an empty label says nothing",
        JobSetCase(managed(jobset(labels={QUEUE: ""})), jobset_context({QUEUE: ""})),
        WrittenFields("default-queue", MARKED, WHOLE),
    ),
    Case(
        "a TrainJob that is gone says nothing",
        JobSetCase(jobset(), JobSetContext(None)),
        WrittenFields("default-queue", MARKED, WHOLE),
    ),
    Case(
        "without managed fields a label is its author's",
        JobSetCase(jobset(labelled("p"), labels={QUEUE: "j"})),
        WrittenFields("j", MARKED, {"node": (KAI, "p", "Main")}),
    ),
]
UNITS = [
    Case(
        "what waits for Ready is one unit with what it waits for",
        JobSetCase(jobset(job("node"), job("launcher", **READY))),
        WrittenFields(
            "default-queue", MARKED, {**WHOLE, "launcher": (KAI, "default-queue", "Main")}
        ),
    ),
    Case(
        "what waits for Complete is another unit",
        JobSetCase(jobset(job("node"), job("after", **COMPLETE))),
        WrittenFields(
            "default-queue",
            MARKED,
            {
                "node": (KAI, "default-queue", "node"),
                "after": (KAI, "default-queue", "after"),
            },
        ),
    ),
    Case(
        "an external scheduler gets a group for each stage, and no other program groups",
        JobSetCase(jobset(job("node"), job("launcher", **READY)), rules=EXTERNAL),
        WrittenFields(
            "default-queue",
            {**MARKED, SKIP: "true"},
            {
                "node": (KAI, "default-queue", "node"),
                "launcher": (KAI, "default-queue", "launcher"),
            },
        ),
    ),
    Case(
        "another scheduler's name stays, and its pods are in no group",
        JobSetCase(jobset(job("node"), job("extra", "default-scheduler"))),
        WrittenFields(
            "default-queue", MARKED, {**WHOLE, "extra": ("default-scheduler", None, None)}
        ),
    ),
    Case(
        "our own name stays as well",
        JobSetCase(jobset(job("node", KAI))),
        WrittenFields("default-queue", MARKED, WHOLE),
    ),
    Case(
        "an empty name is none",
        JobSetCase(jobset(job("node", ""))),
        WrittenFields("default-queue", MARKED, WHOLE),
    ),
    Case(
        "one without pods is in no PodGroup",
        JobSetCase(jobset(job("node"), job("none", replicas=0))),
        WrittenFields("default-queue", MARKED, {**WHOLE, "none": (KAI, "default-queue", None)}),
    ),
    Case(
        "forged marks are corrected",
        JobSetCase(
            managed(
                jobset(
                    job("node", labels={GANG: "x"}),
                    job("extra", "other", labels={GANG: "Main"}),
                    annotations={"trainer-kai.dev/admitted": "v0"},
                )
            )
        ),
        WrittenFields("default-queue", MARKED, {**WHOLE, "extra": ("other", None, None)}),
    ),
    Case(
        "a user makes the PodGroup, by the TrainJob",
        JobSetCase(jobset(labelled("p")), jobset_context(annotations={SKIP: "true"})),
        WrittenFields("p", {**MARKED, SKIP: "true"}, {"node": (KAI, "p", None)}),
    ),
    Case(
        "or on the JobSet, where a forged gang goes",
        JobSetCase(managed(jobset(job("node", labels={GANG: "Main"}), annotations={SKIP: "true"}))),
        WrittenFields(
            "default-queue", {**MARKED, SKIP: "true"}, {"node": (KAI, "default-queue", None)}
        ),
    ),
    Case(
        "or beside an external scheduler",
        JobSetCase(managed(jobset(annotations={SKIP: "true"})), rules=EXTERNAL),
        WrittenFields(
            "default-queue", {**MARKED, SKIP: "true"}, {"node": (KAI, "default-queue", None)}
        ),
    ),
    Case(
        "KAI's own grouping, on request",
        JobSetCase(managed(jobset(annotations={SKIP: "false"})), rules=EXTERNAL),
        WrittenFields(
            "default-queue", {**MARKED, SKIP: "false"}, {"node": (KAI, "default-queue", None)}
        ),
    ),
]


@pytest.mark.parametrize("case", [*QUEUES, *UNITS], ids=ids)
def test_what_is_written(case: Case[JobSetCase, WrittenFields]) -> None:
    """The patch says it, applies, and is not needed a second time."""
    answer = reviewed_jobset(case.given.obj, case.given.context, case.given.rules)
    patched = applied(case.given.obj, answer)

    assert answer.denial is None
    assert written(patched) == case.want
    assert reviewed_jobset(patched, case.given.context, case.given.rules).operations == ()


WISHES = {
    "kai.scheduler/topology": "racks",
    "kai.scheduler/topology-required-placement": "rack",
    "kai.scheduler/topology-preferred-placement": "host",
    "kai.scheduler/batch-min-member": "1",
    "kai.scheduler/preemption-delay": "10m",
    "kai.scheduler/staleness-grace-period": "1m",
}
LABELS = {
    "priorityClassName": "build",
    "kai.scheduler/preemptibility": "preemptible",
    "kai.scheduler/node-pool": "a",
}


FOLLOWED = (
    "priorityClassName,kai.scheduler/preemptibility,kai.scheduler/topology,"
    "kai.scheduler/topology-required-placement,kai.scheduler/topology-preferred-placement,"
    "kai.scheduler/batch-min-member,kai.scheduler/preemption-delay,"
    "kai.scheduler/staleness-grace-period"
)


def test_metadata_of_the_trainjob_is_carried() -> None:
    """All of them, and no others."""
    patched = applied(obj := jobset(), reviewed_jobset(obj, jobset_context(LABELS, WISHES)))

    assert patched["metadata"]["labels"] == {**LABELS, QUEUE: "default-queue"}
    assert patched["metadata"]["annotations"] == {**WISHES, **MARKED, FOLLOWS_TRAINJOB: FOLLOWED}


def test_metadata_of_the_jobset_stays() -> None:
    obj = managed(
        jobset(labels={"priorityClassName": "train"}, annotations=dict.fromkeys(WISHES, ""))
    )

    patched = applied(obj, reviewed_jobset(obj, jobset_context(LABELS, WISHES)))

    assert patched["metadata"]["labels"]["priorityClassName"] == "train"
    assert patched["metadata"]["labels"]["kai.scheduler/node-pool"] == "a"
    own = dict.fromkeys(WISHES, "")
    follows = {FOLLOWS_TRAINJOB: "kai.scheduler/preemptibility"}
    assert patched["metadata"]["annotations"] == {**own, **MARKED, **follows}


SHARE = {"gpu-fraction": "0.5", "mps": "true"}


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=["bundled", "external"])
def test_a_share_of_a_gpu_is_carried_to_the_pods_that_train(rules: GroupingRules) -> None:
    """KAI reads the annotations of pods as well; a template that requests a share keeps it."""
    step = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    own = {"gpu-memory": "100"}
    jobs = (
        job("node"),
        job("launcher", of_job=step),
        job("mine", of_job=step, annotations=own),
        job("theirs", "other", of_job=step),
        job("extra"),
    )
    obj, context = jobset(*jobs), jobset_context(annotations=SHARE)

    patched = applied(obj, reviewed_jobset(obj, context, rules))
    apart = applied(obj, reviewed_jobset(obj, context._replace(launcher_trains=False), rules))

    def annotations(whole: Obj) -> list[Obj | None]:
        return [template(it).get("annotations") for it in whole["spec"]["replicatedJobs"]]

    assert annotations(patched) == [SHARE, SHARE, own, None, None]
    assert annotations(apart)[:2] == [SHARE, None]
    assert reviewed_jobset(patched, context, rules).operations == ()
    for later in ({"gpu-fraction": "0.25"}, {}):
        changed = jobset_context(annotations=later)
        suspended = {**patched, "spec": {**patched["spec"], "suspend": True}}
        assert reviewed_jobset(suspended, changed, rules, patched).operations == ()
        assert reviewed_jobset(patched, changed, rules, suspended).operations == ()


def test_segments_are_carried_to_the_pods_that_are_divided() -> None:
    """The TrainJob's, and before them those of the runtime's template."""
    size, level = "kai.scheduler/segment-size", "kai.scheduler/segment-topology-required-placement"
    many, single = job("node"), job("node")
    single["template"]["spec"]["parallelism"] = 1
    context = jobset_context(annotations={size: "4", level: "rack"})
    found = []
    for it, own in ((many, {}), (many, {size: "8"}), (single, {})):
        obj = jobset(it, annotations=own)
        patched = applied(obj, reviewed_jobset(obj, context, BUNDLED))
        found.append(template(patched["spec"]["replicatedJobs"][0]).get("annotations"))
        assert reviewed_jobset(patched, context, BUNDLED).operations == ()

    assert found == [{size: "4", level: "rack"}, {size: "8", level: "rack"}, None]


# JobSets that are not ours
LEFT: list[Case[Obj, None]] = [
    Case("a JobSet by hand", jobset(ownerReferences=None), None),
    Case("of another owner", jobset(ownerReferences=[{**OWNER, "kind": "Workflow"}]), None),
    Case(
        "of a TrainJob of another group",
        jobset(ownerReferences=[{**OWNER, "apiVersion": "example.org/v1"}]),
        None,
    ),
    Case(
        "of a group that only begins alike",
        jobset(ownerReferences=[{**OWNER, "apiVersion": "trainer.kubeflow.org.example/v1"}]),
        None,
    ),
    Case(
        "of a TrainJob that is not its controller",
        jobset(ownerReferences=[{**OWNER, "controller": False}]),
        None,
    ),
    Case("of a TrainJob without a name", jobset(ownerReferences=[{**OWNER, "name": ""}]), None),
    Case("of a TrainJob that is a path", jobset(ownerReferences=[{**OWNER, "name": ".."}]), None),
    Case("of another JobSet controller", jobset(managedBy="kueue.x-k8s.io/multikueue"), None),
    Case("of another scheduler altogether", jobset(job("node", "volcano")), None),
    Case("without replicatedJobs", {**jobset(), "spec": {"replicatedJobs": []}}, None),
]


@pytest.mark.parametrize("case", LEFT, ids=ids)
def test_what_is_left_alone(case: Case[Obj, None]) -> None:
    assert reviewed_jobset(case.given, jobset_context({QUEUE: "t"})) == UNCHANGED


@pytest.mark.parametrize(
    "fields",
    [
        {"operation": "DELETE"},
        {"operation": "CONNECT"},
        {"operation": ""},
        {"subResource": "status"},
        {"kind": {"group": "batch", "version": "v1", "kind": "Job"}},
        {"kind": {"group": "jobset.x-k8s.io", "version": "v1beta1", "kind": "JobSet"}},
    ],
)
def test_other_reviews_are_left_alone(fields: dict[str, Any]) -> None:
    assert read_jobset(request(jobset(), **({"kind": JOBSET} | fields)), BUNDLED) == UNCHANGED


def test_the_controllers_own_name_is_no_other_controller() -> None:
    """It may be written out."""
    obj = jobset(managedBy="jobset.sigs.k8s.io/jobset-controller")

    assert reviewed_jobset(obj).operations


def test_what_cannot_be_read_is_refused_if_it_may_be_ours() -> None:
    """With the place of the fault."""
    broken: Obj = {**jobset(), "spec": {"replicatedJobs": "many"}}
    foreign = {**broken, "metadata": {"name": "job"}}

    denial = reviewed_jobset(broken).denial

    assert denial is not None
    assert denial.code == 400
    assert denial.message.startswith("request.object.spec.replicatedJobs: must be a list")
    assert reviewed_jobset(foreign) == UNCHANGED
    assert reviewed_jobset([1]).denial is not None


def test_a_null_among_labels_is_no_label() -> None:
    """Also where a rule looks at its text."""
    access_requests = {"priorityClassName": None, "kai.scheduler/preemptibility": None}
    given = jobset(labels=access_requests, annotations={"kai.scheduler/batch-min-member": None})
    answer = reviewed_jobset(given)

    assert answer.denial is None
    assert written(applied(given, answer)).queue == "default-queue"


def test_nulls_and_missing_parts_mean_the_same() -> None:
    """Maps that are null, or not there, are made."""
    obj = jobset(labels=None, annotations=None)
    for bare in (
        {"name": "a"},
        {"name": "b", "template": None},
        {"name": "c", "template": {"spec": {"template": {"metadata": None}}}},
    ):
        obj["spec"]["replicatedJobs"].append(bare)

    patched = applied(obj, reviewed_jobset(obj))

    assert {template(it)["labels"][QUEUE] for it in patched["spec"]["replicatedJobs"]} == {
        "default-queue"
    }
    assert {it[0] for it in written(patched).jobs.values()} == {KAI}


# what is given -> pieces of the warnings, in order
WARNINGS = [
    Case(
        "a scheduler that knows nothing of the others",
        JobSetCase(jobset(job("node"), job("extra", "default-scheduler"))),
        [
            (
                "spec.replicatedJobs[1].template.spec.template.spec.schedulerName: the "
                "pods of extra are in no"
            )
        ],
    ),
    Case(
        "pod templates that differ",
        JobSetCase(managed(jobset(labelled("p"), job("a", labels={QUEUE: "q"})))),
        [
            (
                f"metadata.labels[{QUEUE}]: the PodGroups use queue p, from the label of a "
                "pod template; "
            )
        ],
    ),
    Case(
        "pod templates that name many queues",
        JobSetCase(managed(jobset(labelled("p"), *MANY))),
        ["name other queues: q0, q1, q2 and 17 more. Remove those labels"],
    ),
    Case(
        "wishes that cannot be meant, each once",
        JobSetCase(
            jobset(annotations={"kai.scheduler/preemption-delay": "soon"}),
            jobset_context(
                {"kai.scheduler/preemptibility": "maybe"}, {"kai.scheduler/batch-min-member": "x"}
            ),
        ),
        [
            "metadata.annotations[kai.scheduler/batch-min-member]: ignored: 'x'",
            "metadata.labels[kai.scheduler/preemptibility]: 'maybe'",
            "metadata.annotations[kai.scheduler/preemption-delay]: ",
        ],
    ),
    Case(
        "a queue that can be no object's name",
        JobSetCase(jobset(), jobset_context({QUEUE: "Team_A"})),
        ["metadata.labels[kai.scheduler/queue]: 'Team_A' must be"],
    ),
    Case(
        "what will never begin",
        JobSetCase(
            jobset(job("node"), job("late", dependsOn=[{"name": "absent", "status": "Ready"}]))
        ),
        ["spec.replicatedJobs[1].dependsOn[0].name: replicatedJob 'absent' does not exist"],
    ),
]


@pytest.mark.parametrize("case", WARNINGS, ids=ids)
def test_warnings(case: Case[JobSetCase, list[str]]) -> None:
    """Nothing is refused for them."""
    answer = reviewed_jobset(case.given.obj, case.given.context)

    assert len(answer.warnings) == len(case.want), answer.warnings
    for warning, piece in zip(answer.warnings, case.want, strict=True):
        assert piece in warning


def test_a_real_jobset_is_mutated() -> None:
    """As the API server sends it, patched as the API server patches."""
    obj = json.loads(recorded("jobset-create-staged"))["request"]["object"]
    known = jobset_context({QUEUE: "team-b"})

    patched = applied(obj, reviewed_jobset(obj, known))

    assert written(patched) == WrittenFields(
        "team-b",
        MARKED,
        {
            "dataset-initializer": (KAI, "team-b", "dataset-initializer"),
            "model-initializer": (KAI, "team-b", "model-initializer"),
            "node": (KAI, "team-b", "node"),
        },
    )
    assert reviewed_jobset(patched, known).operations == ()
