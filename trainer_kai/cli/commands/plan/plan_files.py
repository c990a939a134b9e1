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
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from trainer_kai.api.cluster_kinds import Namespace
from trainer_kai.api.device_kinds import (
    RequestedClass,
    ResourceClaimTemplate,
    requested_classes,
)
from trainer_kai.api.jobset import CronJob, Job, JobSet, ReplicatedJob
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Key, Object
from trainer_kai.api.resources import (
    CLAIM_TEMPLATES,
    CLUSTER_RUNTIMES,
    DEVICE_CLASSES,
    JOBS,
    JOBSETS,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    QUEUES,
    RUNTIMES,
    TOPOLOGIES,
    TRAINJOBS,
    Resource,
)
from trainer_kai.api.trainjob import Runtime, TrainJob
from trainer_kai.cli.commands.plan.preview import (
    PodGroupPreview,
    Preview,
    PreviewContext,
    foreign_preview,
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
from trainer_kai.policy.lint.node_index import KnownCluster, NodeIndex
from trainer_kai.policy.queueing.queue_resolution import QueueSource
from trainer_kai.policy.queueing.topology_default import own_topology_default
from trainer_kai.policy.workloads.kinds import KIND_OF_RESOURCE

if TYPE_CHECKING:
    from trainer_kai.kube.client import Client

_SCHEMA: Final = "trainer-kai/plan/v2"
_BLOCKED: Final = 1  # the exit code
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
_LINT_KINDS: Final = (NODES, QUEUES, PRIORITY_CLASSES, TOPOLOGIES)
_CLAIM_KINDS: Final = (DEVICE_CLASSES, CLAIM_TEMPLATES)  # read only for claims by template
_KINDS: Final = frozenset(
    {
        *((it.group, it.kind) for it in (*_PLANNED_KINDS, *_LINT_KINDS, *_CLAIM_KINDS)),
        *UNMARKED,
        *TEMPLATE_KINDS,
    }
)


_Submitted: TypeAlias = Object  # a workload without a TrainJob, or a CronJob


_SUBMITTED: Final[Mapping[str, Resource[Any]]] = {
    **{it.kind: it for it in (JOBSETS, JOBS, CRON_JOBS)},
    **{it.resource.kind: it.resource for it in UNMARKED.values()},
    **{it.kind: it for it in TEMPLATE_KINDS.values()},
}
_UNMARKED_STRUCTS: Final[tuple[type[Any], ...]] = (
    *{it.resource.struct for it in UNMARKED.values()},
    PodOwner,
)


class _PlanInput(NamedTuple):
    jobs: list[TrainJob]
    others: list[tuple[Resource[Any], _Submitted]]
    runtimes: dict[tuple[str, Key], Runtime]
    namespaces: dict[str, Namespace]
    lint_objects: dict[str, dict[str, Any]]  # by kind and name
    fetched_kinds: set[str]  # of *lint_objects*: read from the cluster, not from files
    claim_templates: dict[Key, ResourceClaimTemplate]
    unlisted_namespaces: set[str]  # with claim templates that the user may not list

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None if it was not read."""
        known = self.namespaces.get(name)
        return known.metadata.labels if known else None

    def known_cluster(self) -> KnownCluster:
        """Return the objects to check against: all objects of a kind, or none."""
        nodes, queues, classes, topologies = (self.lint_objects.get(it.kind) for it in _LINT_KINDS)
        device_classes = self.lint_objects.get(DEVICE_CLASSES.kind)
        knows_templates = self.claim_templates or CLAIM_TEMPLATES.kind in self.fetched_kinds
        return KnownCluster(
            nodes=NodeIndex(nodes.values()) if nodes else None,
            queues={name: it.spec for name, it in queues.items()} if queues else None,
            priorities=classes,
            topologies={name: it.spec for name, it in topologies.items()} if topologies else None,
            # The nodes of a live cluster can change, so they are no reason for exit code 1.
            autoscales=NODES.kind in self.fetched_kinds,
            topology_defaults={
                name: own_topology_default(it.metadata.annotations)
                for name, it in (queues or {}).items()
            },
            device_classes=None if device_classes is None else device_classes.keys(),
            claim_template=self._claim_template if knows_templates else None,
        )

    def _claim_template(self, key: Key) -> Iterable[RequestedClass] | None:
        template = self.claim_templates.get(key)
        if template is not None:
            return requested_classes(template.spec.spec)
        return () if key.namespace in self.unlisted_namespaces else None

    def namespaces_with_claims(self) -> set[str]:
        """Return the namespaces of the workloads whose pods have claims by template."""
        jobs = [
            (it.metadata.namespace, self.runtimes[runtime_key(it)].spec.template.spec)
            for it in self.jobs
        ]
        others = [(it.metadata.namespace, _replicated_jobs(kind, it)) for kind, it in self.others]
        runtimes = [(namespace, spec.replicated_jobs) for namespace, spec in jobs]
        return {
            namespace
            for namespace, replicated_jobs in (*runtimes, *others)
            for job in replicated_jobs
            for use in job.template.spec.template.spec.resource_claims
            if use.resource_claim_template_name
        }


def _replicated_jobs(kind: Resource[Any], it: _Submitted) -> Iterable[ReplicatedJob]:
    if isinstance(it, CronJob):
        return (ReplicatedJob(name="", template=it.spec.job_template),)
    if isinstance(it, PodOwner):
        return owned_pods(kind, it).spec.replicated_jobs
    workload = KIND_OF_RESOURCE[kind].adapt(it)
    return workload.spec.replicated_jobs if workload is not None else ()


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


def _read(files: Iterable[str], namespace: str) -> _PlanInput:
    plan_input = _PlanInput([], [], {}, {}, {}, set(), {}, set())
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
        why = unknown_pods_note(first.group, first.kind)
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


def _add(plan_input: _PlanInput, kind: str, it: Any) -> None:
    if kind == TRAINJOBS.kind:
        plan_input.jobs.append(it)
    elif kind in _SUBMITTED:
        plan_input.others.append((_SUBMITTED[kind], it))
    elif kind == NAMESPACES.kind:
        plan_input.namespaces[it.metadata.name] = it
    elif kind == CLAIM_TEMPLATES.kind:
        plan_input.claim_templates[it.metadata.key] = it
    elif kind in {other.kind for other in (*_LINT_KINDS, DEVICE_CLASSES)}:
        plan_input.lint_objects.setdefault(kind, {})[it.metadata.name] = it
    else:
        plan_input.runtimes[kind, it.metadata.key] = it


async def _fetch_missing(
    args: argparse.Namespace, plan_input: _PlanInput, missing: list[TrainJob]
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
            raise ConfigError([FieldError("-f", f"{remedy}: {error}")]) from error
        if faults:
            raise ConfigError(faults)
        await _fetch_lint_objects(client, plan_input)


async def _fetch_runtimes(
    client: "Client", plan_input: _PlanInput, missing: Iterable[TrainJob]
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


async def _fetch_lint_objects(client: "Client", plan_input: _PlanInput) -> None:
    """Read namespaces, and the objects that findings are checked against, as far as allowed."""
    planned: list[Any] = [*plan_input.jobs, *(it for _, it in plan_input.others)]
    for name in {it.metadata.namespace for it in planned} - set(plan_input.namespaces):
        try:
            plan_input.namespaces[name] = await client.get(NAMESPACES, Key("", name))
        except ApiError:
            continue  # it may not exist yet, or the user may not read it
    namespaces = plan_input.namespaces_with_claims()
    for resource in (*_LINT_KINDS, *((DEVICE_CLASSES,) if namespaces else ())):
        if resource.kind in plan_input.lint_objects:
            continue
        objects = await _list(client, ListTarget(resource))
        if objects is not None:
            plan_input.lint_objects[resource.kind] = {it.metadata.name: it for it in objects}
            plan_input.fetched_kinds.add(resource.kind)
    for namespace in sorted(namespaces):
        objects = await _list(client, ListTarget(CLAIM_TEMPLATES, namespace))
        plan_input.fetched_kinds.add(CLAIM_TEMPLATES.kind)
        if objects is None:
            plan_input.unlisted_namespaces.add(namespace)
        for it in objects or ():
            plan_input.claim_templates.setdefault(it.metadata.key, it)


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


def _previews(args: argparse.Namespace, plan_input: _PlanInput) -> Iterator[Preview]:
    context = PreviewContext(
        mode=args.mode,
        scheduler_name=args.scheduler_name,
        default_queue=args.default_queue,
        known_cluster=plan_input.known_cluster(),
        kind_defaults=kind_defaults(args),
    )
    for job in plan_input.jobs:
        labels = plan_input.namespace_labels(job.metadata.namespace)
        runtime = plan_input.runtimes[runtime_key(job)]
        preview = preview_trainjob(job, runtime, context._replace(namespace_labels=labels))
        yield _with_key_warnings(preview, TRAINJOBS, job)
    for kind, it in plan_input.others:
        labels = plan_input.namespace_labels(it.metadata.namespace)
        preview = _preview_submitted(kind, it, context._replace(namespace_labels=labels))
        yield _with_key_warnings(preview, kind, it)


def _preview_submitted(kind: Resource[Any], it: _Submitted, context: PreviewContext) -> Preview:
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


def _with_key_warnings(preview: Preview, kind: Resource[Any], it: TrainJob | _Submitted) -> Preview:
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
        "findings": [finding._asdict() for finding in it.findings],
    }
