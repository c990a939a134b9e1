"""TrainJobs for a Trainer before 2.2. Pure.

TrainJobs have `runtimePatches` since Trainer 2.2. Those of Trainer 2.1 have `podTemplateOverrides`,
which change the pods of named replicatedJobs. The tests write `runtimePatches`; what these say
about pods is written in the older field.
"""

from collections.abc import Callable, Iterable
from typing import Final

from e2e.cluster.resources import TRAINJOBS, Obj

_PATCHES: Final = "runtimePatches"
_OVERRIDES: Final = "podTemplateOverrides"


def trainjob_fields(crds: Iterable[Obj]) -> frozenset[str]:
    """Return the fields that the CRD of TrainJobs has in `spec`."""
    [crd] = [crd for crd in crds if crd["spec"]["names"]["kind"] == TRAINJOBS.kind]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return frozenset(schema["properties"]["spec"]["properties"])


def rewriting(fields: frozenset[str]) -> Callable[[Obj], Obj]:
    """Return how an object is written where the `spec` of a TrainJob has these fields."""
    return _with_overrides if _PATCHES not in fields and _OVERRIDES in fields else lambda obj: obj


def _with_overrides(obj: Obj) -> Obj:
    if obj["kind"] != TRAINJOBS.kind or _PATCHES not in obj["spec"]:
        return obj
    spec = dict(obj["spec"])
    jobs = [job for patch in spec.pop(_PATCHES) for job in _replicated_jobs(patch)]
    return {**obj, "spec": {**spec, _OVERRIDES: [_override(job) for job in jobs]}}


def _replicated_jobs(patch: Obj) -> list[Obj]:
    template = patch["trainingRuntimeSpec"]["template"]
    jobs: list[Obj] = template["spec"]["replicatedJobs"]
    assert template == {"spec": {"replicatedJobs": jobs}}, "an override changes only pods"
    return jobs


def _override(job: Obj) -> Obj:
    pods = job["template"]["spec"]["template"]
    assert job == {"name": job["name"], "template": {"spec": {"template": pods}}}, job
    return {"targetJobs": [{"name": job["name"]}], **pods}
