"""From KAI: its objects stay; what trainer-kai does not read or do is named."""

from typing import Any

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.migrate.migrated import Obj, example, migrate, notes
from trainer_kai.errors import ConfigError

FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


CLOSED: Obj = {"annotations": {"trainer-kai.dev/access": "closed"}}


def config(spec: Any) -> Obj:
    meta = {"name": "kai-config"}
    return {"apiVersion": "kai.scheduler/v1", "kind": "Config", "metadata": meta, "spec": spec}


def shard(spec: Any, name: str = "default") -> Obj:
    return {**config(spec), "kind": "SchedulingShard", "metadata": {"name": name}}


def queue(name: str = "q", parent: str = "", **meta: Any) -> Obj:
    resources = dict.fromkeys(("gpu", "cpu", "memory"), FREE)
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    head = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue"}
    return {**head, "metadata": {"name": name, **meta}, "spec": spec}


def pod_group(name: str, kind: str, queue_name: str = "q") -> Obj:
    owner = {"apiVersion": "v1", "kind": kind, "name": "o", "uid": "1"}
    meta = {"namespace": "ns", "name": name, "ownerReferences": [owner]}
    head = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup"}
    return {**head, "metadata": meta, "spec": {"queue": queue_name, "minMember": 1}}


def jobset(annotations: dict[str, str], owner: str = "TrainJob") -> Obj:
    reference = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": owner,
        "name": "job",
        "uid": "1",
        "controller": True,
    }
    meta = {
        "namespace": "ns",
        "name": "job",
        "annotations": annotations,
        "ownerReferences": [reference],
    }
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta}


def pod(name: str, **fields: Any) -> Obj:
    """Return a pod of KAI's scheduler that names a PodGroup."""
    annotations = {"pod-group-name": "pg", **fields.pop("annotations", {})}
    meta = {"namespace": "ns", "name": name, "annotations": annotations}
    spec = {"schedulerName": "kai-scheduler", **fields}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


# a setting of KAI → the field, and what to do; "" where nothing is
SETTINGS: list[Case[Obj, list[tuple[str, str]]]] = [
    Case("defaults", config({"admission": {"gpuSharing": False}, "global": {}}), []),
    Case(
        "GPU sharing, as it is here",
        config(
            {
                "admission": {"gpuSharing": True, "gpuPodRuntimeClassName": "nvidia"},
                "binder": {"resourceReservation": {"allocationTimeout": 40}},
            }
        ),
        [],
    ),
    Case(
        "GPU sharing with settings",
        config(
            {
                "admission": {
                    "blockNvidiaVisibleDevices": True,
                    "gpuPodRuntimeClassName": "",
                    "gpuFractionRuntimeClassName": "other",
                },
                "binder": {
                    "cdiEnabled": True,
                    "plugins": {"hamicore": {"enabled": True}},
                    "resourceReservation": {"allocationTimeout": 60},
                },
            }
        ),
        [
            ("spec.admission.blockNvidiaVisibleDevices", "admission.nvidia_visible_devices"),
            ("spec.binder.cdiEnabled", "reservation_pods.cdi to true"),
            ("spec.binder.plugins.hamicore.enabled", "gpu_sharing.memory_limits to hami-core"),
            (
                "spec.binder.resourceReservation.allocationTimeout",
                "60: set the setting reservation_pods.allocation_s",
            ),
            (
                "spec.admission.gpuPodRuntimeClassName",
                "'': set the setting gpu_sharing.runtime_class",
            ),
            ("spec.admission.gpuFractionRuntimeClassName", "'other': set the setting gpu_sharing."),
        ],
    ),
    Case(
        "another scheduler name",
        config({"global": {"schedulerName": "mine"}}),
        [("spec.global.schedulerName", "'mine': set the setting scheduler_name")],
    ),
    Case(
        "spreading, for which KAI turns consolidation off",
        shard({"placementStrategy": {"gpu": "spread", "cpu": "binpack"}}),
        [
            ("spec.placementStrategy.gpu", "'spread': set the setting policies.gpu_placement"),
            ("spec.actions", "policies.actions to allocate,reclaim,preempt,stalegangeviction"),
        ],
    ),
    Case(
        "an action that is off",
        shard({"actions": {"preempt": {"enabled": False}, "reclaim": {"enabled": True}}}),
        [("spec.actions", "to allocate,consolidation,reclaim,stalegangeviction")],
    ),
    Case(
        "a plugin that is off",
        shard({"plugins": {"elastic": {"enabled": False}, "numa": {"enabled": False}}}),
        [("spec.plugins.elastic.enabled", "add elastic to the setting policies.disabled")],
    ),
    Case(
        "a flag with a setting",
        shard({"args": {"default-staleness-grace-period": "30s"}}),
        [("spec.args.default-staleness-grace-period", "'30s': set the setting staleness_grace_s")],
    ),
]

