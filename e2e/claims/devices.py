"""Simulated devices and claims, and the ledger: what must hold at every change of a claim."""

from collections import Counter
from typing import Any, Final

from e2e.cluster.resources import (
    CLAIM_TEMPLATES,
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Obj,
)
from e2e.cluster.timeline import State, Timeline, replay

DRIVER: Final = "gpu.nvidia.com"
IS_GPU: Final = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
WATCHED: Final = (PODS, RESOURCE_CLAIMS)


def device_class(name: str = DRIVER, expression: str = IS_GPU) -> Obj:
    return {
        "apiVersion": DEVICE_CLASSES.api_version,
        "kind": DEVICE_CLASSES.kind,
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def device(name: str, **more: Any) -> Obj:
    attributes = {"type": {"string": "gpu"}, **more.pop("attributes", {})}
    return {"name": name, "attributes": attributes, **more}


def resource_slice(node: str, devices: list[Obj], generation: int = 1, driver: str = DRIVER) -> Obj:
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {
        "apiVersion": RESOURCE_SLICES.api_version,
        "kind": RESOURCE_SLICES.kind,
        "metadata": {"name": f"{node}-{'gpus' if driver == DRIVER else driver}"},
        "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices},
    }


def template(namespace: str, name: str, spec: Obj) -> Obj:
    return {
        "apiVersion": CLAIM_TEMPLATES.api_version,
        "kind": CLAIM_TEMPLATES.kind,
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"spec": spec},
    }


def one_gpu(**more: Any) -> Obj:
    return {
        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRIVER, **more}}]}
    }


def claimed_devices(claim: Obj) -> list[tuple[str, str, str]]:
    allocation = claim.get("status", {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results", ())
    return [(it["driver"], it["pool"], it["device"]) for it in results]


def users_of(claim: Obj) -> list[str]:
    return [it["name"] for it in claim.get("status", {}).get("reservedFor") or ()]


def check_ledger(seen: Timeline) -> None:
    """Check each moment: no device is in two claims, and each pod on a node has its devices."""
    for moment, state in replay(seen.history()):
        claims = [obj for key, obj in state.items() if key.resource == RESOURCE_CLAIMS]
        taken = Counter(device for it in claims for device in claimed_devices(it))
        twice = [it for it, count in taken.items() if count > 1]
        assert not twice, f"{twice} in two claims at {moment}"
        used = {name: it for it in claims for name in users_of(it)}
        for key, pod in state.items():
            if key.resource == PODS and _runs(pod):
                pools = {pool for _, pool, _ in claimed_devices(used.get(key.name, {}))}
                assert pools == {pod["spec"]["nodeName"]}, f"{key.name} has {pools} at {moment}"


def _runs(pod: Obj) -> bool:
    is_over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    is_alive = not is_over and "deletionTimestamp" not in pod["metadata"]
    return is_alive and {"nodeName", "resourceClaims"} <= pod["spec"].keys()


def leaked(state: State) -> list[str]:
    """Return the claims that are allocated without a pod that uses them."""
    pods = {obj["metadata"]["name"] for key, obj in state.items() if key.resource == PODS}
    return [
        obj["metadata"]["name"]
        for key, obj in state.items()
        if key.resource == RESOURCE_CLAIMS and claimed_devices(obj) and not pods & {*users_of(obj)}
    ]
