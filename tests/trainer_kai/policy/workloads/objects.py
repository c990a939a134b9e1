"""Objects of the kinds without admission, and their PodGroups in few words."""

from typing import Any, Final

from trainer_kai.api.decode import decode, encode
from trainer_kai.policy.podgroups.grouping import plan_podgroups
from trainer_kai.policy.podgroups.manifests import GroupingRules, podgroup_manifests
from trainer_kai.policy.workloads.workload import Workload, WorkloadKind

KAI: Final = "kai-scheduler"
RULES: Final = GroupingRules("bundled", KAI, "default-queue")


def template(scheduler: str = KAI, **metadata: Any) -> Any:
    return {"metadata": metadata, "spec": {"schedulerName": scheduler}}


def workload(kind: WorkloadKind, spec: Any, status: Any | None = None, **metadata: Any) -> Workload:
    """Return the workload of an object *x* with the uid U."""
    meta = {"name": "x", "namespace": "team", "uid": "U", **metadata}
    obj = {"metadata": meta, "spec": spec, "status": status or {}}
    found = kind.adapt(decode(kind.resource.struct, encode(obj)))
    assert found is not None
    return found


def manifests(it: Workload) -> list[Any]:
    return [*podgroup_manifests(it, plan_podgroups(it, KAI, form=it.kind.form), RULES)]


def in_words(it: Workload) -> list[str]:
    """Return each PodGroup as `NAME MINIMUM: SUB-GROUP MINIMUM, ...`; `a/b` is b in a."""
    return [_in_words(fields) for fields in manifests(it)]


def _in_words(fields: Any) -> str:
    spec = fields["spec"]
    minimum = spec.get("minMember", spec.get("minSubGroup"))
    subgroups = ", ".join(
        f"{it['parent'] + '/' if 'parent' in it else ''}{it['name']} "
        f"{it.get('minMember', it.get('minSubGroup'))}"
        for it in spec.get("subGroups", ())
    )
    return f"{fields['metadata']['name']} {minimum}" + (f": {subgroups}" if subgroups else "")


def findings(it: Workload) -> list[str]:
    return [str(finding) for finding in plan_podgroups(it, KAI).findings]
