"""Queue access: a namespace without it starts nothing in a queue, and loses nothing."""

from typing import Any

import pytest

from scheduler.core.model.rejections import NO_EVENT, ClusterEvent
from scheduler.core.model.resources import ResourceKind
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.cache.cache import ClusterCache
from scheduler.state.inputs import Permit, StateOptions
from scheduler.state.queues.access import AccessQuestion
from scheduler.state.queues.queue_table import QueueTable
from scheduler.state.snapshot.cluster_state import ClusterState, encode
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot
from tests.support.case import Case, ids
from tests.support.state.objects import (
    NOW,
    cluster_cache,
    decode_object,
    group,
    node,
    pod,
    podgroup_of,
    prefilter_failure_of,
    queue,
)
from tests.support.state.random_changes import apply_change
from trainer_kai.api.meta import Key
from trainer_kai.api.names import ACCESS, QUEUE, RESERVED
from trainer_kai.api.resources import PODS

NAMESPACE_AND_QUEUE = Key("ns", "q")
CLOSED = queue(meta={"annotations": {ACCESS: "closed"}})
MAY_NOT = (
    "Namespace ns may not use queue q, which is closed (annotation trainer-kai.dev/access of queue "
    "q). It can start when group system:serviceaccounts:ns is granted the verb use on "
    "queues.scheduling.run.ai/q in that namespace: trainer-kai queue allow q -n ns"
)
BEING_REVIEWED = (
    "The access review whether namespace ns may use queue q is in progress. It can start when the "
    "access is granted"
)
NOT_REVIEWED = (
    "The access review whether namespace ns may use queue q has no answer yet: the API server "
    "cannot be reached. It can start when the access is granted"
)
POLICIES = build_policies(PolicySelection())


def options(*, needed: bool = False, unannotated: str = "open") -> StateOptions:
    return StateOptions(
        now=NOW, default_queue="q", needs_permission=needed, default_access=unannotated
    )


def found_in(*objects: Any, permit: Permit | None, needed: bool = True) -> EncodedSnapshot:
    given = cluster_cache(CLOSED, *objects)
    if permit is not None:
        given.permits[NAMESPACE_AND_QUEUE] = permit
    return encode(given, options(needed=needed))


# the permit, and whether it is needed -> the pre-filter failure
KNOWN: list[Case[tuple[Permit | None, bool], str | None]] = [
    Case("not known, in files", (None, False), None),
    Case("a granted permit lets it plan", (Permit.GRANTED, True), None),
    Case("a refused permit is a failure", (Permit.REFUSED, True), MAY_NOT),
    Case("refused, in a file", (Permit.REFUSED, False), MAY_NOT),
    Case("not known yet", (None, True), BEING_REVIEWED),
    Case("a missing answer is a failure", (Permit.UNANSWERED, True), NOT_REVIEWED),
]


@pytest.mark.parametrize("case", KNOWN, ids=ids)
def test_the_failure_of_a_permit(case: Case[tuple[Permit | None, bool], str | None]) -> None:
    """For a PodGroup, a pod that names the queue, and a pod that names none."""
    permit, needed = case.given
    objects = (
        group("g", minMember=1, queue="q"),
        pod("p", "g"),
        pod("named", labels={QUEUE: "q"}),
        pod("default"),
    )
    found = found_in(*objects, permit=permit, needed=needed)

    want = None if case.want is None else ("ForbiddenQueue", case.want)
    assert [
        prefilter_failure_of(found, it) for it in ("g", "pg-named-named", "pg-default-default")
    ] == [want] * 3


# annotations of the queue and of its parent, the default -> whether it is closed, and asked for
STATED: list[Case[tuple[str | None, str | None, str], tuple[bool, bool]]] = [
    Case("nothing is said", (None, None, "open"), (False, True)),
    Case("nothing is said, and closed", (None, None, "closed"), (True, True)),
    Case("an annotation closes against the default", ("closed", None, "open"), (True, True)),
    Case("closed by its parent", (None, "closed", "open"), (True, True)),
    Case("an annotation opens against the default", ("open", None, "closed"), (False, False)),
    Case("open by its parent", (None, "open", "closed"), (False, False)),
    Case("open, and its parent closed", ("open", "closed", "closed"), (False, False)),
    Case("a misspelt annotation closes", ("opn", "open", "open"), (True, True)),
]


