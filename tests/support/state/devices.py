"""Objects of dynamic resource allocation for the tests of the state."""

from collections.abc import Sequence
from typing import Any, Final

from tests.support.state.objects import Fields, make_object, pod

DRIVER: Final = "gpu.nvidia.com"
IS_GPU: Final = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"


def device_class(name: str = DRIVER, *expressions: str, **spec: Any) -> Fields:
    selectors = [{"cel": {"expression": it}} for it in expressions or (IS_GPU,)]
    return make_object("DeviceClass", name, spec={"selectors": selectors, **spec})


def gpu(name: str, **more: Any) -> Fields:
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": f"u-{name}"},
        "productName": {"string": "NVIDIA A100-SXM4-80GB"},
        "cudaComputeCapability": {"version": "8.0.0"},
        **more.pop("attributes", {}),
    }
    capacity = {"memory": {"value": "80Gi"}, **more.pop("capacity", {})}
    return {"name": name, "attributes": attributes, "capacity": capacity, **more}


def resource_slice(node: str, devices: Sequence[Fields] | int = 2, **spec: Any) -> Fields:
    """Return the only slice of the pool of a node, unless *spec* says otherwise."""
    if isinstance(devices, int):
        devices = [gpu(f"gpu-{n}") for n in range(devices)]
    name = spec.pop("name", f"{node}-slice")
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1, **spec.pop("pool", {})}
    fields = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": list(devices), **spec}
    return make_object("ResourceSlice", name, spec=fields)


def request(name: str = "gpu", **more: Any) -> Fields:
    if "firstAvailable" in more:
        return {"name": name, **more}
    return {"name": name, "exactly": {"deviceClassName": DRIVER, **more}}


def claim_spec(*requests: Fields, **more: Any) -> Fields:
    return {"devices": {"requests": list(requests) or [request()], **more}}


def claim_template(name: str = "t", *requests: Fields, **more: Any) -> Fields:
    return make_object("ResourceClaimTemplate", name, spec={"spec": claim_spec(*requests, **more)})


def resource_claim(name: str, *requests: Fields, of: str = "", **more: Any) -> Fields:
    """Return a claim, which is that of a pod if *of* names one."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": of, "uid": of, "controller": True}
    meta = {"uid": name, **({"ownerReferences": [owner]} if of else {}), **more.pop("meta", {})}
    status = more.pop("status", {})
    return make_object(
        "ResourceClaim", name, meta, spec=claim_spec(*requests, **more), status=status
    )


def allocation(node: str, *devices: str, users: Sequence[str] = (), request: str = "gpu") -> Fields:
    """Return the status of a claim that is allocated; *users* are pods."""
    results = [{"request": request, "driver": DRIVER, "pool": node, "device": it} for it in devices]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    return {
        "allocation": {
            "devices": {"results": results},
            "nodeSelector": {"nodeSelectorTerms": terms},
        },
        "reservedFor": [{"resource": "pods", "name": it, "uid": it} for it in users],
    }


def claiming_pod(
    name: str, of: str = "", *, template: str = "t", claim: str = "", **more: Any
) -> Fields:
    """Return a pod with a claim by template, which is NAME-gpu; or one that names a claim."""
    use = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": template}
    status = more.pop("status", {})
    if not claim and more.pop("has_claim", True):
        known = [{"name": "gpus", "resourceClaimName": f"{name}-gpu"}]
        status = {"resourceClaimStatuses": known, **status}
    uses = more.pop("resourceClaims", [{"name": "gpus", **use}])
    asks = more.pop("asks", {})
    return pod(name, of, asks=asks, resourceClaims=uses, status=status, **more)


def claiming_gang(
    name: str, count: int, template: str = "t", *requests: Fields, **more: Any
) -> list[Fields]:
    """Return the pods of a gang, and their claims as Kubernetes creates them of the template."""
    pods = [claiming_pod(f"{name}{n}", name, template=template) for n in range(count)]
    claims = [
        resource_claim(f"{name}{n}-gpu", *requests, of=f"{name}{n}", **more) for n in range(count)
    ]
    return [*pods, *claims]
