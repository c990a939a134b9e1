"""The kinds of autoscalers: ProvisioningRequest, of cluster-autoscaler and of clouds."""

from typing import Any

import msgspec

from trainer_kai.api.meta import Condition, Meta


class ProvisioningRequestSpec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    provisioning_class_name: str = ""
    pod_sets: tuple[Any, ...] = ()  # only their number counts


class ProvisioningRequestStatus(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    conditions: tuple[Condition, ...] = ()


class ProvisioningRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()
