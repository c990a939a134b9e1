"""What is said of a Deployment, StatefulSet or Notebook whose pods would wait, in both modes."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.policy.lint.cluster import (
    known_cluster,
)
from tests.webhook.objects import BUNDLED, EXTERNAL, Obj, request
from tests.webhook.workload_reviews import (
    A_LABEL,
    APPS,
    DEPLOYMENT,
    IDLE,
    KUEUE,
    NOTEBOOK,
    OTHER,
    PREEMPTIBILITY,
    QUEUE,
    STATEFUL_SET,
    context,
    reviewed,
    short,
    ways_out,
    with_default,
    workload,
)
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.cache.admission_cache import QueueTree
from webhook.rules.workload_validate import WorkloadContext, validate_workload

INFERENCE = "PriorityClass inference, the default of a Deployment, has value 125"
BUILD = "PriorityClass build, the default of a Notebook, has value 100"
NO_LABEL = short(INFERENCE, "4 GPU", "default-queue", "0 GPU") + ways_out()
NON_PREEMPTIBLE = {PREEMPTIBILITY: "non-preemptible"}
# In mode external, where KAI groups pods.
OF_KAI: list[Case[tuple[Obj, Obj], str]] = [
    Case("a Deployment without a label", (workload(4), DEPLOYMENT), NO_LABEL),
    Case("a Deployment without GPUs", (workload(4, gpus=0), DEPLOYMENT), ""),
    Case("a workload without replicas is accepted", (workload(0), DEPLOYMENT), ""),
    Case(
        "parts of GPUs",
        (workload(4, gpus=0, notes={"gpu-fraction": "0.5"}), DEPLOYMENT),
        short(INFERENCE, "2 GPU", "default-queue", "0 GPU") + ways_out(),
    ),
    Case(
        "parts of several GPUs",
        (
            workload(
                gpus=0, notes={"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, labels={}
            ),
            DEPLOYMENT,
        ),
        short(INFERENCE, "500m GPU", "default-queue", "0 GPU") + ways_out(),
    ),
    Case(
        "a part that is none",
        (workload(4, gpus=0, notes={"gpu-fraction": "x"}), DEPLOYMENT),
        (
            "spec.template.metadata.annotations[gpu-fraction]: 'x' must be a number above 0 and "
            "below 1, such as 0.5"
        ),
    ),
    Case(
        "a preemptible workload is accepted",
        (workload(4, labels={PREEMPTIBILITY: "preemptible"}), DEPLOYMENT),
        "",
    ),
    Case(
        "made preemptible by its pods",
        (workload(4, of_pods={PREEMPTIBILITY: "preemptible"}), DEPLOYMENT),
        "",
    ),
    Case(
        "made something else",
        (workload(4, labels={PREEMPTIBILITY: "maybe"}), DEPLOYMENT),
        NO_LABEL,
    ),
    Case("of a preemptible class", (workload(4, of_class="train"), DEPLOYMENT), ""),
    Case(
        "of a class that does not exist",
        (workload(4, of_class="nothing"), DEPLOYMENT),
        NO_LABEL,
    ),
    Case("in a queue with quota", (workload(8, labels=A_LABEL), DEPLOYMENT), ""),
    Case(
        "in a queue with too little quota",
        (workload(9, labels=A_LABEL), DEPLOYMENT),
        short(INFERENCE, "9 GPU", "team-a", "8 GPU") + ways_out(),
    ),
    Case(
        "the label of the Deployment is before that of its pods",
        (workload(5, labels={QUEUE: "team-b"}, of_pods=A_LABEL), DEPLOYMENT),
        short(INFERENCE, "5 GPU", "team-b", "4 GPU") + ways_out(),
    ),
    Case("in a queue without a bound", (workload(99, labels={QUEUE: "free"}), DEPLOYMENT), ""),
    Case("a StatefulSet is preemptible", (workload(4), STATEFUL_SET), ""),
    Case(
        "a StatefulSet that is not",
        (workload(4, labels=NON_PREEMPTIBLE), STATEFUL_SET),
        short(f"label {PREEMPTIBILITY}", "4 GPU", "default-queue", "0 GPU") + ways_out(),
    ),
    Case(
        "a Notebook is one replica",
        (workload(labels={QUEUE: "default-queue"}), NOTEBOOK),
        short(BUILD, "1 GPU", "default-queue", "0 GPU") + ways_out(),
    ),
    Case(
        "a Notebook that is stopped",
        (workload(metadata={"annotations": {"kubeflow-resource-stopped": "now"}}), NOTEBOOK),
        "",
    ),
    Case(
        "a project of KAI",
        (workload(labels={"project": "team-b"}, replicas=5), DEPLOYMENT),
        short(INFERENCE, "5 GPU", "team-b", "4 GPU") + ways_out(),
    ),
    Case(
        "a project in a node pool",
        (
            workload(labels={"project": "team"}, of_pods={"kai.scheduler/node-pool": "a"}),
            DEPLOYMENT,
        ),
        "",
    ),
]


@pytest.mark.parametrize("case", OF_KAI, ids=ids)
def test_a_workload_of_kai(case: Case[tuple[Obj, Obj], str]) -> None:
    """Its kind decides on its preemptibility, unless a label or a class does."""
    obj, kind = case.given
    assert reviewed(obj, kind) == case.want


REFUSED = (
    "spec.template.metadata.labels[priorityClassName]: A label or PodGroup may not choose "
    "PriorityClass top: its value 1000000000 is not below 1000000000. Set it at "
    "spec.template.spec.priorityClassName"
)
# In mode bundled, where our podgrouper groups pods.
OF_OURS: list[Case[tuple[Obj, Obj], str]] = [
    Case("a Deployment without a label", (workload(4), DEPLOYMENT), NO_LABEL),
    Case(
        "a Notebook without a label",
        (workload(), NOTEBOOK),
        short(BUILD, "1 GPU", "default-queue", "0 GPU") + ways_out(),
    ),
    Case(
        "of a non-preemptible class",
        (workload(4, of_class="build"), DEPLOYMENT),
        short("PriorityClass build, has value 100", "4 GPU", "default-queue", "0 GPU") + ways_out(),
    ),
    Case(
        "a class in a label",
        (workload(4, of_pods={"priorityClassName": "inference"}), DEPLOYMENT),
        short("PriorityClass inference, has value 125", "4 GPU", "default-queue", "0 GPU")
        + ways_out(),
    ),
    *(
        Case(
            f"shares of GPUs: {notes}",
            (workload(replicas, gpus=0, of_class="build", notes=notes), DEPLOYMENT),
            short("PriorityClass build, has value 100", amount, "default-queue", "0 GPU")
            + ways_out(),
        )
        for replicas, notes, amount in (
            (4, {"gpu-fraction": "0.5"}, "2 GPU"),
            (2, {"gpu-fraction": "0.125", "gpu-fraction-num-devices": "3"}, "780m GPU"),
            (1, {"gpu-memory": "20000"}, "250m GPU"),  # of the largest GPU
            (1, {"gpu-memory": "999999"}, "1 GPU"),
        )
    ),
    Case(
        "a class that a label may not choose, so that the default one counts",
        (workload(4, of_pods={"priorityClassName": "top"}), DEPLOYMENT),
        REFUSED,
    ),
    Case(
        "non-preemptible by the label of its pods",
        (workload(5, of_pods={**NON_PREEMPTIBLE, QUEUE: "team-b"}), STATEFUL_SET),
        short(f"label {PREEMPTIBILITY}", "5 GPU", "team-b", "4 GPU")
        + ways_out("spec.template.metadata.labels"),
    ),
    Case(
        "labels of the Deployment count first",
        (workload(4, labels=NON_PREEMPTIBLE), DEPLOYMENT),
        short(f"label {PREEMPTIBILITY}", "4 GPU", "default-queue", "0 GPU") + ways_out(),
    ),
    Case("its queue counts as well", (workload(4, labels=A_LABEL), DEPLOYMENT), ""),
    Case(
        "a label on both is accepted",
        (workload(4, labels=A_LABEL, of_pods=A_LABEL), DEPLOYMENT),
        "",
    ),
    Case(
        "labels of a Notebook count for its pod",
        (workload(labels={**NON_PREEMPTIBLE, QUEUE: "default-queue"}), NOTEBOOK),
        short(f"label {PREEMPTIBILITY}", "1 GPU", "default-queue", "0 GPU") + ways_out(),
    ),
]


@pytest.mark.parametrize("case", OF_OURS, ids=ids)
def test_a_workload_of_ours(case: Case[tuple[Obj, Obj], str]) -> None:
    """What is on it decides, then what is on its pods, as the podgrouper reads them."""
    obj, kind = case.given
    assert reviewed(obj, kind, BUNDLED) == case.want


def test_what_is_in_use_counts_on_every_level() -> None:
    """A parent without quota left is reported as well."""
    assert reviewed(workload(4, labels=A_LABEL), known=context(team_a="4")) == ""
    wanted = short(INFERENCE, "5 GPU", "team-a", "8 GPU", "4 GPU") + ways_out()
    assert reviewed(workload(5, labels=A_LABEL), known=context(team_a="4")) == wanted
    wanted = short(INFERENCE, "5 GPU", "top, a parent of team-a,", "8 GPU", "4 GPU") + ways_out()
    assert reviewed(workload(5, labels=A_LABEL), known=context(top="4", team_b="4")) == wanted
    assert reviewed(workload(8, labels=A_LABEL), known=context(team_a="much")) == ""


def test_the_amounts_of_a_closed_queue_are_not_shown() -> None:
    """A user of any namespace can name a queue, and would see what other teams have and use."""
    known = context(team_a="4")
    known.queues.put("team-a", "top", "closed")
    secret = (
        f"spec.template: the pods are non-preemptible ({INFERENCE}) and request 5 GPU; queue "
        "team-a is closed, and has less of its quota left. Pods beyond the quota wait"
    ) + ways_out()
    assert reviewed(workload(5, labels=A_LABEL), known=known) == secret

    known = context(team_a="4")._replace(unannotated="closed")
    assert reviewed(workload(5, labels=A_LABEL), known=known) == secret
    known.queues.put("team-a", "top", "open")
    wanted = short(INFERENCE, "5 GPU", "team-a", "8 GPU", "4 GPU") + ways_out()
    assert reviewed(workload(5, labels=A_LABEL), known=known) == wanted


def test_the_default_class_of_the_cluster_counts_before_that_of_the_kind() -> None:
    """Kubernetes writes it on the pods, where KAI and our scheduler read it."""
    known = IDLE._replace(cluster=IDLE.cluster._replace(priorities=with_default(50)))
    assert reviewed(workload(4), known=known) == ""
    known = IDLE._replace(cluster=IDLE.cluster._replace(priorities=with_default(100)))
    reason = "PriorityClass usual, has value 100"
    assert reviewed(workload(4), known=known) == (
        short(reason, "4 GPU", "default-queue", "0 GPU") + ways_out()
    )
    assert reviewed(workload(4), rules=BUNDLED, known=known) == (
        short(reason, "4 GPU", "default-queue", "0 GPU") + ways_out()
    )


def test_an_update_is_compared_with_what_it_adds() -> None:
    """Its own pods are in use already."""
    full = context(team_a="8", top="8")
    before = workload(8, labels=A_LABEL)
    assert reviewed(workload(8, labels=A_LABEL), known=full, old=before) == ""
    assert reviewed(workload(2, labels=A_LABEL), known=full, old=before) == ""
    wanted = short(INFERENCE, "1 GPU more", "team-a", "8 GPU", "8 GPU") + ways_out()
    assert reviewed(workload(9, labels=A_LABEL), known=full, old=before) == wanted
    moved = workload(8, labels={QUEUE: "free"})
    wanted = short(INFERENCE, "8 GPU", "team-a", "8 GPU", "8 GPU") + ways_out()
    assert reviewed(before, known=full, old=moved) == wanted


TYPO = (
    f"spec.template.metadata.labels[{QUEUE}]: queue 'team-c' does not exist. Did you mean "
    "'team-a'? Otherwise create the queue, or name an existing one"
)
OF_KUEUE = (
    "[kueue.x-k8s.io/queue-name]: the label has no effect here: the pods use queue default-queue. "
    f"Name their queue by the label {QUEUE} at metadata.labels"
)
LABELS: list[Case[Obj, str]] = [
    Case("a workload of another scheduler is accepted", workload(4, scheduler="volcano"), ""),
    Case(
        "another scheduler, with a queue",
        workload(4, scheduler="volcano", of_pods=A_LABEL),
        OTHER.format("volcano"),
    ),
    Case(
        "no scheduler, with a queue",
        workload(4, scheduler="", labels=A_LABEL),
        OTHER.format("default-scheduler"),
    ),
    Case("an unknown queue", workload(of_pods={QUEUE: "team-c"}), TYPO),
    Case(
        "a queue with children",
        workload(of_pods={QUEUE: "top"}),
        f"spec.template.metadata.labels[{QUEUE}]: queue 'top' has child queues and cannot hold "
        "workloads. Name one of the children: team-a, team-b",
    ),
    Case(
        "the label of Kueue is reported where no Kueue acts",
        workload(gpus=0, labels={KUEUE: "q"}),
        f"metadata.labels{OF_KUEUE}",
    ),
    Case(
        "Kueue's label on the pods",
        workload(gpus=0, of_pods={KUEUE: "q"}),
        f"spec.template.metadata.labels{OF_KUEUE}",
    ),
    Case("Kueue's label beside ours", workload(of_pods={KUEUE: "q", **A_LABEL}), ""),
]


@pytest.mark.parametrize("case", LABELS, ids=ids)
def test_labels_of_a_workload(case: Case[Obj, str]) -> None:
    """A label without effect is reported once, when it is written."""
    assert reviewed(case.given, rules=BUNDLED) == case.want
    assert reviewed(case.given, rules=BUNDLED, old=case.given) == ""
    if case.want:
        assert reviewed(case.given, rules=BUNDLED, old=workload(4)) == case.want


@pytest.mark.parametrize("rules", [EXTERNAL, BUNDLED], ids=["external", "bundled"])
def test_shares_of_gpus_are_checked(rules: GroupingRules) -> None:
    """As the scheduler and the policies read them; an update repeats no warning."""
    labels = {QUEUE: "free", "runai-gpu-group": "mine", "app": "web"}
    notes = {"gpu-memory": "3Gi", "gpu-fraction-num-devices": "2"}
    it = workload(1, labels=A_LABEL, of_pods=labels, notes=notes)

    assert [line.partition(": ")[::2] for line in reviewed(it, rules=rules).splitlines()] == [
        (
            "spec.template.metadata.labels[runai-gpu-group]",
            (
                "no pod can be created with the label runai-gpu-group: only the scheduler sets "
                "it, on pods that share or reserve a GPU. Remove the label"
            ),
        ),
        (
            "spec.template.metadata.annotations[gpu-memory]",
            "'3Gi' must be MiB as a whole number; write 3072",
        ),
        (
            "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]",
            (
                "whole GPUs and MIG profiles cannot be requested together with the annotation "
                "gpu-memory. Remove one of the two"
            ),
        ),
    ]
    assert reviewed(it, rules=rules, old=it) == ""


def test_keys_that_look_like_ours_are_reported() -> None:
    """In the pod template, and a request that does not reach the pods; not of other schedulers."""
    notes = {"gpu_fraction": "0.5", "example.com/gpu-fraction": "0.5"}
    labels = {QUEUE: "free", "gpu-fraction": "0.5"}
    own = {"annotations": {"gpu-memory": "100", "team": "a"}}
    it = workload(1, gpus=0, of_pods=labels, notes=notes, metadata=own)

    assert reviewed(it, rules=BUNDLED).splitlines() == [
        (
            "spec.template.metadata.labels[gpu-fraction]: has no effect here: move it to "
            "spec.template.metadata.annotations"
        ),
        (
            "spec.template.metadata.annotations[gpu_fraction]: has no effect: unknown name. Did "
            "you mean gpu-fraction?"
        ),
        (
            "metadata.annotations[gpu-memory]: has no effect on the pods: move it to "
            "spec.template.metadata.annotations"
        ),
    ]
    assert "gpu-memory" not in reviewed(it, NOTEBOOK)
    others = workload(1, scheduler="other", notes=notes, of_pods={"gpu-fraction": "1"})
    assert reviewed(others, rules=BUNDLED) == ""


def test_shares_that_are_switched_off_are_reported() -> None:
    """Where our scheduler binds pods; KAI has a setting of its own."""
    off = IDLE._replace(cluster=IDLE.cluster._replace(shares_gpus=False))
    share = workload(1, gpus=0, of_pods={QUEUE: "free"}, notes={"gpu-fraction": "0.5"})

    assert reviewed(share, rules=BUNDLED, known=off).startswith(
        "spec.template.metadata.annotations[gpu-fraction]: shares of GPUs are switched off"
    )
    assert reviewed(share, rules=BUNDLED) == ""
    assert "switched off" not in reviewed(share, known=off)


def test_a_workload_of_another_scheduler_may_annotate_its_pods() -> None:
    """The labels are refused of all pods, the requests only of ours."""
    labels = {"app": "kai-resource-reservation"}
    it = workload(1, scheduler="other", of_pods=labels, notes={"gpu-fraction": "2"})

    assert reviewed(it) == (
        "spec.template.metadata.labels[app]: no pod can be created with the label app: "
        "kai-resource-reservation: only the scheduler sets it, on pods that share or reserve a "
        "GPU. Remove the label"
    )


def test_where_kueue_runs_its_label_is_not_reported() -> None:
    """It suspends and resumes what has it."""
    assert reviewed(workload(gpus=0, labels={KUEUE: "q"}), rules=BUNDLED._replace(kueue=True)) == ""


CONTROLLED = {
    "ownerReferences": [{"kind": "Notebook", "name": "n", "uid": "u", "controller": True}]
}
STRANGE: list[Case[tuple[Any, Obj], str]] = [
    Case("another kind is left alone", (workload(4), {**APPS, "kind": "ReplicaSet"}), ""),
    Case(
        "a namesake of another group is left alone",
        (workload(4), {**DEPLOYMENT, "group": "apps.example.com"}),
        "",
    ),
    Case("of another workload", (workload(4, metadata=CONTROLLED), DEPLOYMENT), ""),
    Case("a word is left alone", ("word", DEPLOYMENT), ""),
    Case("null is left alone", (None, DEPLOYMENT), ""),
    Case("an object without spec is left alone", ({"metadata": {}}, DEPLOYMENT), ""),
    Case("replicas that are a word", (workload("x"), DEPLOYMENT), ""),  # type: ignore[arg-type]
    Case("a negative number of replicas is left alone", (workload(-4), DEPLOYMENT), ""),
    Case("an amount that is none", (workload(4, gpus="many"), DEPLOYMENT), ""),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("case", STRANGE, ids=ids)
def test_what_is_not_reported(case: Case[tuple[Any, Obj], str]) -> None:
    """Nothing fails, whatever an object is like."""
    obj, kind = case.given
    assert reviewed(obj, kind) == case.want


def test_until_all_is_listed_no_quota_is_reported() -> None:
    """A queue that is not known is not missing."""
    unlisted = WorkloadContext(QueueTree(), known_cluster(), {})
    assert reviewed(workload(4), known=unlisted) == ""
    assert reviewed(workload(4, labels={QUEUE: "new"}), known=unlisted) == ""


@pytest.mark.parametrize("fields", [{"operation": "DELETE"}, {"subResource": "scale"}])
def test_other_requests_are_not_reviewed(fields: Obj) -> None:
    """Only what a user writes."""
    asked = request(workload(4), DEPLOYMENT, **fields)
    assert validate_workload(asked, IDLE, EXTERNAL).response().warnings == ()