# a setting of KAI without an equivalent → the field
WITHOUT: list[Case[Obj, list[str]]] = [
    Case(
        "another namespace of reservation pods",
        config({"binder": {"resourceReservation": {"namespace": "mine"}}}),
        ["spec.binder.resourceReservation.namespace"],
    ),
    Case("a node pool", shard({"partitionLabelValue": "a"}), ["spec.partitionLabelValue"]),
    Case("the use of the past", shard({"kValue": 0.5}), ["spec.kValue"]),
    Case("a flag", shard({"args": {"v": "4"}}), ["spec.args.v"]),
    Case("a plugin of their own", shard({"plugins": {"mine": {}}}), ["spec.plugins.mine"]),
    Case(
        "arguments",
        shard({"plugins": {"minruntime": {"arguments": {"a": "b"}}}}),
        ["spec.plugins.minruntime.arguments"],
    ),
]


@pytest.mark.parametrize("case", SETTINGS, ids=ids)
def test_settings_with_an_equivalent(case: Case[Obj, list[tuple[str, str]]]) -> None:
    """The note names the setting of trainer-kai."""
    found = [
        it for it in migrate("kai", queue("closed"), case.given).by_hand if "Queue" not in str(it)
    ]

    assert [it.path for it in found] == [path for path, _ in case.want]
    assert all(text in it.message for it, (_, text) in zip(found, case.want, strict=True))


@pytest.mark.parametrize("case", WITHOUT, ids=ids)
def test_settings_without_an_equivalent(case: Case[Obj, list[str]]) -> None:
    assert [it.path for it in migrate("kai", case.given).unsupported] == case.want


def test_a_second_shard_is_not_supported() -> None:
    """One scheduler serves all nodes."""
    found = migrate("kai", shard({}, "a"), shard({}, "b"))

    assert notes(found.unsupported) == [("SchedulingShard b", "spec")]


def test_queues_stay_and_are_open_unless_annotated() -> None:
    """Only the root is named: closing it closes those below."""
    found = migrate("kai", queue("root"), queue("low", "root"), queue("shut", **CLOSED))

    assert [str(it.source) for it in found.becomes] == ["Queue low", "Queue root", "Queue shut"]
    assert notes(found.by_hand) == [("Queue root", "metadata.annotations")]
    assert found.manifests == []


def test_numbers_of_queues_are_checked_as_by_admission() -> None:
    """An absent resource is the commonest mistake; a sum above the parent is named once."""
    eight, four = ({"quota": it, "limit": it, "overQuotaWeight": 1} for it in (8, 4))
    low, top = queue("low"), queue("top")
    low["spec"] = {"parentQueue": "top", "resources": {"gpu": eight, "memory": FREE}}
    top["spec"]["resources"] = {**top["spec"]["resources"], "gpu": four}
    found = migrate("kai", low, top)

    assert notes(found.by_hand) == [
        ("Queue top", "metadata.annotations"),
        ("Queue low", "spec.resources.cpu"),
        ("Queue top", "spec.resources.gpu.quota"),
        ("Queue top", "spec.resources.gpu.limit"),
    ]
    assert "no pod that requests CPU starts" in found.by_hand[1].message


def test_a_broken_tree_of_queues_is_named() -> None:
    """PodGroups below a missing parent or in a cycle wait."""
    given = (queue("a", "b"), queue("b", "a"), queue("below", "a"), queue("lost", "gone"))
    found = [it for it in migrate("kai", *given).by_hand if it.path == "spec.parentQueue"]

    assert [it.message.partition(". ")[0] for it in found] == [
        "the queue is below itself: a → b → a",
        "the queue is below itself: b → a → b",
        "Queue gone does not exist in the input",
    ]


