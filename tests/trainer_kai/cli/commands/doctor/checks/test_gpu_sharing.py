"""What GPU sharing needs, pods that reserve no GPU, and a second installation."""

import pytest

from tests.support.case import Case, ids
from tests.trainer_kai.cli.commands.doctor.installation import (
    RESERVATIONS,
    beside_a_kai,
    check_results,
    deployment,
    healthy_installation,
    lease,
    reservation_pod,
)
from trainer_kai.api.meta import Meta
from trainer_kai.cli.commands.doctor.expected import Permission
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, Obj, require

_DENIED = (
    "RuntimeClass {} does not exist: the API server denies pods that request shares of GPUs"
    " without a RuntimeClass of their own, and reservation pods"
)
_OFF = "off: pods that request shares of GPUs wait"


def with_settings(**environment: str) -> InstallationFacts:
    names = ("trainer-kai-webhook", "trainer-kai-podgrouper", "trainer-kai-scheduler")
    variables = {f"TRAINER_KAI_{name}": it for name, it in environment.items()}
    return healthy_installation()._replace(
        deployments=[deployment(it, 2, **({} if "group" in it else variables)) for it in names]
    )


def without_sharing() -> InstallationFacts:
    """Return what the chart renders with gpuSharing.enabled=false."""
    facts = with_settings(GPU_SHARING_ENABLED="false")
    rights = (("create", "pods"), ("create", "configmaps"), ("get", "pods"))
    lost = [
        it
        for account in facts.manifests.accounts
        for it in account.rights
        if (it.verb, it.resource) in rights and not it.subresource and "grouper" not in account.name
    ]
    return facts._replace(
        namespaces=[it for it in require(facts.namespaces) if it != RESERVATIONS],
        accounts={**facts.accounts, "kai-resource-reservation": False},
        denied_permissions={**facts.denied_permissions, "trainer-kai-scheduler": lost},
        runtime_classes=[],
        reservation_pods=[],
    )


NEEDED: list[Case[InstallationFacts, tuple[str, str]]] = [
    Case(
        "as the manifests have it",
        healthy_installation(),
        ("ok", "namespace kai-resource-reservation exists; RuntimeClass nvidia exists"),
    ),
    Case(
        "a missing namespace is told",
        healthy_installation()._replace(namespaces=[Meta(name="default")]),
        (
            "fault",
            "namespace kai-resource-reservation does not exist, so no pod gets a share of a GPU",
        ),
    ),
    Case(
        "a missing RuntimeClass is told",
        healthy_installation()._replace(runtime_classes=["kata"]),
        ("warning", _DENIED.format("nvidia")),
    ),
    Case(
        "no RuntimeClass, and processes elsewhere",
        healthy_installation()._replace(runtime_classes=[], deployments=[]),
        ("warning", _DENIED.format("nvidia")),
    ),
    Case(
        "another RuntimeClass is told",
        with_settings(GPU_SHARING_RUNTIME_CLASS="gpu"),
        ("warning", _DENIED.format("gpu")),
    ),
    Case(
        "no RuntimeClass is set",
        with_settings(GPU_SHARING_RUNTIME_CLASS="")._replace(runtime_classes=[]),
        ("ok", "namespace kai-resource-reservation exists; without a RuntimeClass"),
    ),
    Case("sharing may be off", without_sharing(), ("ok", _OFF)),
    Case(
        "a KAI that binds",
        beside_a_kai(healthy_installation())._replace(namespaces=[], runtime_classes=[]),
        ("ok", "not needed: KAI shares GPUs"),
    ),
]


@pytest.mark.parametrize("case", NEEDED, ids=ids)
def test_what_gpu_sharing_needs(case: Case[InstallationFacts, tuple[str, str]]) -> None:
    """A namespace, and the RuntimeClass of the settings."""
    assert check_results(case.given, "GPU sharing") == [case.want]