def stated(own: str | None, above: str | None) -> list[Any]:
    notes = [{} if it is None else {"annotations": {ACCESS: it}} for it in (own, above)]
    return [queue("q", meta=notes[0], parentQueue="top"), queue("top", meta=notes[1])]


@pytest.mark.parametrize("case", STATED, ids=ids)
def test_the_nearest_annotated_queue_decides(
    case: Case[tuple[str | None, str | None, str], tuple[bool, bool]],
) -> None:
    """Only closed queues refuse PodGroups; for a queue annotated as open there is no question."""
    own, above, unannotated = case.given
    is_closed, is_asked = case.want
    state = ClusterState(options(needed=True, unannotated=unannotated))
    state.permits.put(NAMESPACE_AND_QUEUE, Permit.REFUSED)
    for it in (*stated(own, above), group("g", minMember=1, queue="q"), pod("p", "g")):
        apply_change(state, it)
    prefilter_failure = prefilter_failure_of(state.snapshot(NOW), "g")

    assert (prefilter_failure is not None and prefilter_failure[0] == "ForbiddenQueue") is is_closed
    assert set(state.access_questions) == (
        {AccessQuestion(NAMESPACE_AND_QUEUE, is_closed)} if is_asked else set()
    )


def test_another_annotation_or_parent_counts_at_once() -> None:
    """For pending pods: no object of the namespace has to change for it."""
    state = ClusterState(options(needed=True))
    state.permits.put(NAMESPACE_AND_QUEUE, Permit.REFUSED)
    for it in (
        *stated(None, None),
        group("g", minMember=1, queue="q"),
        pod("p", "g"),
        pod("alone"),
    ):
        apply_change(state, it)
    found = []
    for own, above in ((None, None), (None, "closed"), ("open", "closed"), ("closed", "closed")):
        for it in stated(own, above):
            apply_change(state, it)
        state.check(NOW)
        encoded = state.snapshot(NOW)
        failures = [prefilter_failure_of(encoded, it) for it in ("g", "pg-alone-alone")]
        found.append(([it is not None for it in failures], set(state.access_questions)))
    for it in (queue("q"), queue("top")):  # without a parent and an annotation
        apply_change(state, it)
    assert prefilter_failure_of(state.snapshot(NOW), "g") is None

    asked = [{AccessQuestion(NAMESPACE_AND_QUEUE, is_closed)} for is_closed in (False, True)]
    assert found == [
        ([False] * 2, asked[False]),
        ([True] * 2, asked[True]),
        ([False] * 2, set()),
        ([True] * 2, asked[True]),
    ]


TERMINATING = {"deletionTimestamp": "2026-01-05T07:59:59Z"}
# the permit, and other pods of the PodGroup -> GPUs of terminating pods that the queue is charged
ENDED: list[Case[tuple[Permit | None, list[Any]], int]] = [
    Case("a granted permit charges the queue", (Permit.GRANTED, []), 1),
    Case("a permit that is being asked charges the queue", (None, []), 1),
    Case("a refused permit charges nothing", (Permit.REFUSED, []), 0),
    Case("refused, and others wait", (Permit.REFUSED, [pod("b", "g")]), 0),
    Case("refused, and others run", (Permit.REFUSED, [pod("b", "g", node="n")]), 1),
]


@pytest.mark.parametrize("case", ENDED, ids=ids)
def test_terminating_pods_count_where_their_podgroup_may_be(case: Case[Any, int]) -> None:
    """They ran in another queue, unless pods of their PodGroup run; a question is asked, too."""
    permit, others = case.given
    state = ClusterState(options(needed=True))
    ends = pod("a", "g", node="n", meta=TERMINATING)
    for it in (CLOSED, node("n"), group("g", minMember=1, queue="q"), ends, *others):
        apply_change(state, it)
    state.snapshot(NOW)
    assert set(state.access_questions) == {AccessQuestion(NAMESPACE_AND_QUEUE, is_closed=True)}
    state.permits.put(NAMESPACE_AND_QUEUE, permit)

    releasing = state.snapshot(NOW).snapshot.queues.releasing

    assert sum(it.amounts[ResourceKind.GPU] for it in releasing) == 1000 * case.want
    state.check(NOW)