def test_flags_with_keys_of_any_type_are_sorted() -> None:
    """YAML has numbers as keys."""
    found = migrate("kai", shard({"args": {1: "x", "v": "4"}, "plugins": {2: {}, "mine": {}}}))

    assert [it.path for it in found.unsupported] == [
        *("spec.args.1", "spec.args.v", "spec.plugins.2", "spec.plugins.mine")
    ]


def test_podgroups_of_one_queue_are_one_line() -> None:
    """The first is named, and the number of the others."""
    found = migrate("kai", *(pod_group(f"pg-{i}", "JobSet") for i in range(3)))

    assert [(str(it.source), it.likes) for it in found.becomes] == [("PodGroup ns/pg-0", 2)]
    assert found.unsupported == []


def test_nothing_groups_the_pods_of_other_kinds() -> None:
    """The running ones keep their PodGroups."""
    found = migrate("kai", pod_group("pg-a", "RayCluster"), pod_group("pg-b", "RayCluster", "r"))
    (note,) = found.unsupported

    assert (str(note.source), note.path) == ("PodGroup ns/pg-a", "metadata.ownerReferences")
    assert "new pods of a RayCluster" in note.message
    assert note.message.endswith("(and 1 more)")


@pytest.mark.parametrize(
    ("given", "is_named"),
    [
        (jobset({}), True),
        (jobset({"trainer-kai.dev/admitted": "v1"}), False),
        (jobset({}, "Other"), False),
        ({**jobset({}), "status": {"terminalState": "Completed"}}, False),
    ],
    ids=["from before", "admitted", "of another owner", "ended"],
)
def test_trainjobs_from_before_the_webhook_are_named(given: Obj, *, is_named: bool) -> None:
    """When one is suspended, its JobSet is made anew; one that has ended is not resumed."""
    found = migrate("kai", queue(**CLOSED), given).by_hand

    assert bool(found) == is_named
    assert all("kubectl -n ns delete jobset job" in it.message for it in found)


def test_pods_with_a_topology_or_claims_need_nothing() -> None:
    required = {"kai.scheduler/topology-required-placement": "rack"}
    claims = [{"name": "gpu"}]
    pods = pod("a", annotations=required), pod("b", resourceClaims=claims)

    assert not notes(migrate("kai", queue(), *pods).unsupported)


@pytest.mark.parametrize(("phase", "is_named"), [("", True), ("Succeeded", False)])
def test_unfinished_bindings_are_awaited(phase: str, *, is_named: bool) -> None:
    """KAI's binder is the only one that carries them out."""
    request = {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"namespace": "ns", "name": "pod"},
        "spec": {"selectedNode": "n"},
        "status": {"phase": phase},
    }
    found = migrate("kai", queue(**CLOSED), request)

    assert (("BindRequest ns/pod", "status.phase") in notes(found.by_hand)) == is_named


@pytest.mark.parametrize(
    "spec", [[], {"resources": "many"}, {"resources": {"gpu": {"quota": "x"}}}]
)
def test_a_fault_names_file_object_and_field(spec: Any) -> None:
    """A Queue that cannot be read is an error."""
    with pytest.raises(ConfigError, match=r"in.yaml: Queue q: spec"):
        migrate("kai", {**queue(), "spec": spec})


@pytest.mark.parametrize(
    "spec", [[], "x", 1, None, {"args": [], "plugins": 1, "actions": {"a": 1}}]
)
def test_settings_of_any_shape_are_read(spec: Any) -> None:
    """A field of another shape is skipped; the API server of KAI would have refused it."""
    migrate("kai", queue(), shard(spec), config(spec))


def test_an_unknown_version_is_an_error() -> None:
    """Its fields may mean something else."""
    with pytest.raises(ConfigError, match=r"Queue q: apiVersion: 'v9' is unknown; known are v2"):
        migrate("kai", {**queue(), "apiVersion": "scheduling.run.ai/v9"})


def test_the_order_of_the_files_does_not_matter() -> None:
    """The example is read backwards too."""
    objects = example("kai")

    assert migrate("kai", *objects) == migrate("kai", *reversed(objects))
