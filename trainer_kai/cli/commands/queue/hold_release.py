"""`trainer-kai queue hold` and `release`: whether anything starts in a queue."""

from collections.abc import Mapping

from trainer_kai.api.kai_kinds import Queue
from trainer_kai.api.names import STOP_POLICY
from trainer_kai.api.resources import PODGROUPS, QUEUES
from trainer_kai.api.text import counted, first_listed, noun_form
from trainer_kai.cli.commands.queue.write_plan import (
    QueueReader,
    QueueWrite,
    WritePlan,
    existing_queue,
)
from trainer_kai.errors import ConfigError
from trainer_kai.kube.rest.request import ListTarget, Patch, PatchKind
from trainer_kai.policy.queueing.stop_policy import (
    EffectiveStopPolicy,
    StopPolicy,
    effective_stop_policy,
    release_command,
)


def stop_policy_of(queues: Mapping[str, Queue], name: str) -> EffectiveStopPolicy:
    def parent_of(queue: str) -> str:
        return queues[queue].spec.parent_queue if queue in queues else ""

    def annotation_of(queue: str) -> str | None:
        return queues[queue].metadata.annotations.get(STOP_POLICY) if queue in queues else None

    return effective_stop_policy(name, parent_of, annotation_of)


async def plan_hold(reader: QueueReader, name: str, *, drains: bool) -> WritePlan:
    """Return the write that holds a queue and those below; with *drains* their pods are evicted."""
    queues = await reader.queues()
    policy = StopPolicy.HOLD_AND_DRAIN if drains else StopPolicy.HOLD
    write = _stop_write(existing_queue(queues, name), policy)
    held = sorted(it for it in queues if _is_below(queues, it, name))
    text = f"{noun_form(len(held), 'queue')} {first_listed(held, 8)}"
    running = await _running(reader, {*held})
    fate = "is evicted, and waits" if drains else "stays (--drain evicts it as well)"
    outcome = f"nothing starts in {text}; {running} {fate}. `{release_command(name)}` releases it"
    return WritePlan((write,), (outcome,))


async def plan_release(reader: QueueReader, name: str) -> WritePlan:
    queues = await reader.queues()
    queue = existing_queue(queues, name)
    above = stop_policy_of(queues, queue.spec.parent_queue)
    outcome = f"queue {name} is released"
    notes: tuple[str, ...] = ()
    if above.is_held:
        release = release_command(above.decided_by)
        notes = (f"queue {name} is still held by {above}; `{release}` releases that",)
        outcome = f"queue {name} has no stop policy of its own"
    return WritePlan((_stop_write(queue, None),), (outcome,), notes)


def _stop_write(queue: Queue, policy: StopPolicy | None) -> QueueWrite:
    text = f"annotation {STOP_POLICY} is {policy or 'removed'}"
    if queue.metadata.annotations.get(STOP_POLICY) == policy:
        return QueueWrite(QUEUES, queue.metadata.key, None, text)
    value = str(policy) if policy else None
    fields = {"metadata": {"annotations": {STOP_POLICY: value}}}
    return QueueWrite(QUEUES, queue.metadata.key, Patch(PatchKind.MERGE, fields), text)


def _is_below(queues: Mapping[str, Queue], name: str, top: str) -> bool:
    """Say whether a queue is the top or below it; a circle ends the search."""
    visited: set[str] = set()
    while name in queues and name not in visited:
        if name == top:
            return True
        visited.add(name)
        name = queues[name].spec.parent_queue
    return False


async def _running(reader: QueueReader, queues: set[str]) -> str:
    try:
        podgroups = await reader.list_all(ListTarget(PODGROUPS))
    except ConfigError:
        return "what runs there"
    started = [
        it for it in podgroups if it.spec.queue in queues and it.status.resources_status.allocated
    ]
    return f"what runs there ({counted(len(started), 'PodGroup')})"