def test_a_value_that_is_neither_is_reported() -> None:
    """With the queue, the annotation, and the allowed values."""
    given = cluster_cache(queue(meta={"annotations": {ACCESS: "private"}}))
    (reported,) = (it.text for it in encode(given, options()).warnings)
    assert reported == (
        "queue q: annotation trainer-kai.dev/access is 'private', but must be closed or open; "
        "closed is used, also by the queues below that have no such annotation"
    )


def test_no_question_for_a_queue_that_does_not_exist() -> None:
    """Whatever queues pods name, there are no more questions than queues."""
    state = ClusterState(options(needed=True))
    state.put_all(cluster_cache(CLOSED, queue("top"), queue("leaf", parentQueue="top")))
    for name in ("none", "top", "q"):
        state.put(*decode_object(pod(name, labels={QUEUE: name})))
    found = state.snapshot(NOW)

    assert set(state.access_questions) == {AccessQuestion(NAMESPACE_AND_QUEUE, is_closed=True)}
    failures = [prefilter_failure_of(found, f"pg-{it}-{it}") for it in ("none", "top")]
    assert [prefilter_failure and prefilter_failure[0] for prefilter_failure in failures] == [
        "QueueMissing",
        "Misconfigured",
    ]


def test_access_questions_go_with_their_podgroups() -> None:
    """With the last PodGroup of the namespace and queue."""
    state = ClusterState(options())
    for it in (queue(), group("g", queue="q"), pod("a", "g"), pod("b")):
        apply_change(state, it)
    state.snapshot(NOW)
    assert set(state.access_questions) == {AccessQuestion(NAMESPACE_AND_QUEUE, is_closed=False)}
    state.put(PODS, Key("ns", "b"), None)
    state.snapshot(NOW)
    assert set(state.access_questions) == {AccessQuestion(NAMESPACE_AND_QUEUE, is_closed=False)}
    state.put(PODS, Key("ns", "a"), None)
    state.snapshot(NOW)
    assert set(state.access_questions) == set()


def test_an_answer_changes_the_podgroups_that_it_concerns() -> None:
    """And no others, and none twice."""
    cache = ClusterCache(lambda: options(needed=True))
    seen: list[set[AccessQuestion]] = []
    cache.on_access_questions = lambda questions: seen.append({*questions})
    for it in (CLOSED, group("g", minMember=1, queue="q"), pod("p", "g"), pod("b")):
        cache.update(*decode_object(it))
    cache.snapshot()
    assert seen == [{AccessQuestion(NAMESPACE_AND_QUEUE, is_closed=True)}]
    assert cache.set_permit(NAMESPACE_AND_QUEUE, Permit.GRANTED) == ClusterEvent.ANY
    assert cache.set_permit(NAMESPACE_AND_QUEUE, Permit.GRANTED) == NO_EVENT
    found = cache.snapshot()
    assert (prefilter_failure_of(found, "g"), prefilter_failure_of(found, "pg-b-b")) == (None, None)
    cache.check()
    assert cache.set_permit(NAMESPACE_AND_QUEUE, Permit.REFUSED) == ClusterEvent.ANY
    assert prefilter_failure_of(cache.snapshot(), "g") == ("ForbiddenQueue", MAY_NOT)
    cache.check()


def requested(found: EncodedSnapshot) -> int:
    return int(found.snapshot.queues.requested[0, ResourceKind.GPU]) // 1000


@pytest.mark.parametrize("permit", [Permit.REFUSED, Permit.UNANSWERED, None])
def test_a_refused_podgroup_requests_nothing(permit: Permit | None) -> None:
    """No fair share becomes smaller by a PodGroup that can never start."""
    objects = (node("a", gpu=8), group("g", minMember=1, queue="q"), pod("p", "g"))
    standalone = pod("b")

    assert requested(found_in(*objects, standalone, permit=Permit.GRANTED)) == 2
    assert requested(found_in(*objects, standalone, permit=permit)) == 0


