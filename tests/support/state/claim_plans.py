"""What is planned for pods with claims, in a form that tests can state."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.plan import plan
from scheduler.policies.registry import PolicySelection, build_policies
from scheduler.state.commands import commands_from_plan
from tests.support.state.devices import (
    allocation,
    claim_template,
    claiming_gang,
    claiming_pod,
    device_class,
    resource_claim,
    resource_slice,
)
from tests.support.state.objects import Fields, encode_objects, group, node

_POLICIES: Final = build_policies(PolicySelection())
BASE: Final = [device_class(), claim_template(), node("a", gpu=0), node("b", gpu=0)]
SLICES: Final = [resource_slice("a"), resource_slice("b")]
STARTED: Final = {"annotations": {"kai.scheduler/last-start-timestamp": "2026-01-05T07:00:00Z"}}


class Planned(NamedTuple):
    """By pod: its node, and its devices by request; pods that are nominated, and evicted."""

    binds: Mapping[str, str] = MappingProxyType({})
    nominated: str = ""
    evicted: str = ""


def planned(*objects: Fields) -> Planned | str:
    """Return what is planned; if nothing is, why the first PodGroup waits."""
    encoded = encode_objects(*objects)
    core_plan = plan(encoded.snapshot, _POLICIES)
    commands = commands_from_plan(encoded, core_plan)
    found = Planned(
        {
            it.pod.name: " ".join(
                [
                    it.node,
                    *(
                        f"{device.request}={device.device.device}"
                        for claim in one.claims.get(it.pod, ())
                        for device in claim.devices
                    ),
                ]
            )
            for one in commands.podgroups
            for it in one.binds
        },
        " ".join(sorted(it.pod.name for it in commands.nominations)),
        " ".join(sorted(key.name for it in commands.evictions for key in it.pods)),
    )
    if found == Planned() and core_plan.rejections:
        return rejection_message(encoded.snapshot, core_plan.rejections[0])
    return found


def new_gang(count: int, *requests: Fields, **more: Any) -> list[Fields]:
    """Return a gang with claims by a template of its own."""
    template = claim_template("own", *requests, **more)
    gang = claiming_gang("g", count, "own", *requests, **more)
    return [template, group("g", minMember=count), *gang]


def running(name: str, where: str, device: str, **more: Any) -> list[Fields]:
    """Return a PodGroup of one pod that has a device."""
    return [
        group(name, minMember=1, meta=STARTED),
        claiming_pod(f"{name}0", name, node=where, **more),
        resource_claim(
            f"{name}0-gpu", of=f"{name}0", status=allocation(where, device, users=[f"{name}0"])
        ),
    ]
