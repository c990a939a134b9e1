"""What a user may not read, and the command with which an administrator grants it."""

from typing import Any, Final

from trainer_kai.api.resources import PODGROUPS, Resource

USER_ROLE: Final = "trainer-kai-user"
QUEUE_OWNER_ROLE: Final = "trainer-kai-queue-owner"
_VIEW_ROLE: Final = "view"


def missing_right(what: str, resource: Resource[Any], namespace: str) -> str:
    """Return that *what* is not shown, because its kind cannot be listed, and the remedy."""
    return f"{what} are not shown: {grant_hint(resource, namespace)}"


def grant_hint(resource: Resource[Any], namespace: str) -> str:
    """Return which permission is missing, and the command that grants it.

    What is not in one namespace needs a ClusterRoleBinding: a RoleBinding has no effect on it.
    """
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    if not resource.namespaced:
        where = "(cluster-scoped)"
    if namespace and resource.namespaced:
        bind = f"kubectl create rolebinding NAME --clusterrole={_VIEW_ROLE} --user=USER"
        grant = f"{bind} -n {namespace}"
    else:
        is_of_all = resource.plural == PODGROUPS.plural
        role = QUEUE_OWNER_ROLE if is_of_all or resource.namespaced else USER_ROLE
        grant = f"kubectl create clusterrolebinding NAME --clusterrole={role} --user=USER"
    return f"you may not list {resource} {where}. An administrator grants it: `{grant}`"
