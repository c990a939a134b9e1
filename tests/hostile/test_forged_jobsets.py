"""A JobSet says that admission saw it, and of which TrainJob it is: neither is true for being said.

A tenant with the role `edit` may write any JobSet. What admission has marked the podgrouper gives
PodGroups, which no tenant may write himself.
"""

from typing import Any, Final

import pytest

from tests.hostile.conftest import SimulateFixture
from tests.hostile.forged_jobsets import jobset, marked, rjob, trainjob, waiting
from tests.hostile.objects import TENANT, VICTIMS, cluster, pod, pod_group
from tests.support.case import Case, ids
from tests.webhook import objects
from tests.webhook.objects import OWNER, applied, job, managed, reviewed_jobset
from trainer_kai.api.decode import decode, encode
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.meta import PartialObject
from trainer_kai.api.names import ADMITTED, ADMITTED_MARK
from trainer_kai.podgrouper.plan import ObservedState, plan
from trainer_kai.podgrouper.store import PodgrouperStore
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.workloads.jobset import jobset_workload
from trainer_kai.policy.workloads.workload import ObjectKey
from webhook.admission.review import AdmissionResponse

Obj = dict[str, Any]
MARK: Final = {ADMITTED: ADMITTED_MARK}
RULES: Final = GroupingRules("bundled", "kai-scheduler", "default-queue")
REFUSALS: Final = (
    f"metadata.annotations[{ADMITTED}]: removed: only trainer-kai sets this annotation"
)
COSCHEDULED: Final[Obj] = {"labels": {"scheduling.x-k8s.io/pod-group": "job"}}


def sent(*jobs: Obj, **parts: Any) -> Obj:
    """Return a JobSet that is made with our mark on it."""
    return objects.jobset(*jobs, annotations=MARK, **parts)


NOT_OURS: Final[list[Case[Obj, None]]] = [
    Case("it has no owner", sent(ownerReferences=[]), None),
    Case(
        "a TrainJob owns it, but does not control it",
        sent(ownerReferences=[{**OWNER, "controller": False}]),
        None,
    ),
    Case(
        "it is of a TrainJob of another group",
        sent(ownerReferences=[{**OWNER, "apiVersion": "example.com/v1"}]),
        None,
    ),
    Case("no TrainJob can be called so", sent(ownerReferences=[{**OWNER, "name": "A/b"}]), None),
    Case("its pods are made elsewhere", sent(managedBy="kueue.x-k8s.io/multikueue"), None),
    Case("all its pods go to another scheduler", sent(job("node", "volcano")), None),
    Case("another scheduler was chosen for it", sent(job("node", **COSCHEDULED)), None),
]


@pytest.mark.parametrize("case", NOT_OURS, ids=ids)
def test_the_mark_is_taken_from_what_is_not_ours(case: Case[Obj, None]) -> None:
    """Its author is told; asked a second time, admission has nothing more to do."""
    answer = reviewed_jobset(case.given)

    assert answer.denial is None
    [report] = answer.warnings
    assert report.startswith(REFUSALS)
    after = applied(case.given, answer)
    assert ADMITTED not in after["metadata"]["annotations"]
    assert reviewed_jobset(after) == AdmissionResponse()


def test_the_mark_of_what_is_ours_is_set_again_whatever_was_sent() -> None:
    """Also when admission is asked once more, after another webhook has changed the JobSet."""
    for value in ("v1", "v0", ""):
        given = managed(objects.jobset(annotations={ADMITTED: value}))
        after = applied(given, reviewed_jobset(given))
        assert after["metadata"]["annotations"].items() >= MARK.items()
        assert applied(after, reviewed_jobset(after)) == after


def test_what_cannot_be_read_and_says_that_we_saw_it_is_refused() -> None:
    """It costs its author; without the mark it is no care of ours."""
    broken = sent(ownerReferences=[])
    broken["spec"]["replicatedJobs"] = "many"

    assert reviewed_jobset(broken).denial is not None
    assert (
        reviewed_jobset({**broken, "metadata": {**broken["metadata"], "annotations": {}}})
        == AdmissionResponse()
    )


