"""`trainer-kai plan`: preview the PodGroups of a TrainJob before it is submitted.

It builds the JobSet like Trainer and calls the functions of admission and of the podgrouper.
Objects that no file has are read from the cluster, with the permissions of the user.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trainer_kai.api.cluster_kinds import Namespace
from trainer_kai.api.jobset import JobSet
from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.meta import Key
from trainer_kai.api.resources import (
    CLUSTER_RUNTIMES,
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
    Preview,
    PreviewContext,
    preview_jobset,
    preview_trainjob,
)
from trainer_kai.cli.input.documents import Document, read_files, read_object
from trainer_kai.cli.input.kinds import KINDS, faults_of, queue_warnings, with_identity
from trainer_kai.cli.input.unknown_fields import InputWarnings, unread_files
from trainer_kai.cli.options import (
    add_cluster_flags,
    add_default_queue_flag,
    add_output_flag,
    add_scheduler_flag,
)
from trainer_kai.cli.output.table import table
from trainer_kai.errors import ConfigError, FieldError, FieldWarning
from trainer_kai.kube.rest.request import ListTarget
from trainer_kai.kube.rest.response import ApiError, Forbidden, NotFound
from trainer_kai.policy.finding import Finding
from trainer_kai.policy.lint.node_index import KnownCluster, NodeIndex

if TYPE_CHECKING:
    from trainer_kai.kube.client import Client

_SCHEMA: Final = "trainer-kai/plan/v1"
_BLOCKED: Final = 1
_PLANNED_KINDS: Final = (TRAINJOBS, JOBSETS, CLUSTER_RUNTIMES, RUNTIMES, NAMESPACES)
_LINT_KINDS: Final = (NODES, QUEUES, PRIORITY_CLASSES, TOPOLOGIES)
_KINDS: Final = frozenset((it.group, it.kind) for it in (*_PLANNED_KINDS, *_LINT_KINDS))


class _PlanInput(NamedTuple):
    """The objects of the files."""

    jobs: list[TrainJob]
    jobsets: list[JobSet]
    runtimes: dict[tuple[str, Key], Runtime]
    namespaces: dict[str, Namespace]
    lint_objects: dict[str, dict[str, Any]]  # by kind and name
    fetched_kinds: set[str]  # of *lint_objects*: read from the cluster, not from files

    def known_cluster(self) -> KnownCluster:
        """Return the objects to check against: all objects of a kind, or none."""
        nodes, queues, classes, topologies = (self.lint_objects.get(it.kind) for it in _LINT_KINDS)
        return KnownCluster(
            nodes=NodeIndex(nodes.values()) if nodes else None,
            queues={name: it.spec for name, it in queues.items()} if queues else None,
            priorities=classes,
            topologies={name: it.spec for name, it in topologies.items()} if topologies else None,
            # The nodes of a live cluster can change, so they are no reason for exit code 1.
            autoscales=NODES.kind in self.fetched_kinds,
        )


def add_plan(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "plan",
        help="preview the PodGroups, the queue and the findings of a TrainJob",
        description="Preview TrainJobs before they are submitted: stages, PodGroups, findings.",
        epilog="Exit code: 0; 1 if a workload can never run; 2 if the input is invalid.",
    )
    parser.add_argument(
        "-f",
        dest="files",
        metavar="FILE",
        action="append",
        required=True,
        help="TrainJobs, JobSets, runtimes and namespaces, and what to compare them with: Nodes,"
        " Queues, PriorityClasses, Topologies; - is standard input; may be repeated",
    )
    add_output_flag(parser, more="; json has the PodGroups as they will be applied")
    parser.add_argument(
        "-n",
        "--namespace",
        default="default",
        help="the namespace of objects without one (default: default)",
    )
    parser.add_argument(
        "--mode",
        choices=("bundled", "external"),
        default="bundled",
        help="the setting mode of the cluster: trainer-kai's scheduler binds pods (bundled), or an"
        " existing KAI (external) (default: bundled)",
    )
    add_scheduler_flag(parser)
    add_default_queue_flag(parser)
    add_cluster_flags(parser)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    plan_input = _read(args.files, args.namespace)
    if not plan_input.jobs and not plan_input.jobsets:
        names = ", ".join(args.files)
        raise ConfigError([FieldError("-f", f"{names}: no TrainJob or JobSet found")])
    missing = [job for job in plan_input.jobs if _runtime_key(job) not in plan_input.runtimes]
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
    plan_input = _PlanInput([], [], {}, {}, {}, set())
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
        print(f"trainer-kai: ignored: {first}{more}", file=sys.stderr)
    for line in warnings.lines():
        print(f"trainer-kai: {line}", file=sys.stderr)
    if faults:
        raise ConfigError(faults)
    return plan_input


def _faults(kind: tuple[str, str], obj: Any) -> Iterator[FieldError]:
    """Yield the faults of an object; the warnings of a workload are findings of its plan."""
    is_planned = isinstance(obj, TrainJob | JobSet)
    faults = faults_of(kind, obj)
    yield from (it for it in faults if not (is_planned and isinstance(it, FieldWarning)))
    if isinstance(obj, Queue):
        yield from queue_warnings(obj)


def _add(plan_input: _PlanInput, kind: str, it: Any) -> None:
    if kind == TRAINJOBS.kind:
        plan_input.jobs.append(it)
    elif kind == JOBSETS.kind:
        plan_input.jobsets.append(it)
    elif kind == NAMESPACES.kind:
        plan_input.namespaces[it.metadata.name] = it
    elif kind in {other.kind for other in _LINT_KINDS}:
        plan_input.lint_objects.setdefault(kind, {})[it.metadata.name] = it
    else:
        plan_input.runtimes[kind, it.metadata.key] = it


def _runtime_key(job: TrainJob) -> tuple[str, Key]:
    reference = job.spec.runtime_ref
    is_local = reference.kind == RUNTIMES.kind
    return reference.kind, Key(job.metadata.namespace if is_local else "", reference.name)


async def _fetch_missing(
    args: argparse.Namespace, plan_input: _PlanInput, missing: list[TrainJob]
) -> None:
    """Read what no file has from the cluster; raise for all runtimes that are missing."""
    async with AsyncExitStack() as stack:
        try:
            from trainer_kai.kube.client import command_client  # noqa: PLC0415 - as above

            connection = command_client(kubeconfig=args.kubeconfig, context=args.context)
            client = await stack.enter_async_context(connection)
            faults = await _fetch_runtimes(client, plan_input, missing)
        except (ApiError, ConfigError, ModuleNotFoundError) as error:
            if not missing:
                raise
            names = ", ".join(sorted({f"{kind} {key}" for kind, key in map(_runtime_key, missing)}))
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
    for kind, key in dict.fromkeys(map(_runtime_key, missing)):
        try:
            plan_input.runtimes[kind, key] = await _fetch_runtime(client, kind, key)
        except NotFound:
            message = "is neither in the files nor in the cluster"
            faults.append(FieldError(f"{kind} {key}", message))
    return faults


async def _fetch_lint_objects(client: "Client", plan_input: _PlanInput) -> None:
    """Read namespaces, and the objects that findings are checked against, as far as allowed."""
    for name in {job.metadata.namespace for job in plan_input.jobs} - set(plan_input.namespaces):
        try:
            plan_input.namespaces[name] = await client.get(NAMESPACES, Key("", name))
        except ApiError:
            continue  # it may not exist yet, or the user may not read it
    for resource in _LINT_KINDS:
        if resource.kind in plan_input.lint_objects:
            continue
        try:
            objects: list[Any] = await client.list(ListTarget(resource))
        except NotFound:
            continue  # the cluster does not have the kind
        except Forbidden:
            message = "not compared with the cluster, because you may not list them"
            print(f"trainer-kai: {resource}: {message}", file=sys.stderr)
            continue
        except ApiError as error:
            message = f"not compared with the cluster: {error}"
            print(f"trainer-kai: {resource}: {message}", file=sys.stderr)
            continue
        plan_input.lint_objects[resource.kind] = {it.metadata.name: it for it in objects}
        plan_input.fetched_kinds.add(resource.kind)


async def _fetch_runtime(client: "Client", kind: str, key: Key) -> Runtime:
    if kind == RUNTIMES.kind:
        return await client.get(RUNTIMES, key)
    return await client.get(CLUSTER_RUNTIMES, key)


def _previews(args: argparse.Namespace, plan_input: _PlanInput) -> Iterator[Preview]:
    for job in plan_input.jobs:
        context = _preview_context(args, plan_input, job.metadata.namespace)
        yield _with_key_warnings(
            preview_trainjob(job, plan_input.runtimes[_runtime_key(job)], context), TRAINJOBS, job
        )
    for jobset in plan_input.jobsets:
        context = _preview_context(args, plan_input, jobset.metadata.namespace)
        yield _with_key_warnings(preview_jobset(jobset, context), JOBSETS, jobset)


def _with_key_warnings(preview: Preview, kind: Resource[Any], it: TrainJob | JobSet) -> Preview:
    """Return a preview with the warnings about misspelled keys and invalid values."""
    reported = {(finding.path, finding.message) for finding in preview.findings}
    faults = faults_of((kind.group, kind.kind), it)
    warnings = (Finding(*fault) for fault in faults if fault not in reported)
    return preview._replace(findings=(*warnings, *preview.findings))


def _preview_context(
    args: argparse.Namespace, plan_input: _PlanInput, namespace: str
) -> PreviewContext:
    known = plan_input.namespaces.get(namespace)
    return PreviewContext(
        mode=args.mode,
        scheduler_name=args.scheduler_name,
        default_queue=args.default_queue,
        namespace_labels=known.metadata.labels if known else None,
        known_cluster=plan_input.known_cluster(),
    )


def _as_text(it: Preview) -> str:
    head = [f"{it.kind} {it.key}"]
    if it.runtime:
        head.append(f"runtime {it.runtime}")
    head += [f"queue {it.queue.queue} ({it.queue.source.value})" if it.podgroups else "queue -"]
    head += [f"mode {it.mode}"]
    lines = ["   ".join(head), ""]
    rows = [
        (
            row.stage,
            row.name,
            row.after or "-",
            row.members,
            row.min_pods_text,
            _requests_text(row.requests),
        )
        for row in it.podgroups
    ]
    if rows:
        headings = ("STAGE", "PODGROUP", "AFTER", "MEMBERS", "STARTS WITH", "REQUESTS")
        lines.append(table(headings, rows))
    else:
        why = "it can never run as it is" if it.is_blocked else "it is not for this scheduler"
        lines.append(f"No PodGroup: {why}")
    lines += (f"{'never runs' if it.blocks else 'note'}: {it}" for it in it.findings)
    return "\n".join(lines)


def _requests_text(requests: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in requests.items()) or "-"


def _as_json(it: Preview) -> dict[str, Any]:
    return {
        "kind": it.kind,
        "namespace": it.key.namespace,
        "name": it.key.name,
        "runtime": it.runtime or None,
        "mode": it.mode,
        "queue": {"name": it.queue.queue, "source": it.queue.source.name.lower()},
        "podGroups": [row.as_json() for row in it.podgroups],
        "manifests": list(it.manifests),
        "findings": [finding._asdict() for finding in it.findings],
    }
