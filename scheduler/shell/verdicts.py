"""What a plan says of everybody who waits, by names and in words. Pure; it runs beside the loop."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.decision import FitErrors, Plan
from scheduler.core.explain import kai_condition, rejection_message
from scheduler.core.model import NONE, Ints, UnschedulableReason, podsets_of
from scheduler.state.departures import PlannedEviction, nominated_message
from scheduler.state.encode import EncodedSnapshot
from scheduler.state.orders import Commands, UnschedulablePodGroup
from scheduler.state.unmade import CreationFailure
from trainer_kai.api.meta import Key
from trainer_kai.api.names import CPU, GPU, MEMORY
from trainer_kai.api.sentence import truncated_message
from trainer_kai.policy.demand import format_amounts

__all__ = ["PlanReport", "PodGroupReport", "QueueGaugeValues", "QueueReport", "plan_report"]

EvictionsByPreemptor: TypeAlias = Mapping[Key, Sequence[PlannedEviction]]

_NO_EVICTIONS: Final[EvictionsByPreemptor] = MappingProxyType({})
_NO_CREATION_FAILURES: Final[Mapping[Key, CreationFailure]] = MappingProxyType({})

# What another node could cure: an autoscaler has to hear of it. Of quotas it must not, nor of a
# topology that is required, as long as no node could help there.
_CAPACITY_REASONS: Final = frozenset(
    {
        UnschedulableReason.NO_NODE_MATCHES,
        UnschedulableReason.FRAGMENTED,
        UnschedulableReason.NO_CAPACITY,
    }
)


class PodGroupReport(NamedTuple):
    """Why a unit waits."""

    reason: UnschedulableReason
    message: str
    kai_reason: str  # "": it knows none
    kai_message: str
    has_begun: bool  # some of it runs
    pods: tuple[Key, ...]  # that wait, if an autoscaler could help them

    @property
    def title(self) -> str:
        """Return the verdict as users read it."""
        return self.reason.title


class QueueGaugeValues(NamedTuple):
    """What a queue has and is due: thousandths, bytes and thousandths, by kind."""

    quota: tuple[int, ...]
    allocated: tuple[int, ...]
    fair_share: tuple[float, ...]


class QueueReport(NamedTuple):
    """What a queue and all below it have and ask for, as its status says it, and as numbers."""

    allocated: Mapping[str, str]
    allocated_non_preemptible: Mapping[str, str]
    requested: Mapping[str, str]
    gauge_values: QueueGaugeValues


class PlanReport(NamedTuple):
    """All of it."""

    podgroups: Mapping[Key, PodGroupReport]
    queues: Mapping[str, QueueReport]


def plan_report(
    encoded: EncodedSnapshot,
    made: Plan,
    commands: Commands,
    in_flight_evictions: EvictionsByPreemptor = _NO_EVICTIONS,
    creation_failures: Mapping[Key, CreationFailure] = _NO_CREATION_FAILURES,
) -> PlanReport:
    """Return what a plan says; *leaving* go already, and pods of *lacks* could not be made."""
    queues = encoded.snapshot.queues
    promised = _nominated_reports(encoded, made, commands, in_flight_evictions)
    waiting = {it.group: _podgroup_report(encoded, it) for it in commands.unschedulable}
    return PlanReport(
        podgroups=promised | waiting | dict(_creation_failure_reports(waiting, creation_failures)),
        queues={
            name: QueueReport(
                _amounts(queues.allocated[row]),
                _amounts(queues.non_preemptible[row]),
                _amounts(queues.requested[row]),
                QueueGaugeValues(
                    tuple(queues.quota[row].tolist()),
                    tuple(queues.allocated[row].tolist()),
                    tuple(made.fair_share[row].tolist()),
                ),
            )
            for row, name in enumerate(queues.names)
        },
    )


def _nominated_reports(
    encoded: EncodedSnapshot,
    made: Plan,
    commands: Commands,
    in_flight_evictions: EvictionsByPreemptor,
) -> dict[Key, PodGroupReport]:
    """Say of units that are promised room whom they wait for."""
    nodes: dict[int, list[int]] = {}
    for it in made.allocations:
        nodes.setdefault(it.podgroup, []).extend(node for _, node in it.nominations)
    evictions: dict[Key, list[PlannedEviction]] = {
        key: [*them] for key, them in in_flight_evictions.items()
    }
    for one in commands.evictions:
        if one.preemptor is not None:
            evictions.setdefault(one.preemptor, []).append(one)
    report = {}
    for row, found in nodes.items():
        if found:
            key, podgroup = encoded.podgroup_keys[row], encoded.snapshot.podgroups[row]
            owner = nominated_message(len(found), len({*found}), evictions.get(key, ()))
            sentence = truncated_message(owner)
            has_begun = any(podset.running for podset in podsets_of(podgroup.tree))
            report[key] = PodGroupReport(
                UnschedulableReason.WAITING_FOR_VICTIMS, sentence, "", "", has_begun, ()
            )
    return report


def _creation_failure_reports(
    waiting: Mapping[Key, PodGroupReport], creation_failures: Mapping[Key, CreationFailure]
) -> Iterator[tuple[Key, PodGroupReport]]:
    """Yield those whose pods are refused; of who has none at all no plan speaks."""
    for group, creation_failure in creation_failures.items():
        report = waiting.get(group)
        if report is not None and report.reason == UnschedulableReason.PODS_MISSING:
            sentence = truncated_message(f"{report.message}. {creation_failure.reason}")
            yield group, report._replace(message=sentence, kai_message=sentence)
        elif report is None and not creation_failure.existing and creation_failure.required:
            sentence = truncated_message(
                f"pods are missing: 0 of {creation_failure.required} exist. {creation_failure.reason}"
            )
            verdict = UnschedulableReason.PODS_MISSING
            yield (
                group,
                PodGroupReport(
                    verdict, sentence, verdict.title, sentence, has_begun=False, pods=()
                ),
            )


def _podgroup_report(encoded: EncodedSnapshot, refused: UnschedulablePodGroup) -> PodGroupReport:
    rejection = refused.rejection
    reason, report = kai_condition(encoded.snapshot, rejection)
    message, sentence = (
        truncated_message(report),
        truncated_message(rejection_message(encoded.snapshot, rejection)),
    )
    if rejection.podgroup == NONE:
        return PodGroupReport(refused.reason, sentence, reason, message, has_begun=False, pods=())
    podsets = [*podsets_of(encoded.snapshot.podgroups[rejection.podgroup].tree)]
    is_patient = refused.reason == UnschedulableReason.PREEMPTION_DELAY
    is_of_capacity = refused.reason in _CAPACITY_REASONS or (
        is_patient and isinstance(rejection.details, FitErrors)
    )
    rows = (row for podset in podsets for row in podset.pending) if is_of_capacity else ()
    return PodGroupReport(
        reason=refused.reason,
        message=sentence,
        kai_reason=reason,
        kai_message=message,
        has_begun=any(podset.running for podset in podsets),
        pods=tuple(encoded.pod_keys[row] for row in rows),
    )


def _amounts(row: Ints) -> dict[str, str]:
    cpu, memory, gpu = row.tolist()
    return format_amounts({CPU: cpu, MEMORY: memory * 1000, GPU: gpu})
