"""The Deployments: what they start, and that it agrees with the settings that it reads."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from aiohttp import ClientSession

from tests.manifests.manifest_files import HOME, documents, named, objects, spec_of
from tests.support.repository import ROOT
from trainer_kai.api.names import APP, RESERVATION_APP
from trainer_kai.service.clock import SystemClock
from trainer_kai.service.config import load
from trainer_kai.service.health import Health, HealthServer
from trainer_kai.service.metrics import Metrics
from trainer_kai.service.settings import (
    PROCESSES,
    HealthSettings,
    LeaderSettings,
    Settings,
    WebhookSettings,
)

MODULES: Final = {
    "webhook": "webhook",
    "podgrouper": "trainer_kai.podgrouper",
    "scheduler": "scheduler",
}
NAME: Final = "app.kubernetes.io/name"

every_process = pytest.mark.parametrize("process", PROCESSES)

Obj = dict[str, Any]


def container_of(process: str) -> Obj:
    """Return its one container."""
    [container] = spec_of(process)["containers"]
    return dict(container)


def ports_of(process: str) -> Mapping[str, int]:
    """Return the ports of its container by name."""
    return {port["name"]: port["containerPort"] for port in container_of(process)["ports"]}


def settings_of(process: str) -> Settings:
    """Return the settings as the process reads them in its container."""
    container = container_of(process)
    environ = {it["name"]: it["value"] for it in container.get("env", ()) if "value" in it}
    return load(
        PROCESSES[process], [*container["command"][3:], *container.get("args", ())], environ
    )


def test_every_process_has_a_deployment() -> None:
    """And so has nobody else."""
    metas = [obj["metadata"] for obj in objects("Deployment")]
    names = {it["name"] for it in metas if it.get("namespace") == "trainer-kai"}

    assert names == {f"trainer-kai-{process}" for process in PROCESSES}


@every_process
def test_the_command_starts_the_process(process: str) -> None:
    """By the image's own interpreter, from a package that is in the wheel."""
    module = container_of(process)["command"][2]
    folder = module.replace(".", "/")

    assert container_of(process)["command"][:3] == ["python", "-m", MODULES[process]]
    assert (ROOT / folder / "__main__.py").is_file()
    assert container_of(process)["image"] == "trainer-kai"


@every_process
def test_the_ports_are_those_of_the_settings(process: str) -> None:
    """On every interface, for a probe comes from outside of the pod."""
    settings, ports = settings_of(process), dict(ports_of(process))

    assert (settings.health.address, settings.health.port) == ("", ports.pop("health"))
    if isinstance(settings, WebhookSettings):
        assert (settings.server.address, settings.server.port) == ("", ports.pop("https"))
    assert ports == {}


@every_process
async def test_the_probes_ask_what_is_answered(process: str) -> None:
    """Alive from the start, ready when it says so."""
    container = container_of(process)
    alive, ready = container["livenessProbe"]["httpGet"], container["readinessProbe"]["httpGet"]
    health, clock = Health(), SystemClock()
    place = HealthSettings(address="127.0.0.1", port=0)
    async with HealthServer(health, Metrics(), clock, place) as server, ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}"
        async with session.get(url + alive["path"]) as answer:
            assert answer.status == 200
        async with session.get(url + ready["path"]) as answer:
            assert answer.status == 503
        health.started()
        async with session.get(url + ready["path"]) as answer:
            assert answer.status == 200

    assert (alive["port"], ready["port"]) == ("health", "health")


@every_process
def test_a_process_acts_under_its_own_account(process: str) -> None:
    """Its Lease and its Secret lie where its role lets it write them: beside it."""
    settings, account = settings_of(process), spec_of(process)["serviceAccountName"]
    role, home = (
        named("Role", account),
        named("Deployment", account)["metadata"]["namespace"],
    )
    assert home == HOME
    leader = getattr(settings, "leader", None)

    assert named("ServiceAccount", account)["metadata"]["namespace"] == home
    assert role["metadata"]["namespace"] == home
    assert settings.kubeconfig == ""
    if isinstance(leader, LeaderSettings):
        assert leader.namespace == ""
        read = [["pods"]] if process == "scheduler" else []  # its own
        assert [rule["resources"] for rule in role["rules"]] == [["leases"], *read]


