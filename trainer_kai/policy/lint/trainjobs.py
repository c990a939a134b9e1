"""Lint for a TrainJob: of the JobSet that Trainer will make of it and its runtime.

Whoever submits a TrainJob can change the TrainJob. So a path is one of its fields: the one that
said it, else the runtime it names, with the place in there.
"""

import re
from collections.abc import Iterator
from typing import Final

from trainer_kai.api.jobset import JobSet
from trainer_kai.api.names import TRAINJOB_CONTROLLER
from trainer_kai.api.runtime import Runtime
from trainer_kai.api.trainjob import TrainJob
from trainer_kai.errors import Unmet
from trainer_kai.policy.carried import carried
from trainer_kai.policy.expand import counted_by_nodes, expand, takes_resources
from trainer_kai.policy.finding import Code, Finding
from trainer_kai.policy.groups import Rules
from trainer_kai.policy.lint.bounds import Bounds
from trainer_kai.policy.lint.jobsets import MOST_FINDINGS, lint_jobset
from trainer_kai.policy.lint.work import MOST_PARTS, parts

__all__ = ["is_refusable", "lint_trainjob"]

_RUNTIME: Final = "spec.runtimeRef"
_IN_JOB: Final = re.compile(r"spec\.replicatedJobs\[([0-9]+)\]\.template\.spec\.(.+)")
_AMOUNT: Final = re.compile(
    r"template\.spec\.containers\[([0-9]+)\]\.resources\.(limits|requests)\[(.+)\]"
)
_NOTE: Final = re.compile(r"metadata\.(labels|annotations)\[(.+)\]")
_NAMES: Final = (Code.UNKNOWN_PRIORITY, Code.UNKNOWN_TOPOLOGY)


def lint_trainjob(
    job: TrainJob, runtime: Runtime, queue: str, rules: Rules, bounds: Bounds
) -> tuple[Finding, ...]:
    """Return what is wrong with a TrainJob; nothing if somebody else builds or places it."""
    policy = runtime.spec.pod_group_policy
    is_others = policy is not None and (policy.coscheduling or policy.volcano)
    if is_others or job.spec.managed_by not in {"", TRAINJOB_CONTROLLER}:
        return ()
    patches = (it.training_runtime_spec.template.spec for it in job.spec.runtime_patches)
    if parts((runtime.spec.template.spec, *patches)) > MOST_PARTS:
        message = f"it has more than {MOST_PARTS} parts with its runtime, so it is not looked at"
        return (Finding(_RUNTIME, message, code=Code.NOT_LOOKED_AT),)
    built = expand(job, runtime)
    jobset = carried(built.jobset, job.metadata.labels, job.metadata.annotations)
    places = _Places(job, runtime, built.jobset)
    found = [
        Finding(it.path, it.message, not isinstance(it, Unmet), Code.NOT_BUILT)
        for it in built.faults
    ]
    found += map(places.of, lint_jobset(jobset, queue, rules, bounds))
    return tuple(sorted(found, key=lambda it: not it.blocks)[:MOST_FINDINGS])


def is_refusable(finding: Finding) -> bool:
    """Say whether a site that refuses what cannot run refuses a TrainJob for it."""
    return finding.blocks or finding.code in _NAMES


class _Places:
    """Where in a TrainJob it is said what is wrong with its JobSet."""

    def __init__(self, job: TrainJob, runtime: Runtime, bare: JobSet) -> None:
        """Be told of the JobSet before anything is carried over from the TrainJob."""
        self._job: Final = job
        self._runtime: Final = runtime
        self._bare: Final = bare
        self._scaled: Final = counted_by_nodes(job, runtime)

    def of(self, finding: Finding) -> Finding:
        """Return a finding with a path in the TrainJob."""
        own = next(self._own(finding.path), None)
        if own is not None:
            return finding._replace(path=own)
        reference = self._job.spec.runtime_ref
        where = f"{reference.kind} {reference.name}, spec.template.{finding.path}"
        return finding._replace(path=_RUNTIME, message=f"{finding.message} ({where})")

    def _own(self, path: str) -> Iterator[str]:
        """Yield the field of the TrainJob that said it."""
        note = _NOTE.fullmatch(path)
        if note:
            field, name = note.groups()
            meta = self._bare.metadata
            if name not in (meta.labels if field == "labels" else meta.annotations):
                yield path
            return
        found = _IN_JOB.fullmatch(path)
        if found is None:
            return
        index, rest = int(found[1]), found[2]
        if rest == "parallelism" and index == self._scaled:
            yield "spec.trainer.numNodes"
        amount = _AMOUNT.fullmatch(rest)
        if amount and self._gives(index, int(amount[1]), amount[2], amount[3]):
            yield f"spec.trainer.resourcesPerNode.{amount[2]}[{amount[3]}]"

    def _gives(self, index: int, place: int, field: str, name: str) -> bool:
        """Say whether an amount of a container is the TrainJob's."""
        trainer = self._job.spec.trainer
        if trainer is None or trainer.resources_per_node is None:
            return False
        given = trainer.resources_per_node
        amounts = given.limits if field == "limits" else given.requests
        return name in amounts and takes_resources(
            self._bare.spec.replicated_jobs[index], place, self._runtime
        )
