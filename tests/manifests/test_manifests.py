"""What stands in `manifests/`, without a cluster: nothing unread, no wildcard, no name misspelt."""

import re
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pytest

from tests.manifests.manifest_files import MANIFESTS, YAML, documents, objects
from trainer_kai.api import names
from trainer_kai.api.gpu_requests import SHARE_REQUESTS
from trainer_kai.api.resources import CLUSTER_RUNTIMES, PODGROUPS, QUEUES, RUNTIMES, TOPOLOGIES
from trainer_kai.api.syntax import dns_subdomain_fault
from trainer_kai.policy.misspelled_keys import TRAINJOB_KEYS as READ
from trainer_kai.policy.pods.gpu_share_config_maps import (
    GPU_PORTION,
    MEMORY_LIMIT,
    NUMBER_OF_GPUS,
    VISIBLE_DEVICES,
    GpuConfigMaps,
    SharingContainer,
    is_config_map_prefix,
)

KUSTOMIZATIONS: Final = [path for path in YAML if path.name == "kustomization.yaml"]
USER_ROLES: Final = {
    "trainer-kai-view",
    "trainer-kai-queue-admin",
    "trainer-kai-queue-owner",
    "trainer-kai-user",
    "trainer-kai-queue-user",
    "trainer-kai-snapshot-reader",
}
_POLICY: Final = "ValidatingAdmissionPolicy"
OWN_NAMES: Final = re.compile(r"trainer-kai\\?\.dev/[a-z-]+")
KAI: Final = re.compile(r"kai\.scheduler/[a-z-]+")

Obj = dict[str, Any]


def known(prefix: str) -> set[str]:
    """Return the names of a domain that the product knows."""
    values = [value for value in vars(names).values() if isinstance(value, str)]
    return {value for value in values if value.startswith(prefix)}


def named(pattern: re.Pattern[str]) -> set[str]:
    """Return the names that stand in some manifest."""
    found = chain.from_iterable(pattern.findall(path.read_text()) for path in YAML)
    return {name.replace("\\", "") for name in found}


def rules(*kinds: str) -> list[tuple[str, Obj]]:
    """Return the rules of roles, each with the name of its role."""
    return [(role["metadata"]["name"], rule) for role in objects(*kinds) for rule in role["rules"]]


def webhooks() -> list[Obj]:
    """Return all of ours, and that of a component; both configurations have one name."""
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    found = objects(*kinds)
    assert {it["kind"] for it in found} == set(kinds)
    assert len({it["metadata"]["name"] for it in found}) == 1
    [[operation]] = documents(MANIFESTS / "components" / "device-access" / "webhook.yaml")
    hooks = [hook for configuration in found for hook in configuration["webhooks"]]
    return [*hooks, operation["value"]]


def webhook(name: str) -> Obj:
    """Return one of our webhooks."""
    [found] = [hook for hook in webhooks() if hook["name"] == name]
    return dict(found)


# By hand, as docs/gpu-sharing.md says: it is a pod that has to wait for others.
_APPLIED_LATER = MANIFESTS / "examples/gpu-sharing/third.yaml"


