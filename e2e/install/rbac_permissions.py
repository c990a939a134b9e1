"""What our roles allow, as single permissions: one verb on one resource each. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from e2e.cluster.audit import Request
from e2e.cluster.resources import Obj
from e2e.fixtures.processes import NAMESPACE

_FORBIDDEN: Final = 403
_CREATED: Final = 201
_MADE: Final = ("create",)  # what is applied and was not there needs this right beside `patch`
_ACCOUNT: Final = f"system:serviceaccount:{NAMESPACE}:"


class RbacPermission(NamedTuple):
    """One thing that a process may do."""

    kind: str  # of the role
    role: str  # which is called as the account
    group: str
    resource: str
    verb: str
    name: str = ""  # of the one object; empty for any
    namespace: str = ""  # of a Role

    def __str__(self) -> str:
        """Write it as people speak of it."""
        which = f" {self.name}" if self.name else ""
        group = f".{self.group}" if self.group else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.role}: {self.verb} {self.resource}{group}{which}{where}"


# The first is no path: the API server asks for it where an allocation changes. The second
# is not served by this chain.
NEVER_ASKED: Final = ("resourceclaims/binding", "devicetaintrules")


def permissions_of(objects: Iterable[Obj]) -> list[RbacPermission]:
    """Return every right that the roles among some objects give to our processes."""
    objects = list(objects)
    accounts = {
        it["metadata"]["name"]
        for it in objects
        if it["kind"] == "ServiceAccount" and it["metadata"]["namespace"] == NAMESPACE
    }
    return [
        right
        for role in objects
        if role["kind"] in ("ClusterRole", "Role") and role["metadata"]["name"] in accounts
        for rule in role["rules"]
        for right in _of_rule(role, rule)
    ]


def is_used_by_request(right: RbacPermission, asked: Request) -> bool:
    """Say whether a request needed this right, and was let through."""
    return (
        asked.user == _ACCOUNT + right.role
        and asked.status != _FORBIDDEN
        and (asked.group, asked.resource) == (right.group, right.resource)
        and right.verb in (asked.verb, *(_MADE if asked.status == _CREATED else ()))
        and right.name in ("", asked.name)
        and right.namespace in ("", asked.namespace)
    )


def without(rules: Sequence[Obj], right: RbacPermission) -> list[Obj]:
    """Return the rules of a role with one right missing and all others there."""
    return [rest for rule in rules for rest in _rest(rule, right)]


def _rest(rule: Obj, right: RbacPermission) -> Iterator[Obj]:
    named = rule.get("resourceNames", [""])
    is_here = right.group in rule["apiGroups"] and right.resource in rule["resources"]
    if not is_here or right.verb not in rule["verbs"] or right.name not in named:
        yield rule
        return
    others = [it for it in rule["resources"] if it != right.resource]
    verbs = [it for it in rule["verbs"] if it != right.verb]
    if others:
        yield {**rule, "resources": others}
    if verbs:
        yield {**rule, "resources": [right.resource], "verbs": verbs}


def _of_rule(role: Obj, rule: Obj) -> Iterator[RbacPermission]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames", [""]):
                    where = (role["kind"], role["metadata"]["name"])
                    namespace = role["metadata"].get("namespace", "")
                    yield RbacPermission(*where, group, resource, verb, name, namespace)
