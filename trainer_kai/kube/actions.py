"""What is posted to the API server and is no object of its own: a binding, a question."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from trainer_kai.api.meta import Key
from trainer_kai.api.names import AUTHORIZATION
from trainer_kai.api.resources import PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.request import object_path, post

__all__ = ["AccessDecision", "AccessRequest", "bind", "review_access"]

_ACCESS_REVIEWS: Final = f"/apis/{AUTHORIZATION}/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """May these do that? A user, groups, or both; the namespace lets RoleBindings say yes."""

    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # what else an authorizer may know him by
    subresource: str = ""


class AccessDecision(msgspec.Struct, frozen=True):
    """What the authorizers say, and why if they do."""

    allowed: bool = False
    reason: str = ""


class _ReviewResponse(msgspec.Struct):
    status: AccessDecision


async def bind(
    client: Client,
    pod: Key,
    node: str,
    *,
    uid: str,
    version: str = "",
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Put this very pod, and no successor of its name, on a node, for good.

    With a *version* (`metadata.resourceVersion`) only as it was then: 409 if it has changed. The
    annotations are written onto the pod in the same step. The answer is a Status and is not read:
    201 is all it says. To hear of a 429 instead of waiting: `client.with_patience(…)`.
    """
    name = {"name": pod.name, "namespace": pod.namespace, "uid": uid}
    if version:
        name["resourceVersion"] = version
    metadata = {**name, "annotations": annotations or {}}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    await client.send(post(object_path(PODS, pod, "binding"), body))


async def review_access(client: Client, access_request: AccessRequest) -> AccessDecision:
    """Ask the API server's authorizers; it changes nothing, so it may be asked twice."""
    attributes = {
        "verb": access_request.verb,
        "group": access_request.group,
        "resource": access_request.resource,
        "name": access_request.name,
        "namespace": access_request.namespace,
    }
    if access_request.subresource:
        attributes["subresource"] = access_request.subresource
    spec: dict[str, object] = {
        "resourceAttributes": attributes,
        "user": access_request.user,
        "groups": list(access_request.groups),
    }
    if access_request.uid:
        spec["uid"] = access_request.uid
    if access_request.extra:
        spec["extra"] = {name: list(values) for name, values in access_request.extra}
    body = {"apiVersion": f"{AUTHORIZATION}/v1", "kind": "SubjectAccessReview", "spec": spec}
    review = await client.call(_ReviewResponse, post(_ACCESS_REVIEWS, body, repeatable=True))
    return review.status