def test_a_name_of_a_manager_proves_nothing() -> None:
    """Fields that are sent as ours are judged like all others: `kubectl --field-manager=…`."""
    for manager in ("trainer", "trainer-kai-webhook", "trainer-kai-podgrouper"):
        given = managed(sent(ownerReferences=[]))
        given["metadata"]["managedFields"][0]["manager"] = manager
        assert ADMITTED not in applied(given, reviewed_jobset(given))["metadata"]["annotations"]


def groups_of(made: JobSet, *trainjobs: Obj) -> tuple[Any, ...]:
    """Return the PodGroups that a JobSet gets in a cluster with some TrainJobs."""
    store = PodgrouperStore(counts=False)
    workload = jobset_workload(made)
    store.workload_changed(workload.key, workload)
    for it in trainjobs:
        known = decode(PartialObject, encode({"metadata": it["metadata"]}))
        store.owner_changed(ObjectKey("TrainJob", *known.metadata.key), known)
    has_owner = store.has_owner(workload)
    return plan(workload, ObservedState({}, has_owner=has_owner), (), RULES).apply


NAMED: Final = trainjob("forged")
NO_GROUP: Final[list[Case[tuple[JobSet, tuple[Obj, ...]], None]]] = [
    Case("there is no such TrainJob", (marked(waiting(1, 1), NAMED), ()), None),
    Case(
        "it has another uid", (marked(waiting(1, 1), NAMED), (trainjob("forged", "other"),)), None
    ),
    Case(
        "it is of another namespace",
        (marked(waiting(1, 1), NAMED), (trainjob("forged", namespace="red"),)),
        None,
    ),
    Case(
        "it has another name",
        (marked(waiting(1, 1), trainjob("mine")), (trainjob("mine"),)),
        None,
    ),
    Case("it is no TrainJob", (marked(waiting(1, 1), {**NAMED, "kind": "Job"}), (NAMED,)), None),
    Case(
        "nor one of Trainer",
        (marked(waiting(1, 1), {**NAMED, "apiVersion": "example.com/v1"}), (NAMED,)),
        None,
    ),
]


@pytest.mark.parametrize("case", NO_GROUP, ids=ids)
def test_a_forged_jobset_gets_no_group(case: Case[tuple[JobSet, tuple[Obj, ...]], None]) -> None:
    """Though it is marked, by whatever way that came on it."""
    made, trainjobs = case.given
    assert groups_of(made, *trainjobs) == ()


def test_a_jobset_of_a_trainjob_that_exists_gets_its_group() -> None:
    """A tenant may name a TrainJob of his own: what he has by it is bounded, and charged to him."""
    assert len(groups_of(marked(waiting(1, 1), NAMED), NAMED)) == 1


def test_a_forged_owner_costs_the_victims_nothing(simulate: SimulateFixture) -> None:
    """The tenant's JobSet names a TrainJob that was there before, and is told so."""
    gangs = [
        it
        for name in VICTIMS
        for it in (pod_group(name, "job", 8), *(pod(name, f"p{n}", 1, "job") for n in range(8)))
    ]
    forged = jobset("mine", [rjob("node", 1, 100)], trainjob("mine", "before"))
    there = {**trainjob("mine", "now"), "spec": {"suspend": True, "runtimeRef": {"name": "any"}}}

    measured = simulate([*cluster(), *gangs, there, forged])

    assert len(measured.binds) == 16


def test_nor_does_a_second_jobset_of_a_trainjob(simulate: SimulateFixture) -> None:
    """It has another name than its TrainJob: no eviction would suspend it with the TrainJob."""
    second = jobset("second", [rjob("node", 1, 100)], trainjob("mine", "now"))
    there = {**trainjob("mine", "now"), "spec": {"suspend": True, "runtimeRef": {"name": "any"}}}

    measured = simulate([*cluster(), there, second])

    assert measured.binds == {}
    assert not [name for name in measured.waiting if name.startswith(f"{TENANT}/")]
