"""Kinds of dynamic resource allocation (resource.k8s.io/v1): the fields that we read.

A field that we do not support is read as far as needed to say so.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from trainer_kai.api.meta import Meta, NodeSelector
from trainer_kai.api.pod import Toleration
from trainer_kai.api.quantity import Quantity


class CelSelector(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    expression: str = ""


class DeviceSelector(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    cel: CelSelector = CelSelector()


class DeviceClassSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[Mapping[str, Any], ...] = ()
    extended_resource_name: str = ""  # that stands for a claim of this class


class DeviceClass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: DeviceClassSpec = DeviceClassSpec()


class ExactDeviceRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """What a request asks for; as one of several alternatives it has a name."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: Mapping[str, Any] = {}  # of devices that several claims share: not supported


class DeviceRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[ExactDeviceRequest, ...] = ()


class DeviceConstraint(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    """Without requests it is about all of them."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class DeviceClaim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[Mapping[str, Any], ...] = ()


class ResourceClaimSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    devices: DeviceClaim = DeviceClaim()


class RequestedClass(NamedTuple):
    """A DeviceClass that a request of a claim names; "request/name" is one of its alternatives."""

    request: str
    name: str


def requested_classes(spec: ResourceClaimSpec) -> tuple[RequestedClass, ...]:
    return tuple(
        [
            RequestedClass(
                f"{request.name}/{it.name}" if it.name else request.name, it.device_class_name
            )
            for request in spec.devices.requests
            for it in request.first_available or ((request.exactly,) if request.exactly else ())
        ]
    )


class AllocatedDevice(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False


class AllocatedDevices(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    results: tuple[AllocatedDevice, ...] = ()


class ClaimAllocation(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None  # None is all nodes


class ClaimConsumer(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class ResourceClaimStatus(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    allocation: ClaimAllocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()


class ResourceClaim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


class DeviceAttribute(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One of them is set; one with a list has none of these, and no selector sees it."""

    number: int | None = msgspec.field(default=None, name="int")
    flag: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class DeviceCapacity(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    value: Quantity = 0


class ConsumedCounters(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    counter_set: str = ""
    counters: Mapping[str, DeviceCapacity] = {}


class DeviceTaint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """NoSchedule, NoExecute or None."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Device(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str
    attributes: Mapping[str, DeviceAttribute] = {}
    capacity: Mapping[str, DeviceCapacity] = {}
    consumes_counters: tuple[ConsumedCounters, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False


class ResourcePool(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class CounterSet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    name: str = ""
    counters: Mapping[str, DeviceCapacity] = {}


class ResourceSliceSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: ResourceSliceSpec = ResourceSliceSpec()


class TaintedDevices(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which devices a rule taints; without a field it is about all."""

    driver: str = ""
    pool: str = ""
    device: str = ""


class DeviceTaintRuleSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    device_selector: TaintedDevices | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
