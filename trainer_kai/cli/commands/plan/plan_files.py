"""Previews of the TrainJobs and other workloads in files, as a table or as JSON.

Runtimes and namespaces that no file has, and the objects that findings are checked against, are
read from the cluster with the permissions of the user: only if a runtime is missing, or if the user
names a cluster.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from trainer_kai.api.jobset import CronJob, Job, JobSet
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    CLUSTER_RUNTIMES,
    JOBS,
    JOBSETS,
    NAMESPACES,
    RESOURCE_CLAIMS,
    RUNTIMES,
    TRAINJOBS,
    Resource,
)
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.cli.commands.plan.placements import placement_text
from trainer_kai.cli.commands.plan.plan_input import (
    DEVICE_KINDS,
    LINT_KINDS,
    PlanInput,
    Submitted,
)
from trainer_kai.cli.commands.plan.preview import (
    PodGroupPreview,
    Preview,
    PreviewContext,
    foreign_preview,
    job_of_cron_job,
    preview_cron_job,
    preview_owned,
    preview_submitted,
    preview_trainjob,
    runtime_key,
)
from trainer_kai.cli.input.documents import Document, read_files, read_object
from trainer_kai.cli.input.kinds import (
    CRON_JOBS,
    KINDS,
    UNMARKED,
    faults_of,
    queue_warnings,
    with_identity,
)
from trainer_kai.cli.input.pod_owners import (
    TEMPLATE_KINDS,
    PodOwner,
    owned_pods,
    unknown_pods_note,
)
from trainer_kai.cli.input.unknown_fields import InputWarnings, unread_files
from trainer_kai.cli.options import connection, kind_defaults
from trainer_kai.cli.output.table import table
from trainer_kai.errors import ConfigError, FieldError, FieldWarning
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.kube.rest.response import ApiError, Forbidden, NotFound
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.queueing.queue_resolution import QueueSource
from trainer_kai.policy.workloads.kinds import KIND_OF_RESOURCE

if TYPE_CHECKING:
    from trainer_kai.kube.client import Client

_SCHEMA: Final = "trainer-kai/plan/v2"
_BLOCKED: Final = 1  # the exit code
_MOST_TRIALS: Final = 64  # each plans the whole cluster
_POD: Final = ("", "Pod")
_WHY_NO_PODS: Final = ", because an empty cluster is compared: simulate counts pods"
_HEADINGS: Final = ("STAGE", "PODGROUP", "AFTER", "MEMBERS", "STARTS WITH", "REQUESTS")
_PLANNED_KINDS: Final = (
    TRAINJOBS,
    JOBSETS,
    JOBS,
    CRON_JOBS,
    CLUSTER_RUNTIMES,
    RUNTIMES,
    NAMESPACES,
)
_CLAIM_KINDS: Final = (*DEVICE_KINDS, CLAIM_TEMPLATES, RESOURCE_CLAIMS)
_KINDS: Final = frozenset(
    {
        *((it.group, it.kind) for it in (*_PLANNED_KINDS, *LINT_KINDS, *_CLAIM_KINDS)),
        *UNMARKED,
        *TEMPLATE_KINDS,
    }
)


_SUBMITTED: Final[Mapping[str, Resource[Any]]] = {
    **{it.kind: it for it in (JOBSETS, JOBS, CRON_JOBS)},
    **{it.resource.kind: it.resource for it in UNMARKED.values()},
    **{it.kind: it for it in TEMPLATE_KINDS.values()},
}
_UNMARKED_STRUCTS: Final[tuple[type[Any], ...]] = (
    *{it.resource.struct for it in UNMARKED.values()},
    PodOwner,
)


def plan_files(args: argparse.Namespace) -> int:
    plan_input = _read(args.files, args.namespace)
    if not plan_input.jobs and not plan_input.others:
        names = ", ".join(args.files)
        message = f"{names}: no TrainJob, JobSet, Job, CronJob or other workload found"
        raise ConfigError([FieldError("-f", message)])
    missing = [job for job in plan_input.jobs if runtime_key(job) not in plan_input.runtimes]
    if missing or args.kubeconfig or args.context:
        import asyncio  # noqa: PLC0415 - few plans need a cluster, and it is slow to import

        asyncio.run(_fetch_missing(args, plan_input, missing))
    previews = [*_previews(args, plan_input)]
    if args.output == "json":
        print(json.dumps({"schema": _SCHEMA, "plans": [*map(_as_json, previews)]}, indent=2))
    else:
        print("\n\n".join(map(_as_text, previews)))
    return _BLOCKED if any(it.is_blocked for it in previews) else 0


def _read(files: Iterable[str], namespace: str) -> PlanInput:
    plan_input = PlanInput([], [], {}, {}, {}, set(), {}, set(), {})
    faults: list[FieldError] = []
    warnings = InputWarnings()
    documents = read_files(files, faults=faults)
    faults += unread_files(documents, _KINDS)
    ignored: dict[tuple[str, str, str], list[Document]] = {}
    for document in documents:
        kind = (document.group, document.kind)
        if kind not in _KINDS:
            ignored.setdefault((document.file, *kind), []).append(document)
            continue
        try:
            identified = with_identity(document, namespace)
            warnings.add(identified, KINDS[kind].resource.struct)
            it = read_object(KINDS[kind].resource.struct, identified)
        except ConfigError as error:
            faults += error.faults
            continue
        faults += warnings.without_warnings(identified, _faults(kind, it))
        _add(plan_input, document.kind, it)
    for first, *others in ignored.values():
        more = f" and {len(others)} more" if others else ""
        is_pod = (first.group, first.kind) == _POD
        why = _WHY_NO_PODS if is_pod else unknown_pods_note(first.group, first.kind)
        print(f"trainer-kai: ignored: {first}{more}{why}", file=sys.stderr)
    for line in warnings.lines():
        print(f"trainer-kai: {line}", file=sys.stderr)
    if faults:
        raise ConfigError(faults)
    return plan_input


def _faults(kind: tuple[str, str], obj: Any) -> Iterator[FieldError]:
    """Yield the faults of an object; the warnings of a workload are findings of its plan."""
    is_planned = isinstance(obj, (TrainJob, JobSet, Job, CronJob, *_UNMARKED_STRUCTS))
    faults = faults_of(kind, obj)
    yield from (it for it in faults if not (is_planned and isinstance(it, FieldWarning)))
    if isinstance(obj, Queue):
        yield from queue_warnings(obj)


def _add(plan_input: PlanInput, kind: str, it: Any) -> None:
    if kind == TRAINJOBS.kind:
        plan_input.jobs.append(it)
    elif kind in _SUBMITTED:
        plan_input.others.append((_SUBMITTED[kind], it))
    elif kind == NAMESPACES.kind:
        plan_input.namespaces[it.metadata.name] = it
    elif kind == CLAIM_TEMPLATES.kind:
        plan_input.claim_templates[it.metadata.key] = it
    elif kind == RESOURCE_CLAIMS.kind:
        plan_input.resource_claims[it.metadata.key] = it
    elif kind in {other.kind for other in (*LINT_KINDS, *DEVICE_KINDS)}:
        plan_input.lint_objects.setdefault(kind, {})[it.metadata.name] = it
    else:
        plan_input.runtimes[kind, it.metadata.key] = it


async def _fetch_missing(
    args: argparse.Namespace, plan_input: PlanInput, missing: list[TrainJob]
) -> None:
    """Read what no file has from the cluster; raise for all runtimes that are missing."""
    async with AsyncExitStack() as stack:
        try:
            from trainer_kai.kube.client import command_client  # noqa: PLC0415 - as for asyncio

            opening = command_client(**connection(args))
            client = await stack.enter_async_context(opening)
            faults = await _fetch_runtimes(client, plan_input, missing)
        except (ApiError, ConfigError, ModuleNotFoundError) as error:
            if not missing:
                raise
            names = ", ".join(sorted({f"{kind} {key}" for kind, key in map(runtime_key, missing)}))
            remedy = f"add the file of {names} with another -f, or give access to a cluster"
            remedy += "".join(_kind_hints(plan_input, missing))
            raise ConfigError([FieldError("-f", f"{remedy}: {error}")]) from error
        if faults:
            raise ConfigError(faults)
        await _fetch_lint_objects(client, plan_input)


def _kind_hints(plan_input: PlanInput, missing: Iterable[TrainJob]) -> Iterator[str]:
    """Name the runtimes in the files that only the default of runtimeRef.kind leaves out."""
    for job in missing:
        key = Key(job.metadata.namespace, job.spec.runtime_ref.name)
        if (RUNTIMES.kind, key) in plan_input.runtimes:
            what = f"the files have TrainingRuntime {key}: to use it, set spec.runtimeRef.kind"
            yield f" ({what} of TrainJob {job.metadata.key} to TrainingRuntime)"
            return


async def _fetch_runtimes(
    client: "Client", plan_input: PlanInput, missing: Iterable[TrainJob]
) -> list[FieldError]:
    """Read runtimes from the cluster; return the missing ones as faults."""
    faults = []
    for kind, key in dict.fromkeys(map(runtime_key, missing)):
        resource = RUNTIMES if kind == RUNTIMES.kind else CLUSTER_RUNTIMES
        try:
            plan_input.runtimes[kind, key] = await client.get(resource, key)
        except NotFound:
            message = "is neither in the files nor in the cluster"
            faults.append(FieldError(f"{kind} {key}", message))
    return faults


async def _fetch_lint_objects(client: "Client", plan_input: PlanInput) -> None:
    """Read namespaces, and the objects that findings are checked against, as far as allowed."""
    planned: list[Any] = [*plan_input.jobs, *(it for _, it in plan_input.others)]
    for name in {it.metadata.namespace for it in planned} - set(plan_input.namespaces):
        try:
            plan_input.namespaces[name] = await client.get(NAMESPACES, Key("", name))
        except ApiError:
            continue  # it may not exist yet, or the user may not read it
    namespaces = plan_input.namespaces_with_claims()
    shared = plan_input.namespaces_with_claims(shared=True)
    for resource in (*LINT_KINDS, *(DEVICE_KINDS if namespaces or shared else ())):
        if resource.kind in plan_input.lint_objects:
            continue
        objects = await _list(client, ListTarget(resource))
        if objects is not None:
            plan_input.lint_objects[resource.kind] = {it.metadata.name: it for it in objects}
            plan_input.fetched_kinds.add(resource.kind)
    await _fetch_claims(client, plan_input, namespaces, shared)


async def _fetch_claims(
    client: "Client", plan_input: PlanInput, namespaces: Iterable[str], shared: Iterable[str]
) -> None:
    """Read the templates and the shared claims of some namespaces."""
    for namespace in sorted(namespaces):
        objects = await _list(client, ListTarget(CLAIM_TEMPLATES, namespace))
        plan_input.fetched_kinds.add(CLAIM_TEMPLATES.kind)
        if objects is None:
            plan_input.unlisted_namespaces.add(namespace)
        for it in objects or ():
            plan_input.claim_templates.setdefault(it.metadata.key, it)
    for namespace in sorted(shared):
        for claim in await _list(client, ListTarget(RESOURCE_CLAIMS, namespace)) or ():
            plan_input.resource_claims.setdefault(claim.metadata.key, claim)


async def _list(client: "Client", target: ListTarget[Any]) -> list[Any] | None:
    """List the objects of a kind; None if the cluster does not have it, or not for this user."""
    try:
        return await client.list(target)
    except NotFound:
        return None
    except ApiError as error:
        is_forbidden = isinstance(error, Forbidden)
        why = ", because you may not list them" if is_forbidden else f": {error}"
        message = f"{target.resource}: not compared with the cluster{why}"
        print(f"trainer-kai: {message}", file=sys.stderr)
        return None


def _previews(args: argparse.Namespace, plan_input: PlanInput) -> Iterator[Preview]:
    context = PreviewContext(
        mode=args.mode,
        scheduler_name=args.scheduler_name,
        default_queue=args.default_queue,
        known_cluster=plan_input.known_cluster(),
        kind_defaults=kind_defaults(args),
        claim_gpus=plan_input.claim_gpus(),
    )
    trials = _Trials(args, plan_input)
    for job in plan_input.jobs:
        labels = plan_input.namespace_labels(job.metadata.namespace)
        runtime = plan_input.runtimes[runtime_key(job)]
        preview = preview_trainjob(job, runtime, context._replace(namespace_labels=labels))
        preview = trials.of(preview, TRAINJOBS, job)
        yield _with_key_warnings(preview, TRAINJOBS, job)
    for kind, it in plan_input.others:
        labels = plan_input.namespace_labels(it.metadata.namespace)
        preview = _preview_submitted(kind, it, context._replace(namespace_labels=labels))
        preview = trials.of(preview, kind, it)
        yield _with_key_warnings(preview, kind, it)


class _Trials:
    """Says where workloads would start, if a domain or devices matter for that."""

    def __init__(self, args: argparse.Namespace, plan_input: PlanInput) -> None:
        self._args = args
        self._input = plan_input
        self._left = _MOST_TRIALS

    def of(self, preview: Preview, kind: Resource[Any], it: Any) -> Preview:
        args = self._args
        if args.mode == "external" or not self._input.is_tried(preview, kind, it):
            return preview
        self._left -= 1
        if self._left < 0:
            note = f"only the first {_MOST_TRIALS} workloads are placed on an empty cluster"
            finding = Finding("metadata.name", note)
            return preview._replace(findings=(*preview.findings, finding))
        from trainer_kai.cli.commands.plan.trial import trial  # noqa: PLC0415 - it imports numpy
        from trainer_kai.cli.commands.simulate.simulation import SimulationOptions  # noqa: PLC0415 - as above

        options = SimulationOptions(
            actions=("allocate",),
            scheduler_name=args.scheduler_name,
            default_queue=args.default_queue,
            kind_defaults=kind_defaults(args),
        )
        if isinstance(it, CronJob):
            kind, it = JOBS, job_of_cron_job(it)
        placements = trial(preview, kind, it, self._input.trial_objects(), options)
        return preview._replace(placements=placements)


def _preview_submitted(kind: Resource[Any], it: Submitted, context: PreviewContext) -> Preview:
    if isinstance(it, CronJob):
        return preview_cron_job(it, context)
    if isinstance(it, PodOwner):
        owner = it.metadata.controller
        is_part = owner is not None and f"{owner.kind}" in _SUBMITTED
        if is_part:
            return foreign_preview(kind.kind, it.metadata, context)
        return preview_owned(owned_pods(kind, it), context)
    workload = KIND_OF_RESOURCE[kind].adapt(it)
    if workload is None:
        return foreign_preview(kind.kind, it.metadata, context)
    return preview_submitted(workload, context)


def _with_key_warnings(preview: Preview, kind: Resource[Any], it: TrainJob | Submitted) -> Preview:
    reported = {(finding.path, finding.message) for finding in preview.findings}
    faults = faults_of((kind.group, kind.kind), it)
    warnings = (Finding(*fault) for fault in faults if fault not in reported)
    return preview._replace(findings=(*warnings, *preview.findings))


def _as_text(it: Preview) -> str:
    head = [f"{it.kind} {it.key}"]
    if it.runtime:
        head.append(f"runtime {it.runtime}")
    head.append(f"queue {it.queue.queue} ({_source_text(it)})" if it.podgroups else "queue -")
    head.append(f"mode {it.mode}")
    lines = ["   ".join(head), ""]
    if it.podgroups:
        lines.append(table(_HEADINGS, map(_row, it.podgroups)))
        lines += [placement_text(it.placements)] if it.placements else []
    else:
        why = "it can never run as it is" if it.is_blocked else "it is not for this scheduler"
        lines.append(f"No PodGroup: {why}")
    lines += (f"{'never runs' if it.blocks else 'note'}: {it}" for it in it.findings)
    return "\n".join(lines)


def _source_text(it: Preview) -> str:
    """Return the object that names the queue; the highest is the one that is planned."""
    is_own = it.queue.source is QueueSource.TRAINJOB
    return f"the {it.kind}'s label" if is_own else it.queue.source.value


def _row(it: PodGroupPreview) -> tuple[str, ...]:
    requests = ", ".join(f"{name} {amount}" for name, amount in it.requests.items()) or "-"
    return it.stage, it.name, it.after or "-", it.members, it.min_pods_text, requests


def _source_name(it: Preview) -> str:
    is_own = it.queue.source is QueueSource.TRAINJOB
    return (it.kind if is_own else it.queue.source.name).lower()


def _as_json(it: Preview) -> dict[str, Any]:
    return {
        "kind": it.kind,
        "namespace": it.key.namespace,
        "name": it.key.name,
        "runtime": it.runtime or None,
        "mode": it.mode,
        "queue": {"name": it.queue.queue, "source": _source_name(it)},
        "podGroups": [row.as_json() for row in it.podgroups],
        "manifests": list(it.manifests),
        **({"placements": [one.as_json() for one in it.placements]} if it.placements else {}),
        "findings": [finding._asdict() for finding in it.findings],
    }
