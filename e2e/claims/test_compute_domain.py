"""A gang with channels of a ComputeDomain (NVIDIA's IMEX), beside the daemon pods of its driver.

The driver labels a node when the channel of a pod is prepared there. Then its DaemonSet has a pod
on the node, which kube-scheduler places, and which has another device of the same slice.
"""

from typing import Final

from e2e.claims.devices import (
    WATCHED,
    check_ledger,
    claimed_devices,
    device,
    device_class,
    leaked,
    resource_slice,
    template,
    users_of,
)
from e2e.claims.workloads import allocated, placed, pod, podgroup
from e2e.cluster.resources import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Obj,
    Resource,
)
from e2e.cluster.timeline import Timeline
from e2e.fixtures.install import apply
from e2e.fixtures.installation import Installation, namespace_in

_DOMAIN: Final = "compute-domain.nvidia.com"
_LABEL: Final = "resource.nvidia.com/computeDomain"
_NODES: Final = ("node-0", "node-1")
_DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
_CLASSES: Final = {  # as the driver of NVIDIA installs them
    "compute-domain-daemon.nvidia.com": "daemon",
    "compute-domain-default-channel.nvidia.com": "channel",
}


async def test_a_gang_with_channels(judged_installation: Installation) -> None:
    """Its pods start on two nodes, the daemon pods after them, and the next gang beside these."""
    cluster, api = judged_installation.cluster, judged_installation.cluster.api
    await _install_driver(judged_installation)
    async with (
        namespace_in(judged_installation) as namespace,
        cluster.timeline(*WATCHED, namespace=namespace) as seen,
    ):
        for name, kind in _CLASSES.items():
            await api.create(template(namespace, kind, _claim(name, kind)))
        await api.request("POST", _DAEMON_SETS.path(namespace), _daemon_set())
        await _start_gang(judged_installation, namespace, "first")
        await seen.until(lambda state: placed(state) == {"first-0", "first-1"}, "it runs", 60)
        for node in _NODES:
            await api.merge(NODES, None, node, {"metadata": {"labels": {_LABEL: "domain"}}})
        await seen.until(lambda state: allocated(state) == 4, "the daemon pods have devices", 60)
        await seen.until(lambda state: len(placed(state)) == 4, "and nodes", 60)
        await _start_gang(judged_installation, namespace, "second")
        await _delete_gang(judged_installation, namespace, "first")
        await seen.until(lambda state: {"second-0", "second-1"} <= placed(state), "it runs", 60)
        await seen.settle()
        _check_devices(seen)
        await api.delete(_DAEMON_SETS, namespace, "daemons")
        await _delete_gang(judged_installation, namespace, "second")
        await seen.until(lambda state: not allocated(state), "all devices are free", 60)
    check_ledger(seen)
    assert not leaked(seen.state)
    for node in _NODES:
        await api.delete(RESOURCE_SLICES, None, f"{node}-{_DOMAIN}")
    for name in _CLASSES:
        await api.delete(DEVICE_CLASSES, None, name)


async def _install_driver(installation: Installation) -> None:
    for name, kind in _CLASSES.items():
        await installation.cluster.api.create(device_class(name, _is_of(kind)))
    for node in _NODES:
        devices = [_device(kind) for kind in _CLASSES.values()]
        await installation.cluster.api.create(resource_slice(node, devices, driver=_DOMAIN))


def _check_devices(seen: Timeline) -> None:
    """Check that the second gang and the daemon pods have the devices, with the parameters."""
    claims = seen.objects(RESOURCE_CLAIMS)
    found = {
        (users_of(it)[0].partition("-")[0], pool, name)
        for it in claims
        for _, pool, name in claimed_devices(it)
    }
    users = (("second", "channel-0"), ("daemons", "daemon-0"))
    assert found == {(user, node, name) for node in _NODES for user, name in users}
    for it in claims:
        (config,) = it["status"]["allocation"]["devices"]["config"]
        assert (config["source"], config["opaque"]["driver"]) == ("FromClaim", _DOMAIN)


def _is_of(kind: str) -> str:
    return f"device.driver == '{_DOMAIN}' && device.attributes['{_DOMAIN}'].type == '{kind}'"


def _device(kind: str) -> Obj:
    return device(f"{kind}-0", attributes={"type": {"string": kind}, "id": {"int": 0}})


def _claim(device_class: str, kind: str) -> Obj:
    """Return a claim with the configuration that the driver reads."""
    parameters = {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": f"ComputeDomain{kind.capitalize()}Config",
        "domainID": "domain",
    }
    opaque = {"driver": _DOMAIN, "parameters": parameters}
    return {
        "devices": {
            "requests": [{"name": kind, "exactly": {"deviceClassName": device_class}}],
            "config": [{"requests": [kind], "opaque": opaque}],
        }
    }


def _uses(kind: str) -> Obj:
    return {"name": "gpu", "resourceClaimTemplateName": kind}


def _daemon_set() -> Obj:
    container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    pods: Obj = {
        "schedulerName": "default-scheduler",
        "nodeSelector": {_LABEL: "domain"},
        "containers": [container],
        "resourceClaims": [_uses("daemon")],
    }
    labels = {"app": "daemons"}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "daemons"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pods},
        },
    }


async def _start_gang(installation: Installation, namespace: str, name: str) -> None:
    await apply(installation.cluster, podgroup(namespace, name, 2))
    for n in range(2):
        claims = [_uses("channel")]
        await installation.cluster.api.create(
            pod(namespace, f"{name}-{n}", name, resourceClaims=claims)
        )


async def _delete_gang(installation: Installation, namespace: str, name: str) -> None:
    for n in range(2):
        await installation.cluster.api.delete(PODS, namespace, f"{name}-{n}")