@pytest.mark.parametrize("path", YAML, ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_a_file_is_read_by_some_kustomization(path: Path) -> None:
    """What nothing names is never applied, and nobody notices."""
    assert documents(path)
    if path.name == "kustomization.yaml":
        first, *_ = path.relative_to(MANIFESTS).parts
        assert first in {"overlays", "examples", "components"} or path.parent in _read()
    else:
        assert path in _read() or path == _APPLIED_LATER


@pytest.mark.parametrize(
    "path", KUSTOMIZATIONS, ids=lambda path: str(path.parent.relative_to(MANIFESTS))
)
def test_overlays_build_on_the_base_and_on_nothing_else(path: Path) -> None:
    """What is read is there, and an overlay is made of the base, of another or of a component."""
    [kustomization] = documents(path)
    for entry in (*kustomization.get("resources", ()), *kustomization.get("components", ())):
        target = (path.parent / entry).resolve()
        assert target.exists(), entry
        assert target.is_relative_to(MANIFESTS)


def test_there_is_no_wildcard() -> None:
    """A list says what a process does; a star says nothing."""
    found = rules("ClusterRole", "Role")
    assert len(found) > 10
    for role, rule in found:
        of_paths = role == "trainer-kai-snapshot-reader"
        for field in ("nonResourceURLs",) if of_paths else ("apiGroups", "resources"):
            assert rule[field], (role, field)
        assert len(rule) == (2 if of_paths else 3) + ("resourceNames" in rule)
        assert "*" not in "".join(chain.from_iterable(rule.values())), role


def test_every_role_is_bound_to_one_process_or_meant_for_people() -> None:
    """A role that nobody has is a mistake, and so is one that two processes share."""
    bindings = objects("ClusterRoleBinding", "RoleBinding")
    for binding in bindings:
        [subject] = binding["subjects"]
        if subject["kind"] == "Group":  # of an example: who may use which queue
            assert subject["name"].startswith("system:serviceaccounts")
            continue
        assert subject["kind"] == "ServiceAccount"
        assert subject["name"] == binding["roleRef"]["name"]
    roles = {(role["kind"], role["metadata"]["name"]) for role in objects("ClusterRole", "Role")}
    bound = {(binding["roleRef"]["kind"], binding["roleRef"]["name"]) for binding in bindings}

    assert {name for _, name in roles - bound} == USER_ROLES
    assert bound <= roles


def test_nobody_writes_queues_or_groups_by_default() -> None:
    """A role for people that is added to others only reads."""
    for role in objects("ClusterRole"):
        labels = role["metadata"].get("labels", {})
        aggregated = [key for key in labels if "aggregate-to" in key]
        if aggregated:
            assert aggregated == ["rbac.authorization.k8s.io/aggregate-to-view"]
            for rule in role["rules"]:
                assert set(rule["verbs"]) == {"get", "list", "watch"}


def test_the_webhooks_fail_as_designed() -> None:
    """We may hold up JobSets, gangs of Jobs, pods with shares of GPUs, and a component more."""
    [configuration] = objects("MutatingWebhookConfiguration")
    name = configuration["metadata"]["name"]
    policies = {
        hook["name"]: (
            hook["failurePolicy"],
            hook["timeoutSeconds"],
            hook["rules"][0]["operations"],
        )
        for hook in webhooks()
    }

    assert "jobset-" < name < "kueue-"
    assert name < "mutating-kai-admission"
    assert policies == {
        "jobset-create.trainer-kai.dev": ("Fail", 5, ["CREATE"]),
        "jobset-update.trainer-kai.dev": ("Ignore", 5, ["UPDATE"]),
        "pod.trainer-kai.dev": ("Ignore", 3, ["CREATE"]),
        "gpu-share.trainer-kai.dev": ("Fail", 5, ["CREATE"]),
        "job-gang.trainer-kai.dev": ("Fail", 5, ["CREATE"]),
        "job.trainer-kai.dev": ("Ignore", 5, ["CREATE", "UPDATE"]),
        "device-access.trainer-kai.dev": ("Fail", 5, ["CREATE"]),
        "trainjob.trainer-kai.dev": ("Ignore", 5, ["CREATE", "UPDATE"]),
        "trainjob-details.trainer-kai.dev": ("Ignore", 3, ["UPDATE"]),
        "queue.trainer-kai.dev": ("Ignore", 3, ["CREATE", "UPDATE", "DELETE"]),
        "workload.trainer-kai.dev": ("Ignore", 3, ["CREATE", "UPDATE"]),
    }


def test_the_webhooks_select_by_the_names_we_know() -> None:
    """Namespaces, pods and owners are told apart by names that the product spells once."""
    for hook in webhooks():
        if hook["rules"][0]["scope"] == "Namespaced":
            named, ours = hook["namespaceSelector"]["matchExpressions"]
            assert (named["key"], named["operator"]) == (names.NAMESPACE_NAME, "NotIn")
            assert ours == {"key": names.INJECT, "operator": "NotIn", "values": ["disabled"]}
        assert hook["sideEffects"] == "None"
        assert hook.get("reinvocationPolicy", "IfNeeded") == "IfNeeded"
        assert hook["matchPolicy"] == "Equivalent"
        assert "caBundle" not in hook["clientConfig"]
    [pods] = webhook("pod.trainer-kai.dev")["objectSelector"]["matchExpressions"]
    owned = webhook("jobset-create.trainer-kai.dev")["matchConditions"][0]["expression"]
    assert pods == {"key": names.GANG, "operator": "Exists"}
    assert f"startsWith('{names.TRAINER}/')" in owned
    assert f"'{names.ADMITTED}' in object.metadata.annotations" in owned
    report = webhook("trainjob-details.trainer-kai.dev")["matchConditions"][1]["expression"]
    (listed,) = re.findall(r"\['gpu.*?\]", report)
    assert set(re.findall(r"'([a-z./-]+)'", listed)) == set(READ.annotations)
    ours = webhook("workload.trainer-kai.dev")["matchConditions"][1]["expression"]
    assert set(re.findall(r"'([a-z./-]+)'", ours)) == {names.QUEUE, names.SCHEDULER_NAME}
    marked = webhook("workload.trainer-kai.dev")["matchConditions"][3]["expression"]
    assert f"!('{names.ADMITTED}' in object.metadata.annotations)" in marked
    groups = [rule["apiGroups"] for rule in webhook("workload.trainer-kai.dev")["rules"]]
    assert groups == [
        [names.APPS],
        [names.BATCH],
        *([[names.KUBEFLOW]] * 2),
        [names.RAY],
        [names.LEADER_WORKER_SET],
    ]


def test_jobs_are_selected_by_the_names_we_know() -> None:
    """A new Job is reviewed once: as a gang, where it must not start without us, or as another."""
    hooks = webhook("job-gang.trainer-kai.dev"), webhook("job.trainer-kai.dev")
    gang, other = ([it["expression"] for it in hook["matchConditions"]] for hook in hooks)
    owned, ours, whole = gang

    assert owned.removeprefix("has(object.metadata) && ") in other[1]
    assert ours in other[1]
    for name in (names.BATCH_MIN_MEMBER, names.GANG):
        assert f"'{name}' in object." in whole
    for condition in whole.strip("()").split(") || ("):
        assert f"!({condition})" in other[1]
    for name in (names.ADMITTED, names.QUEUE):
        assert f"'{name}' in " in other[1]
    assert [hook["rules"][0]["apiGroups"] for hook in hooks] == [[names.BATCH]] * 2


def test_pods_that_use_gpus_are_selected_by_the_names_we_know() -> None:
    """Of our scheduler, with a request for a share; the guard looks at all pods of ours."""
    share, guard = webhook("gpu-share.trainer-kai.dev"), webhook("device-access.trainer-kai.dev")
    ours, requests, free = (it["expression"] for it in share["matchConditions"])
    others = ("name", "matchConditions")

    assert f"== '{names.SCHEDULER_NAME}'" in ours
    for name in (names.GPU_FRACTION, names.GPU_MEMORY):
        assert f"'{name}' in object.metadata.annotations" in requests
    assert "nodeName" in free
    assert names.RESERVATION_APP in share["namespaceSelector"]["matchExpressions"][0]["values"]
    assert guard["matchConditions"] == share["matchConditions"][:1]
    assert [guard[it] for it in share if it not in others] == [
        share[it] for it in share if it not in others
    ]


def test_what_goes_to_another_scheduler_is_told_by_the_names_we_know() -> None:
    """Ours by default, the labels by which a user asks for us, and the mark of admission."""
    [_, other] = webhook("jobset-create.trainer-kai.dev")["matchConditions"]

    assert other["name"] == "not-left-to-others"
    assert f"in ['', '{names.SCHEDULER_NAME}']" in other["expression"]
    for name in (names.QUEUE, names.GANG, names.ADMITTED):
        assert f"'{name}' in " in other["expression"]


def test_the_policy_selects_as_the_webhook_does() -> None:
    """The same namespaces and owners; what other schedulers mark is what the product knows."""
    [policy] = objects("MutatingAdmissionPolicy")
    [binding] = objects("MutatingAdmissionPolicyBinding")
    hook = webhook("jobset-create.trainer-kai.dev")
    matched = policy["spec"]["matchConstraints"]
    owned, here, others = policy["spec"]["matchConditions"]

    assert binding["spec"] == {"policyName": policy["metadata"]["name"]}
    assert matched["namespaceSelector"] == hook["namespaceSelector"]
    assert matched["resourceRules"] == hook["rules"]
    assert f"startsWith('{names.TRAINER}/')" in owned["expression"]
    assert f"in ['', '{names.JOBSET_CONTROLLER}']" in here["expression"]
    for name in (names.COSCHEDULING_GROUP, names.VOLCANO_GROUP):
        assert f"'{name}' in " in others["expression"]
    [filled, _] = policy["spec"]["mutations"]
    wanted = f"schedulerName: '{names.SCHEDULER_NAME}'"
    assert wanted in filled["applyConfiguration"]["expression"]


# policy -> the annotations and labels of ours that it keeps, and the accounts that it names
KEPT: Final = {
    "trainer-kai-jobsets": ({names.ADMITTED}, set()),
    "trainer-kai-trainjobs": ({names.EVICTED_BY}, {"scheduler"}),
    "trainer-kai-podgroups": (
        {
            *(names.ANTICIPATED, names.RESERVED, names.LINE, names.EVICTED_BY),
            *(names.ASKED_FOR_NODES, names.AVOIDED_NODES),
        },
        {"scheduler", "podgrouper"},
    ),
    "trainer-kai-pods": ({names.GANG}, {"scheduler", "podgrouper"}),
    "trainer-kai-gpu-sharing": ({names.GPU_DEVICES}, {"scheduler"}),
}
_KAI_NAMES: Final = f"{names.SCHEDULER_NAME}:"  # the namespace of its accounts, in mode external
_FIELD: Final = re.compile(
    r"'?(data|metadata|spec|webhooks)\b[\w.]*(\[[^]]+\][\w.]*)?: |variables\."
)


def policy(name: str) -> Obj:
    """Return what a policy says."""
    [spec] = [it["spec"] for it in objects(_POLICY) if it["metadata"]["name"] == name]
    return dict(spec)


_AGENT: Final = f"{names.RESERVATION_APP}:{names.RESERVATION_APP}"
# policy -> the account whose rights it bounds
BOUND_ROLES: Final = {
    "trainer-kai-configmaps": "trainer-kai:trainer-kai-scheduler",
    "trainer-kai-jobs": "trainer-kai:trainer-kai-scheduler",
    "trainer-kai-pod-status": "trainer-kai:trainer-kai-scheduler",
    "trainer-kai-podgrouper": "trainer-kai:trainer-kai-podgrouper",
    "trainer-kai-podgrouper-deletions": "trainer-kai:trainer-kai-podgrouper",
    "trainer-kai-reservation-agent": _AGENT,
    "trainer-kai-reservation-pods": "trainer-kai:trainer-kai-scheduler",
    "trainer-kai-scheduler-claims": "trainer-kai:trainer-kai-scheduler",
    "trainer-kai-scheduler-resource-claims": "trainer-kai:trainer-kai-scheduler",
    "trainer-kai-scheduler-workloads": "trainer-kai:trainer-kai-scheduler",
    "trainer-kai-webhook": "trainer-kai:trainer-kai-webhook",
}


@pytest.mark.parametrize("name", BOUND_ROLES)
def test_a_policy_bounds_one_account(name: str) -> None:
    """In every namespace, and others may do as their roles say."""
    spec = policy(name)
    [bound] = [it for it in objects(f"{_POLICY}Binding") if it["spec"]["policyName"] == name]
    account = f"system:serviceaccount:{BOUND_ROLES[name]}"

    assert bound["metadata"]["name"] == name
    assert bound["spec"]["validationActions"] == ["Deny"]
    assert spec["failurePolicy"] == "Fail"
    assert spec["matchConstraints"]["namespaceSelector"] == {}
    asked = [it["expression"] for it in spec["matchConditions"]]
    assert asked == [f"request.userInfo.username == '{account}'"]
    assert all(_FIELD.match(it["message"]) for it in spec["validations"])


@pytest.mark.parametrize("name", KEPT)
def test_a_policy_keeps_what_our_processes_go_by(name: str) -> None:
    """In every namespace, by the names and accounts that are spelt elsewhere; nothing passes."""
    spec = policy(name)
    [bound] = [it for it in objects(f"{_POLICY}Binding") if it["spec"]["policyName"] == name]
    annotations, writers = KEPT[name]
    text = str(spec)
    accounts = {
        f"{it['metadata']['namespace']}:{it['metadata']['name']}"
        for it in objects("ServiceAccount")
    }
    trusted = set(re.findall(r"system:serviceaccount:([a-z:-]+)", text)) - {_KAI_NAMES}

    assert bound["metadata"]["name"] == name
    assert bound["spec"]["validationActions"] == ["Deny"]
    assert spec["failurePolicy"] == "Fail"
    assert spec["matchConstraints"]["namespaceSelector"] == {}
    assert set(OWN_NAMES.findall(text)) == annotations
    assert trusted == {f"trainer-kai:trainer-kai-{it}" for it in writers}
    assert trusted <= accounts
    for rule in spec["validations"]:
        for output in ("message", "messageExpression"):
            assert _FIELD.match(rule.get(output, rule["message"])), rule


def test_the_policy_on_pods_keeps_all_that_the_scheduler_reads_of_them() -> None:
    """By which a pod is charged and evicted; KAI writes there in mode external."""
    text = str(policy("trainer-kai-pods"))
    for name in (
        *(names.QUEUE, names.NODE_POOL, names.PREEMPTIBILITY, names.PRIORITY_CLASS_NAME),
        *(names.SUBGROUP, names.POD_GROUP, names.RESTART_ATTEMPT, names.JOB_RESTART_ATTEMPT),
        *(names.GPU_FRACTION, names.GPU_FRACTION_DEVICES, names.GPU_MEMORY),
        *(names.SCHEDULER_NAME, f"system:serviceaccount:{_KAI_NAMES}"),
    ):
        assert f"'{name}'" in text


def test_the_policy_on_shared_gpus_spells_what_the_scheduler_reads() -> None:
    """Labels by which shared GPUs are found, requests for shares, and KAI's binder."""
    text = str(policy("trainer-kai-gpu-sharing"))
    for name in (
        *(names.GPU_GROUP, names.GPU_GROUP_PREFIX, names.APP, names.RESERVATION_APP),
        *(*SHARE_REQUESTS, names.GPU_CONFIG_MAP, names.RECEIVED_TYPE, names.GPU_DEVICES),
        *(names.GPU, names.AMD_GPU, names.MIG_PREFIX),
        *(names.SCHEDULER_NAME, f"system:serviceaccount:{_KAI_NAMES}", "system:node:"),
    ):
        assert f"'{name}'" in text


def test_the_policies_on_what_shares_gpus_spell_what_is_written() -> None:
    """By the scheduler on ConfigMaps and pods, and by the agent on its own."""
    keys = (VISIBLE_DEVICES, GPU_PORTION, NUMBER_OF_GPUS, MEMORY_LIMIT)
    spelled = {
        "trainer-kai-configmaps": keys,
        "trainer-kai-pod-status": (
            *(names.SCHEDULER_NAME, names.GPU_GROUP, names.GPU_GROUP_PREFIX),
            *(names.RECEIVED_TYPE, names.GPU_DEVICES),
        ),
        "trainer-kai-reservation-agent": (names.RESERVED_DEVICE,),
        "trainer-kai-reservation-pods": (
            *(names.APP, names.RESERVATION_APP, names.GPU_GROUP, names.GPU),
        ),
    }
    written = GpuConfigMaps.of("pod-x1y2z3a-shared-gpu", SharingContainer("initContainers", 2))
    names_of = (f"trainer-kai-{it}configmaps" for it in ("", "share-"))
    [named] = {it for name in names_of for it in _matched(name)}

    for name, values in spelled.items():
        assert [it for it in values if f"'{it}'" not in str(policy(name))] == []
    assert re.search(named, written.capabilities)
    assert re.search(named, written.direct_env)
    assert not re.search(named, written.volume)


def _matched(policy_name: str) -> list[str]:
    """Return the regular expressions of a policy."""
    return re.findall(r"matches\(\s*'([^']+)'\)", str(policy(policy_name)))


def test_the_policy_on_pods_and_the_processes_know_the_same_prefixes() -> None:
    """The form that admission writes and the scheduler reads."""
    [form] = [it for it in _matched("trainer-kai-gpu-sharing") if "shared-gpu" in it]
    prefixes = ("a-x1y2z3a-shared-gpu", "a.b--x1y2z3a-shared-gpu", "a-x1-shared-gpu", "-shared-gpu")

    assert [bool(re.search(form, it)) for it in prefixes] == [*map(is_config_map_prefix, prefixes)]


def test_every_policy_is_one_of_these() -> None:
    """Each has a row in the README."""
    report = (MANIFESTS / "README.md").read_text()
    known = {*KEPT, *BOUND_ROLES, "trainer-kai-share-configmaps"}
    assert {it["metadata"]["name"] for it in objects(_POLICY)} == known
    assert all(f"| `{name}` |" in report for name in known)


def test_the_webhooks_lead_to_the_service() -> None:
    """Name, namespace and port are those of the Service that is installed with them."""
    [service] = objects("Service")
    where = {key: service["metadata"][key] for key in ("name", "namespace")}
    [port] = service["spec"]["ports"]
    for hook in webhooks():
        called = hook["clientConfig"]["service"]
        assert called == {**where, "port": port["port"], "path": called["path"]}
    assert port["targetPort"] == 9443


@pytest.mark.parametrize("kind", [QUEUES, PODGROUPS, TOPOLOGIES], ids=lambda kind: kind.kind)
def test_a_definition_is_the_one_we_read(kind: Any) -> None:
    """Group, version, plural and scope are those of the product, which are KAI's."""
    [found] = [
        crd["spec"]
        for crd in objects("CustomResourceDefinition")
        if crd["spec"]["names"]["kind"] == kind.kind
    ]
    [version] = found["versions"]
    assert (found["group"], version["name"]) == (kind.group, kind.version)
    assert found["names"]["plural"] == kind.plural
    assert (found["scope"] == "Namespaced") == kind.namespaced


def test_a_definition_fills_nothing_in() -> None:
    """KAI's definitions have no default, and what is absent is told from what is 0."""
    for path in (MANIFESTS / "base" / "crds").glob("*.yaml"):
        assert not re.search(r"^\s*default:", path.read_text(), re.MULTILINE), path


def test_names_are_spelt_as_the_product_spells_them() -> None:
    """A label that differs by one letter selects nothing, and says nothing."""
    # Columns, and the label of namespaces that NetworkPolicies admit to metrics.
    of_manifests = {f"{names.TRAINER_KAI_PREFIX}{it}" for it in ("stage", "members", "monitoring")}

    assert named(OWN_NAMES) <= known(names.TRAINER_KAI_PREFIX) | of_manifests
    assert named(KAI) - {"kai.scheduler/v"} <= known("kai.scheduler/")
    assert {names.GANG, names.INJECT} <= named(OWN_NAMES)
    assert {names.QUEUE, names.TOPOLOGY, names.TOPOLOGY_REQUIRED} <= named(KAI)


def test_the_default_queue_is_the_one_the_product_falls_back_to() -> None:
    """It has a parent, which is there as well, and both have the shares of KAI's chart."""
    shipped = documents(MANIFESTS / "base" / "queues" / "queues.yaml")
    parent, child = shipped
    share = {"quota": 0, "limit": -1, "overQuotaWeight": 1}

    assert child["metadata"]["name"] == names.DEFAULT_QUEUE
    assert child["spec"]["parentQueue"] == parent["metadata"]["name"]
    for queue in shipped:
        assert queue["spec"]["resources"] == dict.fromkeys(("gpu", "cpu", "memory"), share)


def test_the_priority_classes_are_those_of_kai() -> None:
    """Names and values, beside that of our own pods; none is the default of the cluster."""
    found = objects("PriorityClass")
    values = {obj["metadata"]["name"]: obj["value"] for obj in found}
    del values["trainer-kai"]

    assert values == {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
    assert not any(obj.get("globalDefault") for obj in found)


def test_the_queue_of_a_runtime_can_be_a_label_and_a_queue() -> None:
    """It is written into a label, so that it is no longer than one; and both CRDs are patched."""
    folder = MANIFESTS / "components" / "runtime-queue-field"
    [[test, add]] = documents(folder / "patch.yaml")
    [kustomization] = documents(folder / "kustomization.yaml")
    queue = add["value"]["properties"]["queue"]
    target = re.compile(kustomization["patches"][0]["target"]["name"])

    assert (test["op"], test["value"]) == ("test", RUNTIMES.version)
    assert queue["maxLength"] == 63
    for kind in (RUNTIMES, CLUSTER_RUNTIMES):
        assert target.fullmatch(f"{kind.plural}.{kind.group}")
    for text in ("team-a", "a.b-c.d", "Team", "-a", "a-", "a..b", "a_b"):
        assert bool(re.fullmatch(queue["pattern"], text)) == (dns_subdomain_fault(text) is None)


def _read() -> set[Path]:
    found = set()
    for path in KUSTOMIZATIONS:
        [kustomization] = documents(path)
        patches = [patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch]
        for entry in (*kustomization.get("resources", ()), *patches):
            found.add((path.parent / entry).resolve())
    return found
