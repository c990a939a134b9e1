"""What a group says of pods that do not exist yet: `trainer-kai.dev/anticipated`.

A unit whose later pods are made only when the first ones run must find room for all of them at
once. So its group names those pods with what they ask for, and what has to be over before it may
begin. All of it follows from the spec of the JobSet, so it is written once: whoever reads it
subtracts the pods that are there. The schema stands in the README of this room.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from trainer_kai.api.affinity import Affinity, Toleration
from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.policy.demand import demand, spell
from trainer_kai.policy.names import leaf_name
from trainer_kai.policy.units import Unit

__all__ = ["After", "Anticipated", "Later", "anticipated", "read_anticipated"]


class After(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What must be over, or ready, before any pod of the group is placed."""

    replicated_job: str
    status: str
    group: str = ""  # its group; none where another scheduler has it


class Later(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """Pods of one replicatedJob that exist later: *count* in each sub-group; what each needs."""

    sub_groups: tuple[str, ...]
    count: int
    requests: Mapping[str, str] = {}
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""


class Anticipated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a group says of what is not there."""

    after: tuple[After, ...] = ()
    later: tuple[Later, ...] = ()


_read: Final = msgspec.json.Decoder(Anticipated)


def anticipated(
    unit: Unit, jobs: Mapping[str, ReplicatedJob], group_of: Callable[[str], str]
) -> str:
    """Write what a unit says of pods to come; empty where there is nothing to say."""
    ahead = dict.fromkeys((edge.before, edge.status) for edge in unit.after)
    value = Anticipated(
        after=tuple(
            After(replicated_job=name, status=status, group=group_of(name))
            for name, status in ahead
        ),
        later=tuple(_later(unit, jobs)),
    )
    return msgspec.json.encode(value).decode() if value != Anticipated() else ""


def read_anticipated(text: str) -> Anticipated:
    """Read the annotation; raise `msgspec.DecodeError` for what is none."""
    return _read.decode(text) if text else Anticipated()


def _later(unit: Unit, jobs: Mapping[str, ReplicatedJob]) -> Iterable[Later]:
    for member in unit.members:
        if not member.is_later:
            continue
        spec = jobs[member.name].template.spec.template.spec
        yield Later(
            sub_groups=tuple(leaf_name(member.name, i) for i in range(member.replicas)),
            count=member.pods,
            requests=spell(demand(spec)),
            node_selector=spec.node_selector,
            affinity=spec.affinity,
            tolerations=spec.tolerations,
            priority_class_name=spec.priority_class_name,
        )