def test_without_sharing_no_right_is_missing() -> None:
    """The chart gives none to create pods and ConfigMaps, and renders no account of the agent."""
    results = check_results(without_sharing(), "permissions")

    assert {state for state, _ in results} == {"ok"}
    assert results[-1] == ("ok", "not needed: trainer-kai shares no GPU")
    deleting = Permission(verb="delete", group="", resource="pods")
    more = without_sharing()
    more = more._replace(
        denied_permissions={**more.denied_permissions, "trainer-kai-scheduler": [deleting]}
    )
    assert ("fault", "trainer-kai/trainer-kai-scheduler may not delete pods") in check_results(
        more, "permissions"
    )


def test_the_account_of_the_agent_is_in_the_namespace_of_its_pods() -> None:
    """Without it no reservation pod is created."""
    facts = healthy_installation()
    gone = facts._replace(accounts={**facts.accounts, "kai-resource-reservation": False})
    name = "kai-resource-reservation/kai-resource-reservation"

    assert check_results(facts, "permissions")[-1] == ("ok", f"{name} has all 2 permissions")
    missing = f"the ServiceAccount {name} does not exist"
    assert check_results(gone, "permissions")[-1] == ("fault", missing)


# reservation pods -> what is wrong with them
PODS: list[Case[list[Obj], tuple[str, str]]] = [
    Case("without reservation pods all is well", [], ("ok", "0 reserve shared GPUs")),
    Case("one that starts", [reservation_pod("a", 40)], ("ok", "1 reserve shared GPUs")),
    Case(
        "one without a GPU",
        [reservation_pod("a", 41), reservation_pod("b", device="GPU-1")],
        ("warning", "a on node node-0 has no device for 41 s"),
    ),
    Case(
        "one without an image",
        [reservation_pod("a", 90, reason="ImagePullBackOff", phase="Pending")],
        ("warning", "a on node node-0 has no device for 90 s (ImagePullBackOff)"),
    ),
    Case(
        "one that failed",
        [reservation_pod("a", device="GPU-1", phase="Failed")],
        ("warning", "a on node node-0 is Failed"),
    ),
    Case(
        "one that terminates, and others",
        [
            {"metadata": {**reservation_pod("a")["metadata"], "deletionTimestamp": "now"}},
            {"metadata": {"name": "b"}},
        ],
        ("ok", "0 reserve shared GPUs"),
    ),
]


@pytest.mark.parametrize("case", PODS, ids=ids)
def test_each_reservation_pod_has_a_gpu(case: Case[list[Obj], tuple[str, str]]) -> None:
    """After the time that the scheduler allows."""
    facts = healthy_installation()._replace(reservation_pods=case.given)

    assert check_results(facts, "reservation pods") == [case.want]


def test_the_time_for_a_gpu_is_that_of_the_scheduler() -> None:
    """A setting may allow more, and KAI has its own."""
    late = [reservation_pod("a", 90)]
    patient = with_settings(RESERVATION_PODS_ALLOCATION_S="120")._replace(reservation_pods=late)
    of_kai = beside_a_kai(healthy_installation())._replace(reservation_pods=late)

    assert check_results(patient, "reservation pods") == [("ok", "1 reserve shared GPUs")]
    assert check_results(of_kai, "reservation pods") == [("ok", "not needed: KAI shares GPUs")]


def test_another_installation_deletes_our_reservation_pods() -> None:
    """If its scheduler leads; the Lease of one that was uninstalled means nothing."""
    name = "trainer-kai-scheduler"
    both = [lease(name), lease(name, "two", namespace="gangs")]
    old = [lease(name), lease(name, "two", 3600, namespace="gangs")]
    found, alone = (
        check_results(healthy_installation()._replace(scheduler_leases=it), "another installation")
        for it in (both, old)
    )

    held = f"Lease gangs/{name} is held by two"
    assert found == [("fault", f"{held}: each scheduler deletes the reservation pods of the other")]
    assert alone == [("ok", "no scheduler of trainer-kai leads outside namespace trainer-kai")]
