"""What the chart renders: the objects of kustomize, and errors that name the value; no cluster."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.cluster.resources import LEASES, NAMESPACES, SECRETS, Obj
from e2e.fixtures.helm import CHART, CRD_CHART, helm, run_helm, sets
from e2e.fixtures.install import DEPLOYMENTS, MANIFESTS, QUEUES, build, documents
from trainer_kai.api.names import RESERVATION_APP

_ALL: Final = "--include-crds"
# The flags that stand for an overlay.
_FLAGS: Final = {
    "default": (_ALL,),
    "external-kai": sets("mode=external"),
    "opt-in": (_ALL, *sets("optIn=true")),
    "cert-manager": (_ALL, *sets("certificates.source=cert-manager")),
    "multi-tenant": (_ALL, *sets("queueAccess=closed")),
    "policy-only": sets("mode=policy-only"),
    "local": (
        _ALL,
        *sets("processes.enabled=false", "webhook.url=https://127.0.0.1:9443", "snapshot=true"),
    ),
    "spread-replicas": (_ALL, *sets("spreadReplicas=true")),
    "snapshot": (_ALL, *sets("snapshot=true")),
    "device-access": (_ALL, *sets("settings.admission.nvidia_visible_devices=block")),
}
_COMPONENTS: Final = ("spread-replicas", "snapshot", "device-access")  # no overlay has them alone
_KEEP: Final = {"helm.sh/resource-policy": "keep"}
_NEVER: Final = [{"name": "never", "expression": "false"}]
# One kind of object is not rendered by kustomize, because its Namespace is deleted with it.
_OF_HELM: Final = {
    (SECRETS.kind, "trainer-kai-webhook-tls"),
    (LEASES.kind, "trainer-kai-podgrouper"),
    (LEASES.kind, "trainer-kai-scheduler"),
}
_WRONG: Final = [
    ("mode=foo", "at '/mode': value must be one of 'bundled', 'external', 'policy-only'"),
    ("replicas=3", "at '': additional properties 'replicas' not allowed"),
    ("webhook.replicas=two", "at '/webhook/replicas': got string"),
    ("webhook.url=http://x", "at '/webhook/url': 'http://x' does not match pattern"),
    ("settings.foo=1", "at '/settings': additional properties 'foo' not allowed"),
    ("settings.log.level=loud", "at '/settings/log/level': value must be one of 'debug'"),
    ("settings.staleness_grace_s=soon", "at '/settings/staleness_grace_s': 'soon' does not match"),
    ("settings.leader.name=one", "at '/settings/leader': additional properties 'name'"),
    ("certificates.source=files", "at '/certificates/secretName': minLength: got 0, want 1"),
    ("processes.enabled=false", "at '/webhook/url': minLength: got 0, want 1"),
    ("image.digest=abc", "at '/image/digest': 'abc' does not match pattern"),
    ("defaultQueue.childResources.gpu.quota=-2", "'/defaultQueue/childResources/gpu/quota'"),
    ("schedulerName=1e3", "at '/schedulerName': '1e3' does not match pattern"),
    ("defaultQueue.childName=0x1", "at '/defaultQueue/childName': '0x1' does not match pattern"),
    (
        "settings.health.metrics=authorized",
        "settings.health.metrics=authorized: the chart does not",
    ),
    (
        "settings.autoscaling.provisioning_requests=true",
        "settings.autoscaling.provisioning_requests=true: no nodes are asked for while",
    ),
    ("global.gpuSharing=maybe", "at '/global/gpuSharing': got string, want boolean"),
]

Key = tuple[str, str, str]


async def test_the_overlays_have_their_flags() -> None:
    """A new overlay is compared, too."""
    overlays = {folder.name for folder in (MANIFESTS / "overlays").iterdir()}

    assert overlays | set(_COMPONENTS) == set(_FLAGS)


@pytest.mark.parametrize("name", _FLAGS)
async def test_helm_and_kustomize_render_the_same(name: str, tmp_path: Path) -> None:
    """Object by object; the differences are listed here and in manifests/README.md."""
    wanted = _by_key(await build(_folder(name, tmp_path)))
    tag = next(_tags(wanted), "none")
    rendered = _by_key(await _template(*_FLAGS[name], *sets(f"image.tag={tag}")))

    assert {key for key in wanted if key not in rendered} <= {(NAMESPACES.kind, "", "trainer-kai")}
    assert {key[::2] for key in rendered if key not in wanted} <= _OF_HELM
    for key in wanted.keys() & rendered.keys():
        assert _normal(rendered[key]) == _normal(wanted[key]), key


async def test_what_the_processes_fill_is_empty() -> None:
    """An upgrade has nothing to say about it."""
    rendered = await _template()
    empty = [obj for obj in rendered if (obj["kind"], obj["metadata"]["name"]) in _OF_HELM]

    assert len(empty) == len(_OF_HELM)
    assert all(obj.keys() <= {"apiVersion", "kind", "metadata"} for obj in empty)


@pytest.mark.parametrize(
    ("mode", "source"),
    [
        ("bundled", "self"),
        ("bundled", "files"),
        ("external", "cert-manager"),
        ("policy-only", "self"),
    ],
)
async def test_lint_finds_nothing(mode: str, source: str) -> None:
    """In each mode, with each certificate."""
    values = (f"mode={mode}", f"certificates.source={source}", "certificates.secretName=mine")

    ran = await run_helm("lint", "--strict", CHART, *sets(*values))

    assert ran.status == 0, ran.out
    assert "WARN" not in ran.out + ran.err


async def test_the_chart_of_the_definitions_keeps_them() -> None:
    """They are those of the main chart, and no uninstallation deletes them."""
    ran = await run_helm("lint", "--strict", CRD_CHART)
    kept = documents(await helm("template", "x", CRD_CHART))
    usual = documents(await helm("show", "crds", CHART))

    assert ran.status == 0, ran.out
    for definition in kept:
        assert definition["metadata"].pop("annotations").items() >= _KEEP.items()
    assert [it["spec"] for it in kept] == [it["spec"] for it in usual]


async def test_rendering_twice_is_rendering_once() -> None:
    """Nothing is random, and nothing depends on the time."""
    assert await helm("template", "x", CHART) == await helm("template", "x", CHART)


@pytest.mark.parametrize(("value", "message"), _WRONG, ids=lambda it: it.partition("=")[0])
async def test_a_wrong_value_is_named(value: str, message: str) -> None:
    """The message says which value, and what would be right."""
    ran = await run_helm("template", "x", CHART, *sets(value))

    assert ran.status != 0
    assert message in ran.err


async def test_the_flags_of_the_deployment_guide() -> None:
    """They say what is so by default."""
    guide = sets("global.gpuSharing=true", "global.resourceReservation.runtimeClassName=nvidia")
    ran = await run_helm("install", "x", CHART, "--dry-run=client", *guide)
    flagged, usual = _by_key(await _template(*guide)), _by_key(await _template())
    added = {"name": "TRAINER_KAI_GPU_SHARING_RUNTIME_CLASS", "value": "nvidia"}

    assert ran.status == 0, ran.err
    assert "no effect" not in ran.out
    for key, wanted in usual.items():
        if key[::2] in ((DEPLOYMENTS.kind, f"trainer-kai-{it}") for it in ("webhook", "scheduler")):
            wanted["spec"]["template"]["spec"]["containers"][0]["env"].append(added)
        assert _normal(flagged[key]) == _normal(wanted)


async def test_no_runtime_class_of_kai_is_no_runtime_class() -> None:
    """Nothing is a value, and not the absence of one."""
    rendered = _by_key(await _template(*sets("global.resourceReservation.runtimeClassName=")))

    for name in ("webhook", "scheduler"):
        variables = _variables(rendered[DEPLOYMENTS.kind, "trainer-kai", f"trainer-kai-{name}"])
        assert ("TRAINER_KAI_GPU_SHARING_RUNTIME_CLASS", "") in variables


async def test_gpu_sharing_is_left_out_or_left_to_kai() -> None:
    """Without it the scheduler may create nothing; a namespace of KAI's release stays KAI's."""
    usual = _by_key(await _template())
    of_kai = _by_key(await _template(*sets("gpuSharing.createNamespace=false")))
    without = _by_key(await _template(*sets("gpuSharing.enabled=false")))
    by_kais_names = await _template(*sets("global.gpuSharing=false"))
    pull = sets("gpuSharing.imagePullSecrets={there}", "imagePullSecrets={here}")
    pulling = _by_key(await _template(*pull, *sets("priorityClassName=high")))
    scheduler = (DEPLOYMENTS.kind, "trainer-kai", "trainer-kai-scheduler")
    account = ("ServiceAccount", RESERVATION_APP, RESERVATION_APP)
    rights = {
        *(("Role", RESERVATION_APP, "trainer-kai-scheduler"),),
        *(("RoleBinding", RESERVATION_APP, "trainer-kai-scheduler"),),
    }

    left_to_kai = usual.keys() - of_kai.keys()
    assert {key for key in usual if RESERVATION_APP in key} == left_to_kai | rights
    assert {key[0] for key in left_to_kai} == {
        *("Namespace", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy"),
    }
    assert usual.keys() - without.keys() == left_to_kai | rights
    assert _resources(usual) - _resources(without) == {"configmaps"}
    hooks = [_webhook_names(it) for it in (usual, without)]
    assert hooks[0] - hooks[1] == {"gpu-share.trainer-kai.dev"}
    assert ("TRAINER_KAI_GPU_SHARING_ENABLED", "false") in _variables(without[scheduler])
    assert _by_key(by_kais_names) == without
    assert pulling[account]["imagePullSecrets"] == [{"name": "there"}]
    assert ("TRAINER_KAI_RESERVATION_PODS_PRIORITY_CLASS", "high") in _variables(pulling[scheduler])
    kept = {key for key, it in usual.items() if it["metadata"].get("annotations") == _KEEP}
    # Rights that a policy restricts do not outlive it.
    assert {key[0] for key in left_to_kai if key in kept} == {"Namespace", "ServiceAccount"}


def _webhook_names(objects: dict[Key, Obj]) -> set[str]:
    return {it["name"] for obj in objects.values() for it in obj.get("webhooks", ())}


def _resources(objects: dict[Key, Obj]) -> set[str]:
    """Return what the scheduler has a right on, anywhere."""
    rules = objects["ClusterRole", "", "trainer-kai-scheduler"]["rules"]
    return {resource for rule in rules for resource in rule["resources"]}


def _variables(deployment: Obj) -> set[tuple[str, str]]:
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return {(it["name"], it.get("value", "")) for it in container["env"]}


async def test_the_values_of_kai_are_accepted(tmp_path: Path) -> None:
    """What has a meaning here takes effect, and the notes name the rest."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(_OF_KAI))
    rendered = _by_key(await _template("--values", str(file)))
    scheduler = rendered[DEPLOYMENTS.kind, "trainer-kai", "trainer-kai-scheduler"]
    pod = scheduler["spec"]["template"]["spec"]
    variables = {it["name"]: it.get("value") for it in pod["containers"][0]["env"]}
    notes = (await helm("install", "x", CHART, "--dry-run=client", "--values", str(file))).split(
        "Accepted, no effect: "
    )[1]

    assert pod["containers"][0]["image"] == "registry.example/kai/trainer-kai:v1"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["nodeSelector"] == {"role": "system"}
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert scheduler["spec"]["replicas"] == 3
    assert scheduler["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0
    assert variables["TRAINER_KAI_POLICIES_GPU_PLACEMENT"] == "spread"
    assert variables["TRAINER_KAI_DEFAULT_QUEUE"] == "mine"
    assert {key[2] for key in rendered if key[0] == QUEUES.kind} == {"parent", "mine"}
    assert {key[2] for key in rendered if key[0] == "PriorityClass"} == {"trainer-kai"}
    assert set(notes.strip().split(", ")) == {
        *("admission", "binder", "global.leaderElection", "operator.qps", "topologyMigration"),
        *("scheduler.plugins", "scheduler.actions", "postCleanup", "podgrouper.queueLabelKey"),
    }


_OF_KAI: Final[dict[str, Any]] = {
    "global": {
        "registry": "registry.example/kai",
        "tag": "v1",
        "leaderElection": True,
        "nodeSelector": {"role": "system"},
        "tolerations": [{"operator": "Exists"}],
        "imagePullSecrets": [{"name": "pull"}],
        "requireDefaultPodAntiAffinityTerm": True,
    },
    "operator": {"replicaCount": 3, "qps": 50},
    "scheduler": {"placementStrategy": "spread", "plugins": {"a": 1}, "actions": {"b": 1}},
    "defaultQueue": {"parentName": "parent", "childName": "mine"},
    "defaultPriorityClasses": {"enabled": False},
    "admission": {"gpuPodRuntimeClassName": ""},
    "binder": {"cdiEnabled": True},
    "podgrouper": {"queueLabelKey": "runai/queue"},
    "topologyMigration": {"enabled": False},
    "postCleanup": {"enabled": False},
}


async def test_no_replicas_of_kai_are_no_replicas() -> None:
    """Zero is a number, and not the absence of one; the value of a process takes precedence."""
    rendered = await _template(*sets("operator.replicaCount=0", "webhook.replicas=1"))
    replicas = {
        obj["metadata"]["name"].removeprefix("trainer-kai-"): obj["spec"]["replicas"]
        for obj in rendered
        if obj["kind"] == DEPLOYMENTS.kind
    }

    assert replicas == {"webhook": 1, "podgrouper": 0, "scheduler": 0}


async def test_settings_reach_the_processes_that_have_them() -> None:
    """Another one would end a process with an unknown setting."""
    values = sets("settings.leader.lease_s=1000000", "settings.kueue=true")
    rendered = await _template(*values, *sets("settings.staleness_grace_s=0.5"))
    variables = {
        obj["metadata"]["name"].removeprefix("trainer-kai-"): {
            it["name"].removeprefix("TRAINER_KAI_"): it["value"]
            for it in obj["spec"]["template"]["spec"]["containers"][0]["env"]
            if "value" in it
        }
        for obj in rendered
        if obj["kind"] == DEPLOYMENTS.kind
    }
    shared = {"MODE": "bundled", "KUEUE": "true"}

    assert variables == {
        "webhook": shared,
        "podgrouper": {**shared, "LEADER_LEASE_S": "1000000"},
        "scheduler": {**shared, "LEADER_LEASE_S": "1000000", "STALENESS_GRACE_S": "0.5"},
    }


async def test_another_namespace_and_another_scheduler_name_are_everywhere() -> None:
    """In policies, conditions and roles; the definitions of KAI's names stay."""
    rendered = await helm(
        *("template", "x", CHART, "--namespace", "gangs"), *sets("schedulerName=mine")
    )

    assert "trainer-kai:trainer-kai-" not in rendered
    assert "system:serviceaccount:gangs:trainer-kai-scheduler" in rendered
    namespaces = {obj["metadata"].get("namespace", "gangs") for obj in documents(rendered)}
    assert namespaces == {"gangs", RESERVATION_APP}
    assert "'kai-scheduler'" not in rendered
    assert "- kai-scheduler" not in rendered
    assert "'mine'" in rendered


@pytest.mark.parametrize(
    ("value", "exempt"), [("gpu-sched\\, kai", ["gpu-sched", "kai"]), ("", [])], ids=["two", "none"]
)
async def test_the_namespaces_of_kai_are_exempt(value: str, exempt: list[str]) -> None:
    """Accounts there write the labels of pods that share a GPU, and pods on nodes."""
    rendered = await _template(*sets(f"settings.kai.namespaces={value}"))
    conditions = [
        condition["expression"]
        for obj in rendered
        if obj["kind"] == "ValidatingAdmissionPolicy"
        for condition in obj["spec"].get("matchConditions", ())
        if condition["name"] == "not-by-kai"
    ]
    excludes = "!request.userInfo.username.startsWith('system:serviceaccount:{}:')"

    assert conditions == [" && ".join(map(excludes.format, exempt)) or "true"] * 3


@pytest.mark.parametrize(
    "value", ["global.clusterAutoscaling=true", "settings.autoscaling.enabled=true"]
)
async def test_the_rights_for_provisioning_requests_are_rendered_on_demand(value: str) -> None:
    """With what makes the scheduler ask for nodes at all; the setting alone is refused above."""
    wanted = {"provisioningrequests", "podtemplates"}
    usual = _by_key(await _template(*sets(value)))
    asking = sets("settings.autoscaling.provisioning_requests=true", value)
    rendered = _by_key(await _template(*asking))

    assert _resources(rendered) - _resources(usual) == wanted


async def test_metrics_are_rendered_on_demand() -> None:
    """A ServiceMonitor with its Service."""
    monitor = sets(
        "metrics.serviceMonitor.enabled=true",
        "metrics.serviceMonitor.labels.release=prometheus",
        "metrics.serviceMonitor.interval=30s",
        r"metrics.serviceMonitor.labels.app\.kubernetes\.io/part-of=ours",
    )
    usual = _by_key(await _template())
    monitored = _by_key(await _template(*monitor))
    added = monitored["ServiceMonitor", "trainer-kai", "trainer-kai"]

    assert monitored.keys() - usual.keys() == {
        ("Service", "trainer-kai", "trainer-kai-metrics"),
        ("ServiceMonitor", "trainer-kai", "trainer-kai"),
    }
    assert added["metadata"]["labels"] == {
        "release": "prometheus",
        "app.kubernetes.io/part-of": "ours",
    }
    assert added["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]


async def _template(*flags: str) -> list[Obj]:
    return documents(await helm("template", "x", CHART, "--namespace", "trainer-kai", *flags))


def _folder(name: str, tmp_path: Path) -> Path:
    if name not in _COMPONENTS:
        return MANIFESTS / "overlays" / name
    manifests = os.path.relpath(MANIFESTS, tmp_path)
    kustomization = {
        "resources": [f"{manifests}/overlays/default"],
        "components": [f"{manifests}/components/{name}"],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return tmp_path


def _by_key(objects: list[Obj]) -> dict[Key, Obj]:
    found = {
        (obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj
        for obj in objects
    }
    assert len(found) == len(objects)
    return found


def _tags(objects: dict[Key, Obj]) -> Iterator[str]:
    for obj in objects.values():
        if obj["kind"] == DEPLOYMENTS.kind:
            [container] = obj["spec"]["template"]["spec"]["containers"]
            yield container["image"].partition(":")[2]


def _normal(obj: Obj) -> Obj:
    """Return an object without what may differ: a policy of Helm, and the order of variables."""
    if obj["kind"] == QUEUES.kind:
        metadata = obj["metadata"]
        annotations = metadata.get("annotations", {})
        left = {name: it for name, it in annotations.items() if name not in _KEEP}
        return {**obj, "metadata": {"name": metadata["name"], "annotations": left}}
    if obj["metadata"].get("annotations") == _KEEP:
        metadata = {name: it for name, it in obj["metadata"].items() if name != "annotations"}
        return {**obj, "metadata": metadata}
    if obj["kind"] == DEPLOYMENTS.kind:
        for container in obj["spec"]["template"]["spec"]["containers"]:
            container["env"].sort(key=lambda it: it["name"])
    if "webhooks" in obj:  # an overlay switches one off, and the chart leaves it out
        called = [it for it in obj["webhooks"] if it.get("matchConditions") != _NEVER]
        return {**obj, "webhooks": called}
    return obj
