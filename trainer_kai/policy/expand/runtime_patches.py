"""The template of a runtime after the runtimePatches of a TrainJob.

Merged as in a strategic merge patch: labels and node selectors by key, lists with names by name,
other lists as a whole; a later patch wins. Only the fields that a TrainJob can have are merged; the
API server drops or refuses all others.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from trainer_kai.api.jobset import JobSetSpec, ReplicatedJob
from trainer_kai.api.meta import TemplateMeta
from trainer_kai.api.pod import Container, PodSpec, PodTemplate, SchedulingGate, Volume
from trainer_kai.api.text import listed_names
from trainer_kai.api.trainjob import JobSetTemplate, RuntimePatch
from trainer_kai.errors import FieldError

N = TypeVar("N", Container, SchedulingGate, Volume)

_MAX_NAMED: Final = 5
_POD_FIELDS: Final = frozenset(
    {
        "affinity",
        "containers",
        "init_containers",
        "node_selector",
        "scheduling_gates",
        "tolerations",
        "volumes",
    }
)


def apply_runtime_patches(
    template: JobSetTemplate, patches: Iterable[RuntimePatch]
) -> JobSetTemplate:
    """Patches of unknown replicatedJobs are ignored."""
    for patch in patches:
        over = patch.training_runtime_spec.template
        jobs = {job.name: job for job in over.spec.replicated_jobs}
        listed = tuple(
            _merged_job(job, jobs[job.name]) if job.name in jobs else job
            for job in template.spec.replicated_jobs
        )
        metadata = _merged_metadata(template.metadata, over.metadata)
        template = replace(
            template, metadata=metadata, spec=replace(template.spec, replicated_jobs=listed)
        )
    return template


def runtime_patch_faults(spec: JobSetSpec, patches: Iterable[RuntimePatch]) -> Iterator[FieldError]:
    known = {job.name: job for job in spec.replicated_jobs}
    remedy = ""  # built once, and only for a fault: a template may have many names
    for i, patch in enumerate(patches):
        over = patch.training_runtime_spec.template.spec
        path = f"spec.runtimePatches[{i}].trainingRuntimeSpec.template.spec"
        yield from _unpatchable(over, {"replicated_jobs"}, path)
        for j, job in enumerate(over.replicated_jobs):
            at = f"{path}.replicatedJobs[{j}]"
            yield from _unpatchable(job, {"name", "template"}, at)
            yield from _unpatchable(job.template.spec, {"template"}, f"{at}.template.spec")
            if job.name in known:
                base = known[job.name].template.spec.template.spec
                yield from _pod_faults(base, job, f"{at}.template.spec.template.spec")
            else:
                remedy = remedy or _names_remedy(known)
                message = f"the runtime has no replicatedJob {job.name!r}, so the JobSet is refused"
                yield FieldError(f"{at}.name", f"{message}. {remedy}")


def _pod_faults(base: PodSpec, job: ReplicatedJob, path: str) -> Iterator[FieldError]:
    over = job.template.spec.template.spec
    yield from _unpatchable(over, _POD_FIELDS, path)
    for field, has, patch in (
        ("initContainers", base.init_containers, over.init_containers),
        ("containers", base.containers, over.containers),
    ):
        names = {container.name for container in has}
        remedy = ""
        for k, container in enumerate(patch):
            at = f"{path}.{field}[{k}]"
            yield from _unpatchable(container, {"name"}, at)
            if container.name not in names:
                remedy = remedy or _names_remedy(sorted(names))
                message = (
                    f"replicatedJob {job.name!r} of the runtime has no container "
                    f"{container.name!r} in {field}, so it is added without an image"
                )
                yield FieldError(f"{at}.name", f"{message}. {remedy}")


def _names_remedy(known: Iterable[str]) -> str:
    names = list(known)
    listed = listed_names(names, _MAX_NAMED)
    return f"Name one of the runtime: {listed or 'none'}"


def _unpatchable(
    value: msgspec.Struct, patchable: Iterable[str], path: str
) -> Iterator[FieldError]:
    for name, spelling, empty in _fields(type(value)):
        if name not in patchable and getattr(value, name) != empty:
            yield FieldError(f"{path}.{spelling}", "a runtime patch cannot set this field")


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """Name, name in JSON, and default."""
    empty = msgspec.convert({"name": ""}, kind)
    fields = msgspec.structs.fields(kind)
    return tuple((it.name, it.encode_name, getattr(empty, it.name)) for it in fields)


def _merged_job(base: ReplicatedJob, over: ReplicatedJob) -> ReplicatedJob:
    spec = base.template.spec
    template = replace(
        base.template,
        metadata=_merged_metadata(base.template.metadata, over.template.metadata),
        spec=replace(spec, template=_merged_pod(spec.template, over.template.spec.template)),
    )
    return replace(base, template=template)


def _merged_pod(base: PodTemplate, over: PodTemplate) -> PodTemplate:
    base_spec, over_spec = base.spec, over.spec
    spec = replace(
        base_spec,
        affinity=_overlay(base_spec.affinity, over_spec.affinity),
        containers=_merged_by_name(base_spec.containers, _names_only(over_spec.containers)),
        init_containers=_merged_by_name(
            base_spec.init_containers, _names_only(over_spec.init_containers)
        ),
        node_selector={**base_spec.node_selector, **over_spec.node_selector},
        scheduling_gates=_merged_by_name(base_spec.scheduling_gates, over_spec.scheduling_gates),
        tolerations=over_spec.tolerations or base_spec.tolerations,
        volumes=_merged_by_name(base_spec.volumes, over_spec.volumes),
    )
    return PodTemplate(metadata=_merged_metadata(base.metadata, over.metadata), spec=spec)


def _names_only(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    return tuple(Container(name=container.name) for container in containers)


def _merged_metadata(base: TemplateMeta, over: TemplateMeta) -> TemplateMeta:
    return TemplateMeta(
        name=over.name or base.name,
        labels={**base.labels, **over.labels},
        annotations={**base.annotations, **over.annotations},
    )


def _merged_by_name(base: tuple[N, ...], over: tuple[N, ...]) -> tuple[N, ...]:
    """Merge lists of items with names.

    Patched items are in the order of the patch. The others keep their order, each before the
    patched item that it preceded; so new items come first.
    """
    place = {item.name: i for i, item in enumerate(base)}
    patched = {item.name for item in over}
    rest: list[N] = [item for item in base if item.name not in patched]
    items: list[N] = []
    for item in over:
        at = place.get(item.name)
        while rest and at is not None and place[rest[0].name] < at:
            items.append(rest.pop(0))
        items.append(item if at is None else _overlay(base[at], item))
    return tuple(items + rest)


def _overlay(base: Any, over: Any) -> Any:
    if base is None or over is None:
        return base if over is None else over
    changed = {}
    for name in over.__struct_fields__:
        value = getattr(over, name)
        if isinstance(value, msgspec.Struct):
            changed[name] = _overlay(getattr(base, name), value)
        elif value:
            changed[name] = value
    return replace(base, **changed)
