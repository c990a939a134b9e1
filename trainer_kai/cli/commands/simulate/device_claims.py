"""ResourceClaims of a simulation: created for pods, allocated when these are bound, then freed."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from scheduler.state.cache.assumed_claims import node_allocation
from scheduler.state.commands import ClaimAllocationCommand, Commands
from scheduler.state.inputs import Cluster
from trainer_kai.api.device_kinds import ClaimConsumer, ResourceClaim, ResourceClaimStatus
from trainer_kai.api.meta import Key, Meta, OwnerReference
from trainer_kai.api.pod import ClaimStatus, Pod, PodResourceClaim


def create_claims(cluster: Cluster) -> None:
    """Create the claims that pods have by template, as Kubernetes does."""
    if not cluster.claim_templates:
        return
    for key, pod in [*cluster.pods.items()]:
        known = {it.name for it in pod.status.resource_claim_statuses}
        missing = [
            it
            for it in pod.spec.resource_claims
            if it.resource_claim_template_name and it.name not in known
        ]
        created = [it for it in missing if _create(cluster, pod, it)]
        if created:
            statuses = (*pod.status.resource_claim_statuses, *map(_status(pod), created))
            status = replace(pod.status, resource_claim_statuses=statuses)
            cluster.pods[key] = replace(pod, status=status)


def _name(pod: Pod, use: PodResourceClaim) -> str:
    return f"{pod.metadata.name}-{use.name}"


def _status(pod: Pod) -> Any:
    return lambda use: ClaimStatus(name=use.name, resource_claim_name=_name(pod, use))


def _create(cluster: Cluster, pod: Pod, use: PodResourceClaim) -> bool:
    namespace, name = pod.metadata.namespace, _name(pod, use)
    template = cluster.claim_templates.get(Key(namespace, use.resource_claim_template_name))
    if template is None:
        return False
    owner = OwnerReference(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=True,
    )
    meta = Meta(
        name=name, namespace=namespace, uid=f"{namespace}.{name}", owner_references=(owner,)
    )
    claim = ResourceClaim(metadata=meta, spec=template.spec.spec)
    cluster.resource_claims.setdefault(Key(namespace, name), claim)
    return True


def allocate_claims(cluster: Cluster, commands: Commands) -> None:
    """Allocate the claims of bound pods, and reserve them for these."""
    nodes = {it.pod: it.node for it in commands.binds}
    for one in commands.podgroups:
        for pod, claims in one.claims.items():
            for claim in claims:
                _allocate(cluster, claim, cluster.pods[pod], nodes[pod])


def _allocate(cluster: Cluster, one: ClaimAllocationCommand, pod: Pod, node: str) -> None:
    claim = cluster.resource_claims[one.claim]
    meta, status = pod.metadata, claim.status
    users = [it for it in status.reserved_for if it.uid != meta.uid]
    own = ClaimConsumer(resource="pods", name=meta.name, uid=meta.uid)
    allocation = status.allocation or node_allocation(node, one)
    reserved = ResourceClaimStatus(allocation=allocation, reserved_for=(*users, own))
    cluster.resource_claims[one.claim] = replace(claim, status=reserved)


def free_claims(cluster: Cluster) -> None:
    """Free the claims of pods that are gone or have no node any more; delete those of gone pods."""
    for key, claim in [*cluster.resource_claims.items()]:
        owner = claim.metadata.controller
        if owner is not None and owner.kind == "Pod":
            pod = cluster.pods.get(Key(key.namespace, owner.name))
            if pod is None or pod.metadata.uid != owner.uid:
                del cluster.resource_claims[key]
                continue
        before = claim.status.reserved_for
        users = tuple([it for it in before if _uses(cluster, key.namespace, it)])
        if len(users) < len(before):
            allocation = claim.status.allocation if users else None
            status = ResourceClaimStatus(allocation=allocation, reserved_for=users)
            cluster.resource_claims[key] = replace(claim, status=status)


def _uses(cluster: Cluster, namespace: str, user: ClaimConsumer) -> bool:
    if user.resource != "pods":
        return True
    pod = cluster.pods.get(Key(namespace, user.name))
    return pod is not None and pod.metadata.uid == user.uid and bool(pod.spec.node_name)


def claims_json(claims: Mapping[Key, tuple[ClaimAllocationCommand, ...]], pod: Key) -> Any:
    """Return the devices of a pod by claim, or nothing for a pod without claims."""
    if pod not in claims:
        return {}
    return {"claims": {it.claim.name: [*_devices(it)] for it in claims[pod]}}


def _devices(one: ClaimAllocationCommand) -> Iterator[str]:
    for it in one.devices:
        yield f"{it.device.driver}/{it.device.pool}/{it.device.device}"