def test_the_webhook_is_where_it_is_looked_for() -> None:
    """Service, Secret and configuration are called as its settings say."""
    settings = settings_of("webhook")
    assert isinstance(settings, WebhookSettings)
    tls, service = settings.tls, named("Service", settings.tls.service_name)
    labels = named("Deployment", "trainer-kai-webhook")["spec"]["template"]["metadata"]["labels"]
    [port] = service["spec"]["ports"]
    secrets = named("Role", "trainer-kai-webhook")["rules"][0]["resourceNames"]

    assert service["spec"]["selector"].items() <= labels.items()
    assert port["targetPort"] == settings.server.port
    assert tls.namespace == ""
    assert secrets == [tls.secret_name]
    for kind in ("Mutating", "Validating"):
        assert named(f"{kind}WebhookConfiguration", tls.configuration_name)


@every_process
def test_of_two_replicas_one_may_be_away(process: str) -> None:
    """They prefer to be apart, and a drain takes them one by one, broken ones at once."""
    name = f"trainer-kai-{process}"
    deployment, budget = (
        named("Deployment", name)["spec"],
        named("PodDisruptionBudget", name),
    )
    apart = spec_of(process)["affinity"]["podAntiAffinity"]
    [[preferred]] = apart.values()
    [spread] = spec_of(process)["topologySpreadConstraints"]
    selector = {"matchLabels": {NAME: name}}

    assert deployment["replicas"] == 2
    assert deployment["selector"] == budget["spec"]["selector"] == selector
    assert deployment["template"]["metadata"]["labels"] == {NAME: name}
    assert budget["spec"]["maxUnavailable"] == 1
    assert list(apart) == ["preferredDuringSchedulingIgnoredDuringExecution"]
    host = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    assert preferred["podAffinityTerm"] == host
    assert (spread["labelSelector"], spread["whenUnsatisfiable"]) == (selector, "ScheduleAnyway")


@every_process
def test_a_process_asks_for_room(process: str) -> None:
    """So that it is not the first to go when a node is full; and it may not eat the whole node.

    There is no limit of CPU: a plan or a review that is throttled is late for nothing.
    """
    resources = container_of(process)["resources"]

    assert resources["requests"].keys() == {"cpu", "memory"}
    assert resources["limits"].keys() == {"memory"}


@every_process
def test_nobody_takes_the_place_of_a_process(process: str) -> None:
    """But the system: the class is the highest that may be defined; nor does it take anybody's."""
    name = spec_of(process)["priorityClassName"]
    file = ROOT / "manifests" / "base" / "priorityclass.yaml"

    assert documents(file) == [named("PriorityClass", name)]
    assert not name.startswith("system-")
    assert named("PriorityClass", name)["value"] == 1_000_000_000
    assert named("PriorityClass", name)["preemptionPolicy"] == "Never"


@every_process
def test_its_mode_is_its_first_variable(process: str) -> None:
    """Where an overlay looks for it; and others are added behind, so that none is lost."""
    first, *others = container_of(process)["env"]
    fields = {it["name"]: it["valueFrom"]["fieldRef"]["fieldPath"] for it in others}
    itself = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}

    assert first == {"name": "TRAINER_KAI_MODE", "value": "bundled"}
    assert fields == (itself if process == "scheduler" else {})


@every_process
def test_only_what_is_needed_gets_through(process: str) -> None:
    """To the ports that the process listens on, and from it to the API server and to names."""
    policy = named("NetworkPolicy", f"trainer-kai-{process}")["spec"]
    opened = [port["port"] for rule in policy["ingress"] for port in rule["ports"]]
    reached = {
        (port["port"], port.get("protocol", "TCP"))
        for rule in policy["egress"]
        for port in rule["ports"]
    }

    assert policy["podSelector"] == {"matchLabels": {NAME: f"trainer-kai-{process}"}}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert sorted(opened) == sorted(ports_of(process))
    assert reached == {(443, "TCP"), (6443, "TCP"), (53, "TCP"), (53, "UDP")}


def test_a_reservation_pod_reaches_only_the_api_server() -> None:
    """And names; nothing reaches it."""
    [policy] = [
        it["spec"] for it in objects("NetworkPolicy") if it["metadata"]["name"] == RESERVATION_APP
    ]

    assert policy["podSelector"] == {"matchLabels": {APP: RESERVATION_APP}}
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    assert policy["egress"] == named("NetworkPolicy", "trainer-kai-scheduler")["spec"]["egress"]


@every_process
def test_a_start_has_time_for_a_large_cluster(process: str) -> None:
    """Five minutes before its first answer; from then on it is alive as before."""
    container = container_of(process)
    starting, alive = container["startupProbe"], container["livenessProbe"]

    assert starting["httpGet"] == alive["httpGet"]
    assert starting["periodSeconds"] * starting["failureThreshold"] == 300
    assert alive.keys() == {"httpGet", "timeoutSeconds"}
