"""What the API server is asked to do that is no writing of fields: bind, evict, answer, vouch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from trainer_kai.api.meta import Key, PartialObject
from trainer_kai.api.names import AUTHENTICATION, AUTHORIZATION
from trainer_kai.api.resource import Resource
from trainer_kai.api.resources import PODS
from trainer_kai.kube.client import Client
from trainer_kai.kube.request import object_path, post

__all__ = ["Question", "ServiceToken", "Verdict", "bind", "evict", "is_allowed", "request_token"]

_REVIEWS: Final = f"/apis/{AUTHORIZATION}/v1/subjectaccessreviews"
_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, PartialObject)  # noqa: FBT003


@dataclass(frozen=True, slots=True)
class Question:
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


class Verdict(msgspec.Struct, frozen=True):
    """What the authorizers say, and why if they do."""

    allowed: bool = False
    reason: str = ""


class ServiceToken(msgspec.Struct, frozen=True, rename="camel"):
    """A token for a service account, and until when it is good."""

    token: str
    expiration_timestamp: str = ""


class _Reviewed(msgspec.Struct):
    status: Verdict


class _Vouched(msgspec.Struct):
    status: ServiceToken


async def bind(
    client: Client,
    pod: Key,
    node: str,
    *,
    uid: str,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """Put this very pod, and no successor of its name, on a node, for good.

    The annotations are written onto the pod in the same step. The answer is a Status and is not
    read: 201 is all it says. To hear of a 429 instead of waiting: `client.with_patience(…)`.
    """
    name = {"name": pod.name, "namespace": pod.namespace, "uid": uid}
    metadata = {**name, "annotations": annotations or {}}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    await client.send(post(object_path(PODS, pod, "binding"), body))


async def evict(client: Client, pod: Key, *, uid: str = "", grace_s: int | None = None) -> None:
    """Ask for a pod to be deleted as its disruption budget allows; `Throttled` when it does not."""
    options: dict[str, object] = {}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    if uid:
        options["preconditions"] = {"uid": uid}
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }
    request = post(object_path(PODS, pod, "eviction"), body)
    await client.send(msgspec.structs.replace(request, waits_when_throttled=False))


async def is_allowed(client: Client, question: Question) -> Verdict:
    """Ask the API server's authorizers; it changes nothing, so it may be asked twice."""
    attributes = {
        "verb": question.verb,
        "group": question.group,
        "resource": question.resource,
        "name": question.name,
        "namespace": question.namespace,
    }
    if question.subresource:
        attributes["subresource"] = question.subresource
    spec: dict[str, object] = {
        "resourceAttributes": attributes,
        "user": question.user,
        "groups": list(question.groups),
    }
    if question.uid:
        spec["uid"] = question.uid
    if question.extra:
        spec["extra"] = {name: list(values) for name, values in question.extra}
    body = {"apiVersion": f"{AUTHORIZATION}/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = await client.ask(_Reviewed, post(_REVIEWS, body, repeatable=True))
    return answer.status


async def request_token(
    client: Client, account: Key, *, audiences: tuple[str, ...] = (), good_for_s: int = 3600
) -> ServiceToken:
    """Return a token for a service account."""
    body = {
        "apiVersion": f"{AUTHENTICATION}/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": list(audiences), "expirationSeconds": good_for_s},
    }
    path = object_path(_ACCOUNTS, account, "token")
    answer = await client.ask(_Vouched, post(path, body, repeatable=True))
    return answer.status