def bound(found: EncodedSnapshot) -> set[str]:
    made = plan(found.snapshot, POLICIES)
    return {found.pod_keys[it.pod].name for one in made.allocations for it in one.binds}


_RESERVED = '{"default": {"nodes": {"a": 1}, "cause": "repair"}}'

# minimum, running and pending pods, reserved places -> bound pods, and what the queue requests
RUNNING: list[Case[tuple[int, int, int, str], tuple[int, int]]] = [
    Case("it has all", (2, 2, 0, ""), (0, 2)),
    Case("it wants more than it needs", (2, 2, 2, ""), (0, 2)),
    Case("it lost one that it needs", (2, 1, 1, ""), (1, 2)),
    Case("it lost one that it needs, and wants more", (2, 1, 3, ""), (1, 4)),
    Case("a place is kept for one that it needs", (3, 2, 1, _RESERVED), (1, 3)),
    Case("and one more would like to come", (3, 2, 2, _RESERVED), (1, 4)),
    Case("what it could spare has no place that is kept", (1, 2, 1, _RESERVED), (0, 2)),
]


@pytest.mark.parametrize("permit", [Permit.REFUSED, Permit.UNANSWERED, None])
@pytest.mark.parametrize("case", RUNNING, ids=ids)
def test_a_running_podgroup_stays_and_does_not_grow(
    case: Case[tuple[int, int, int, str], tuple[int, int]], permit: Permit | None
) -> None:
    """Lost pods may be replaced, and nothing is taken from it, whatever the permit."""
    minimum, running, pending, reserved = case.given
    notes = {"annotations": {RESERVED: reserved}} if reserved else {}
    found = found_in(
        node("a", gpu=8),
        group("g", minMember=minimum, queue="q", meta=notes),
        *(pod(f"r{i}", "g", node="a") for i in range(running)),
        *(pod(f"w{i}", "g") for i in range(pending)),
        permit=permit,
    )
    made = plan(found.snapshot, POLICIES)

    assert (len(bound(found)), requested(found)) == case.want
    assert made.evictions == ()
    reported = [it.reason for it in made.rejections]
    assert reported == (["ForbiddenQueue"] if pending > case.want[0] else [])
    assert podgroup_of(found, "g").prefilter_failure is None


def test_a_running_podgroup_with_a_permit_grows() -> None:
    """As far as there is room."""
    found = found_in(
        node("a", gpu=8),
        group("g", minMember=1, queue="q"),
        pod("r", "g", node="a"),
        *(pod(f"w{i}", "g") for i in range(3)),
        permit=Permit.GRANTED,
    )
    assert bound(found) == {"w0", "w1", "w2"}


def test_a_nomination_is_no_start() -> None:
    """A PodGroup that was nominated while its permit was granted does not start without it."""
    is_pending = pod("p", "g", status={"nominatedNodeName": "a"})
    objects = (node("a", gpu=8), group("g", minMember=1, queue="q"), is_pending)
    assert bound(found_in(*objects, permit=Permit.REFUSED)) == set()
    assert bound(found_in(*objects, permit=Permit.GRANTED)) == {"p"}


def test_closed_queues_are_suggested_only_where_there_are_no_others() -> None:
    """Most namespaces may not use them."""
    closed = queue("q", meta={"annotations": {ACCESS: "closed"}})
    missing = QueueTable(cluster_cache(closed, queue("r")).queues).prefilter_failure("x")
    alone = QueueTable(cluster_cache(closed).queues).prefilter_failure("x")

    assert missing is not None
    assert missing.values == ("x", "r")
    assert alone is not None
    assert alone.values == ("x", "q")


def test_the_queue_that_was_probably_meant_comes_first() -> None:
    """Also if it is closed: then the next message says who grants it."""
    closed = queue("vision", meta={"annotations": {ACCESS: "closed"}})
    missing = QueueTable(cluster_cache(closed, queue("r")).queues).prefilter_failure("visoin")

    assert missing is not None
    assert missing.values == ("visoin", "vision (did you mean this one?), r")
