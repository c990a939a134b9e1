"""What a plan says of everybody who waits, by names and in words. Pure; it runs beside the loop."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from scheduler.core.decision import NodeNumbers, Plan
from scheduler.core.explain import explain, for_kai
from scheduler.core.model import NONE, Ints, Verdict, leaves_of
from scheduler.state.departures import Departure, waiting_for
from scheduler.state.encode import Encoded
from scheduler.state.orders import Orders, Refused
from scheduler.state.unmade import Lack
from trainer_kai.api.meta import Key
from trainer_kai.api.names import CPU, GPU, MEMORY
from trainer_kai.api.sentence import shortened
from trainer_kai.policy.demand import spell

__all__ = ["QueueNumbers", "QueueUse", "Said", "Told", "read_told"]

Leaving: TypeAlias = Mapping[Key, Sequence[Departure]]

_NOBODY: Final[Leaving] = MappingProxyType({})
_NOTHING: Final[Mapping[Key, Lack]] = MappingProxyType({})

# What another node could cure: an autoscaler has to hear of it. Of quotas it must not, nor of a
# topology that is required, as long as no node could help there.
_OF_CAPACITY: Final = frozenset(
    {
        Verdict.NO_NODE_MATCHES,
        Verdict.FRAGMENTED,
        Verdict.NO_CAPACITY,
    }
)


class Said(NamedTuple):
    """Why a unit waits."""

    verdict: Verdict
    sentence: str
    kai_reason: str  # "": it knows none
    kai_message: str
    has_begun: bool  # some of it runs
    pods: tuple[Key, ...]  # that wait, if an autoscaler could help them

    @property
    def title(self) -> str:
        """Return the verdict as users read it."""
        return self.verdict.title


class QueueNumbers(NamedTuple):
    """What a queue has and is due: thousandths, bytes and thousandths, by kind."""

    quota: tuple[int, ...]
    allocated: tuple[int, ...]
    fair_share: tuple[float, ...]


class QueueUse(NamedTuple):
    """What a queue and all below it have and ask for, as its status says it, and as numbers."""

    allocated: Mapping[str, str]
    allocated_non_preemptible: Mapping[str, str]
    requested: Mapping[str, str]
    numbers: QueueNumbers


class Told(NamedTuple):
    """All of it."""

    units: Mapping[Key, Said]
    queues: Mapping[str, QueueUse]


def read_told(
    encoded: Encoded,
    made: Plan,
    orders: Orders,
    leaving: Leaving = _NOBODY,
    lacks: Mapping[Key, Lack] = _NOTHING,
) -> Told:
    """Return what a plan says; *leaving* go already, and pods of *lacks* could not be made."""
    queues = encoded.snapshot.queues
    promised = _promised(encoded, made, orders, leaving)
    waiting = {it.group: _said(encoded, it) for it in orders.unschedulable}
    return Told(
        units=promised | waiting | dict(_unmade(waiting, lacks)),
        queues={
            name: QueueUse(
                _amounts(queues.allocated[row]),
                _amounts(queues.fixed[row]),
                _amounts(queues.requested[row]),
                QueueNumbers(
                    tuple(queues.quota[row].tolist()),
                    tuple(queues.allocated[row].tolist()),
                    tuple(made.fair_share[row].tolist()),
                ),
            )
            for row, name in enumerate(queues.names)
        },
    )


def _promised(encoded: Encoded, made: Plan, orders: Orders, leaving: Leaving) -> dict[Key, Said]:
    """Say of units that are promised room whom they wait for."""
    nodes: dict[int, list[int]] = {}
    for it in made.decisions:
        nodes.setdefault(it.unit, []).extend(node for _, node in it.nominations)
    departures: dict[Key, list[Departure]] = {key: [*them] for key, them in leaving.items()}
    for one in orders.departures:
        if one.claimant is not None:
            departures.setdefault(one.claimant, []).append(one)
    said = {}
    for row, found in nodes.items():
        if found:
            key, unit = encoded.units[row], encoded.snapshot.units[row]
            whom = waiting_for(len(found), len({*found}), departures.get(key, ()))
            sentence = shortened(whom)
            has_begun = any(leaf.there for leaf in leaves_of(unit.tree))
            said[key] = Said(Verdict.WAITING_FOR_VICTIMS, sentence, "", "", has_begun, ())
    return said


def _unmade(waiting: Mapping[Key, Said], lacks: Mapping[Key, Lack]) -> Iterator[tuple[Key, Said]]:
    """Yield those whose pods are refused; of who has none at all no plan speaks."""
    for group, lack in lacks.items():
        said = waiting.get(group)
        if said is not None and said.verdict == Verdict.PODS_MISSING:
            sentence = shortened(f"{said.sentence}. {lack.why}")
            yield group, said._replace(sentence=sentence, kai_message=sentence)
        elif said is None and not lack.exist and lack.least:
            sentence = shortened(f"pods are missing: 0 of {lack.least} exist. {lack.why}")
            verdict = Verdict.PODS_MISSING
            yield group, Said(verdict, sentence, verdict.title, sentence, has_begun=False, pods=())


def _said(encoded: Encoded, refused: Refused) -> Said:
    rejection = refused.rejection
    reason, told = for_kai(encoded.snapshot, rejection)
    message, sentence = shortened(told), shortened(explain(encoded.snapshot, rejection))
    if rejection.unit == NONE:
        return Said(refused.verdict, sentence, reason, message, has_begun=False, pods=())
    leaves = [*leaves_of(encoded.snapshot.units[rejection.unit].tree)]
    is_patient = refused.verdict == Verdict.PREEMPTION_DELAY
    is_of_capacity = refused.verdict in _OF_CAPACITY or (
        is_patient and isinstance(rejection.numbers, NodeNumbers)
    )
    rows = (row for leaf in leaves for row in leaf.waiting) if is_of_capacity else ()
    return Said(
        verdict=refused.verdict,
        sentence=sentence,
        kai_reason=reason,
        kai_message=message,
        has_begun=any(leaf.there for leaf in leaves),
        pods=tuple(encoded.pods[row] for row in rows),
    )


def _amounts(row: Ints) -> dict[str, str]:
    cpu, memory, gpu = row.tolist()
    return spell({CPU: cpu, MEMORY: memory * 1000, GPU: gpu})
