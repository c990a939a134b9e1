"""What each overlay consists of, as kubectl builds it; no cluster is needed for that."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
import yaml

from e2e.cluster.resources import CRDS, NAMESPACES, SERVICES, Obj
from e2e.fixtures.install import (
    BUDGETS,
    DEPLOYMENTS,
    MANIFESTS,
    NETWORK_POLICIES,
    POLICIES,
    PRIORITY_CLASSES,
    QUEUES,
    WEBHOOKS,
    build,
    with_port,
)
from trainer_kai.api.names import ACCESS, INJECT, RESERVATION_APP

OVERLAYS: Final = sorted(folder.name for folder in (MANIFESTS / "overlays").iterdir())
OUR_CLASS: Final = (PRIORITY_CLASSES.kind, "", "trainer-kai")  # of the pods of our processes
OF_KAI: Final = {CRDS.kind, QUEUES.kind, PRIORITY_CLASSES.kind}
PROCESSES: Final = {DEPLOYMENTS.kind, BUDGETS.kind, NETWORK_POLICIES.kind}
IN_THE_CLUSTER: Final = PROCESSES | {SERVICES.kind}
SCHEDULER: Final = "trainer-kai-scheduler"
# What only binds the scheduler and the pods with which it reserves GPUs.
OF_SHARING: Final = {
    *("trainer-kai-configmaps", "trainer-kai-pod-status"),
    *("trainer-kai-reservation-agent", "trainer-kai-reservation-pods"),
    "trainer-kai-share-configmaps",
}


def keys(objects: list[Obj]) -> Counter[tuple[str, str, str]]:
    """Return how often each object is there."""
    return Counter(
        (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        for obj in objects
    )


def webhooks(objects: list[Obj]) -> list[Obj]:
    """Return the webhooks of both configurations."""
    return [hook for obj in objects if obj["kind"] in WEBHOOKS for hook in obj["webhooks"]]


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_an_overlay_has_every_object_once(overlay: str) -> None:
    """Two of one name would be applied one over the other."""
    found = keys(await build(MANIFESTS / "overlays" / overlay))

    assert found
    assert set(found.values()) == {1}


@pytest.mark.parametrize("overlay", ["default", "external-kai"])
async def test_each_component_goes_with_an_overlay(overlay: str, tmp_path: Path) -> None:
    """Alone, and the first two together, as in manifests/README.md."""
    names = sorted(folder.name for folder in (MANIFESTS / "components").iterdir())
    manifests = "../" * len(tmp_path.parts) + str(MANIFESTS.relative_to("/"))
    folders = []
    for chosen in (*((it,) for it in names), ("opt-in", "cert-manager")):
        kustomization = {
            "resources": [f"{manifests}/overlays/{overlay}"],
            "components": [f"{manifests}/components/{it}" for it in chosen],
        }
        folders.append(tmp_path / "-".join(chosen))
        folders[-1].mkdir()
        (folders[-1] / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))

    built = await asyncio.gather(*map(build, folders))

    assert len(built) == len(names) + 1
    assert all(built)
    opted_in = built[names.index("opt-in")]
    selecting = [it["namespaceSelector"] for it in webhooks(opted_in) if "namespaceSelector" in it]
    wanted = {"key": INJECT, "operator": "In", "values": ["enabled"]}
    assert [it["matchExpressions"][1] for it in selecting] == [wanted] * 9


async def test_beside_kai_its_objects_are_left_alone() -> None:
    """What KAI installs is in no overlay that goes in front of it, nor is our scheduler."""
    everything = keys(await build(MANIFESTS / "overlays" / "default"))
    beside = keys(await build(MANIFESTS / "overlays" / "external-kai"))
    gone = everything - beside

    assert beside == everything - gone
    assert {key for key in gone if key[2] != SCHEDULER} == {
        key
        for key in everything
        if (key[0] in OF_KAI and key != OUR_CLASS)
        or key[2] in OF_SHARING
        or key[1:] == (RESERVATION_APP, RESERVATION_APP)
        or key == (NAMESPACES.kind, "", RESERVATION_APP)
    }
    assert {key[0] for key in gone if key[2] == SCHEDULER} == {
        *PROCESSES,
        "ServiceAccount",
        *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    }
    assert not [key for key in beside if SCHEDULER in key]
    hooks = webhooks(await build(MANIFESTS / "overlays" / "external-kai"))
    assert len(hooks) == 10
    never = [{"name": "never", "expression": "false"}]
    assert [it["name"] for it in hooks if it.get("matchConditions") == never] == [
        "gpu-share.trainer-kai.dev",
        "job-gang.trainer-kai.dev",
    ]


async def test_on_one_machine_the_webhook_is_called_by_address() -> None:
    """The processes run beside it; the port that stands in the overlay is replaced."""
    everything = keys(await build(MANIFESTS / "overlays" / "default"))
    local = await build(MANIFESTS / "overlays" / "local")
    urls = [webhook["clientConfig"] for webhook in webhooks(local)]
    moved = [
        webhook["clientConfig"]
        for obj in local
        for webhook in with_port(obj, 1).get("webhooks", ())
    ]

    assert everything - keys(local) == Counter(
        {
            key: n
            for key, n in everything.items()
            if key[0] in IN_THE_CLUSTER and key[1] != RESERVATION_APP
        }
    )
    assert [list(config) for config in urls] == [["url"]] * 10
    assert moved == [
        {"url": "https://127.0.0.1:1/mutate/jobset"},
        {"url": "https://127.0.0.1:1/mutate/jobset"},
        {"url": "https://127.0.0.1:1/mutate/pod"},
        {"url": "https://127.0.0.1:1/mutate/gpu-share"},
        {"url": "https://127.0.0.1:1/mutate/job"},
        {"url": "https://127.0.0.1:1/mutate/job"},
        {"url": "https://127.0.0.1:1/validate/trainjob"},
        {"url": "https://127.0.0.1:1/validate/trainjob"},
        {"url": "https://127.0.0.1:1/validate/queue"},
        {"url": "https://127.0.0.1:1/validate/workload"},
    ]


@pytest.mark.parametrize(
    ("overlay", "wanted"),
    [
        ("default", {"key": INJECT, "operator": "NotIn", "values": ["disabled"]}),
        ("opt-in", {"key": INJECT, "operator": "In", "values": ["enabled"]}),
    ],
)
async def test_a_namespace_opts_out_or_in(overlay: str, wanted: Obj) -> None:
    """By default all namespaces but two reach us, with the overlay only those that ask for it."""
    found = webhooks(await build(MANIFESTS / "overlays" / overlay))

    assert len(found) == 10
    for webhook in found:
        if webhook["name"] == "queue.trainer-kai.dev":  # queues are in no namespace
            assert "namespaceSelector" not in webhook
            continue
        named, ours = webhook["namespaceSelector"]["matchExpressions"]
        others = {RESERVATION_APP} if webhook["name"] == "gpu-share.trainer-kai.dev" else set()
        assert set(named["values"]) == {"kube-system", "trainer-kai", *others}
        assert ours == wanted


async def test_with_cert_manager_the_webhook_may_only_read() -> None:
    """The certificate is somebody else's work, and so is telling the API server whom to trust."""
    everything = await build(MANIFESTS / "overlays" / "default")
    made = await build(MANIFESTS / "overlays" / "cert-manager")
    configurations = [obj for obj in made if obj["kind"] in WEBHOOKS]
    [certificate] = [
        obj
        for obj in made
        if obj["metadata"]["name"] == "trainer-kai-webhook" and obj["kind"] == "Certificate"
    ]
    where = [
        it["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] for it in configurations
    ]
    rights = {
        verb
        for obj in made
        if obj["kind"] in ("Role", "ClusterRole")
        and obj["metadata"]["name"] == "trainer-kai-webhook"
        for rule in obj["rules"]
        if {"secrets", "mutatingwebhookconfigurations"} & set(rule["resources"])
        for verb in rule["verbs"]
    }

    assert keys(everything) <= keys(made)
    assert where == [f"trainer-kai/{certificate['metadata']['name']}"] * 2
    assert certificate["spec"]["secretName"] == "trainer-kai-webhook-tls"
    assert "trainer-kai-webhook.trainer-kai.svc" in certificate["spec"]["dnsNames"]
    assert rights == {"get"}


async def test_the_tenants_overlay_configures_webhook_and_scheduler() -> None:
    """The webhook refuses, the scheduler starts nothing; the default queue is closed, too."""
    everything = await build(MANIFESTS / "overlays" / "default")
    strict = await build(MANIFESTS / "overlays" / "multi-tenant")
    enforced = ("TRAINER_KAI_QUEUE_ACCESS_UNANNOTATED", "closed")
    added = {
        name: [it for it in variables if it not in _variables(everything)[name]]
        for name, variables in _variables(strict).items()
    }

    assert keys(strict) == keys(everything)
    assert added == {
        "trainer-kai-webhook": [enforced, ("TRAINER_KAI_ADMISSION_UNKNOWN_QUEUE", "deny")],
        "trainer-kai-podgrouper": [],
        "trainer-kai-scheduler": [enforced],
    }
    assert _access(everything) == {"default-queue": "open"}
    assert _access(strict) == {"default-queue": "closed"}


def _access(objects: list[Obj]) -> dict[str, str]:
    """Return what queues say about who may use them."""
    queues = [it["metadata"] for it in objects if it["kind"] == QUEUES.kind]
    return {it["name"]: it["annotations"][ACCESS] for it in queues if "annotations" in it}


def _variables(objects: list[Obj]) -> dict[str, list[tuple[str, str]]]:
    """Return the environment of each Deployment's container."""
    return {
        obj["metadata"]["name"]: [
            (it["name"], it["value"])
            for it in obj["spec"]["template"]["spec"]["containers"][0]["env"]
            if "value" in it
        ]
        for obj in objects
        if obj["kind"] == DEPLOYMENTS.kind
    }


async def test_a_policy_needs_no_server() -> None:
    """There is nothing in it but the policy and its binding."""
    found = keys(await build(MANIFESTS / "overlays" / "policy-only"))

    assert {key[0] for key in found} == {POLICIES.kind, f"{POLICIES.kind}Binding"}
