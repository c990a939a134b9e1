"""A state that gets every change has the same snapshot as one that gets all at once."""

from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.commands import changed_annotations, commands_from_plan
from scheduler.state.inputs import StateOptions
from scheduler.state.podgroups import index
from scheduler.state.podgroups.podgroup import PodGroupRecord
from scheduler.state.snapshot.cluster_state import ClusterState, encode
from scheduler.state.snapshot.encoded_snapshot import EncodedSnapshot, dump
from tests.support.size import examples
from tests.support.state.objects import NOW, decode_object, group, make_object, node, pod, queue
from tests.support.state.random_changes import ObjectChange, apply_change, changes, deleted
from tests.support.state.transitions import TRANSITIONS, Transition
from trainer_kai.api.meta import Key
from trainer_kai.api.pod import Pod
from trainer_kai.api.resources import PODS

POLICIES: Final = build_policies(PolicySelection())
OPTIONS: Final = StateOptions(now=NOW, default_queue="q", places_gpu_shares=True)
_JOB_SPEC: Final = {"template": {"spec": {"schedulerName": "kai-scheduler"}}}
_PLACES: Final = [node("a", labels={"zone": "x"}), node("b", labels={"zone": "y"})]


@pytest.mark.parametrize("trusts_gpu_labels", [False, True])
@pytest.mark.parametrize("turn", TRANSITIONS, ids=[turn.name for turn in TRANSITIONS])
def test_after_a_change_the_snapshot_is_that_of_a_new_state(
    turn: Transition, *, trusts_gpu_labels: bool
) -> None:
    """Also when it is put twice, and when all objects are put once more."""
    state = ClusterState(replace(OPTIONS, trusts_gpu_labels=trusts_gpu_labels))
    for one in (queue(), *_PLACES, *turn.before):
        apply_change(state, one)
    state.check(NOW)

    for change in turn.changes:
        apply_change(state, change)
        apply_change(state, change)
        state.check(NOW)
    state.check(NOW + turn.seconds)

    state.put_all(state.cluster)
    state.check(NOW + turn.seconds)


def _labelled(name: str, app: str) -> Pod:
    _, _, found = decode_object(pod(name))
    meta = msgspec.structs.replace(found.metadata, labels={"app": app})
    return Pod(metadata=meta, spec=found.spec, status=found.status)


def test_an_identity_is_only_good_while_its_object_lives() -> None:
    """Labels of a new pod may get the memory, and the identity, of those of a deleted one."""
    state = ClusterState(OPTIONS)
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "1"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for one in (*_PLACES, pod("q", affinity=near)):
        apply_change(state, one)
    for name in ("alike", "gone"):
        state.put(PODS, Key("ns", name), _labelled(name, "1"))
        state.snapshot(NOW)
    labels = state.cluster.pods[Key("ns", "gone")].metadata.labels
    identity = id(labels)
    state.put(PODS, Key("ns", "gone"), None)
    state.snapshot(NOW)

    del labels  # that was the last reference
    others = [_labelled("new", "2") for _ in range(1000)]
    (new,) = (one for one in others if id(one.metadata.labels) == identity)
    state.put(PODS, Key("ns", "new"), new)
    state.check(NOW)


def test_a_status_alone_rebuilds_no_podgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a PodGroup we write it, and of a Job no plan reads it; each Job changes several times."""
    built: list[Key] = []

    def counted(number: int, key: Key, *inputs: Any) -> PodGroupRecord:
        built.append(key)
        return PodGroupRecord(number, key, *inputs)

    monkeypatch.setattr(index, "PodGroupRecord", counted)
    state, owner = ClusterState(OPTIONS), {"apiVersion": "batch/v1", "kind": "Job", "name": "j"}
    job = make_object("Job", "j", {"uid": "j"}, spec=_JOB_SPEC)
    owned = {"ownerReferences": [{**owner, "uid": "j"}]}
    podgroup = group("g", meta=owned, minMember=1)
    for one in (queue(), *_PLACES, job, podgroup, pod("p", "g")):
        apply_change(state, one)
    state.check(NOW)
    built.clear()

    then = {"uid": "j", "resourceVersion": "7"}
    running = {**make_object("Job", "j", then, spec=_JOB_SPEC), "status": {"active": 1}}
    written = {"resourcesStatus": {"requested": {"nvidia.com/gpu": "1"}}}
    later = {**group("g", meta={**owned, "resourceVersion": "8"}, minMember=1), "status": written}
    for one in (running, later):
        apply_change(state, one)
    state.snapshot(NOW)
    assert built == []
    assert state.cluster.pod_groups[Key("ns", "g")].status.resources_status.requested

    for one in ({**running, "spec": {**_JOB_SPEC, "suspend": True}}, group("g", minMember=2)):
        apply_change(state, one)
        state.snapshot(NOW)
        assert built.pop() == Key("ns", "g")
    state.check(NOW)


def test_a_returned_snapshot_does_not_change() -> None:
    """A plan is made from it while the state gets changes."""
    state = ClusterState(OPTIONS)
    for one in (queue(), *_PLACES, pod("p", node="a"), pod("q")):
        apply_change(state, one)
    before = state.snapshot(NOW)
    reported = dump(before)

    for one in (
        pod("q", node="b"),
        node("a", gpu=1, labels={"zone": "x"}),
        node("0"),
        queue("r", parentQueue="q"),
    ):
        apply_change(state, one)
        state.snapshot(NOW + 1)

    assert dump(before) == reported


def test_a_state_that_is_mostly_empty_begins_anew() -> None:
    """Rows of pods that are gone cost as much as others."""
    state = ClusterState(OPTIONS)
    names = [f"p{n}" for n in range(300)]
    for one in (*_PLACES, *(pod(name, node="a") for name in names)):
        apply_change(state, one)
    state.check(NOW)
    for name in names[1:]:
        apply_change(state, deleted(pod(name)))

    state.check(NOW)
    found = state.snapshot(NOW)

    assert [key.name for key in found.pod_keys] == ["p0"]


_CASES = [[*turn.before, *turn.changes] for turn in TRANSITIONS]


@settings(max_examples=examples(20))
@given(
    st.lists(st.tuples(st.sampled_from(_CASES) | changes(), st.sampled_from([0, 60, -90]))),
    st.booleans(),
)
def test_after_any_changes_the_snapshot_is_that_of_a_new_state(
    happened: list[tuple[list[ObjectChange], int]], trusts_gpu_labels: bool
) -> None:
    """And the plan is the same."""
    known = replace(OPTIONS, trusts_gpu_labels=trusts_gpu_labels)
    state, now = ClusterState(known), NOW
    for some, seconds in happened:
        for change in some:
            apply_change(state, change)
        now += seconds

        state.check(now)
        options = replace(known, now=now)
        assert _commands(state.snapshot(now)) == _commands(encode(state.cluster, options))


def _commands(encoded: EncodedSnapshot) -> list[Any]:
    """Return the commands for a plan, and its rejections."""
    made = plan(encoded.snapshot, POLICIES)
    commands = commands_from_plan(encoded, made)
    reported = [
        (it.group, it.reason, rejection_message(encoded.snapshot, it.rejection))
        for it in commands.unschedulable
    ]
    return [commands.podgroups, [*changed_annotations(encoded, made)], reported]
