"""What a group says of pods that do not exist yet: `trainer-kai.dev/anticipated`.

A unit whose later pods are made only when the first ones run must find room for all of them at
once. So its group names those pods with what they ask for, and what has to be over before it may
begin. All of it follows from the spec of the JobSet, so it is written once: whoever reads it
subtracts the pods that are there. The schema stands in the README of this room.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from trainer_kai.api.affinity import Affinity, Toleration, TopologySpread
from trainer_kai.api.jobset import ReplicatedJob
from trainer_kai.api.names import GPU_FRACTION, GPU_FRACTION_DEVICES, GPU_MEMORY, MPS
from trainer_kai.api.pod import Pod, PodSpec, PodTemplate, Volume
from trainer_kai.policy.demand import demand, spell
from trainer_kai.policy.names import leaf_prefix
from trainer_kai.policy.podbounds import is_related
from trainer_kai.policy.ports import EVERYWHERE, TCP, node_ports
from trainer_kai.policy.stages import READY, pods_of
from trainer_kai.policy.units import MOST_EXPECTED, MOST_RELATED, MOST_SUB_GROUPS, Member, Unit

__all__ = [
    "After",
    "Anticipated",
    "HostPort",
    "Later",
    "anticipated",
    "later_like",
    "read_anticipated",
]


class After(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """What must be over, or ready, before any pod of the group is placed.

    It is when *count* pods are in each of its sub-groups; a pod that begins only afterwards proves
    it as well, when those before it have long been removed.
    """

    replicated_job: str
    status: str
    group: str = ""  # its group; none where another scheduler has it
    sub_group_prefix: str
    replicas: int
    count: int
    before: tuple[str, ...] = ()  # which of this group's begin only afterwards, by their prefixes

    @property
    def sub_groups(self) -> tuple[str, ...]:
        """Return its sub-groups, in its group."""
        return tuple(f"{self.sub_group_prefix}{i}" for i in range(self.replicas))


class HostPort(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """A port of the node, on one address of it or on all."""

    port: int
    protocol: str = ""  # TCP
    host_ip: str = msgspec.field(default="", name="hostIP")


class Later(msgspec.Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True):
    """Pods of one replicatedJob that exist later: *count* in each sub-group; what each needs."""

    sub_group_prefix: str
    replicas: int
    count: int
    requests: Mapping[str, str] = {}
    sharing: Mapping[str, str] = {}  # annotations by which it asks for a part of a GPU
    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority_class_name: str = ""
    labels: Mapping[str, str] = {}  # of the template
    topology_spread_constraints: tuple[TopologySpread, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    volumes: tuple[Volume, ...] = ()  # those that are claims

    @property
    def sub_groups(self) -> tuple[str, ...]:
        """Return their sub-groups."""
        return tuple(f"{self.sub_group_prefix}{i}" for i in range(self.replicas))


class Anticipated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a group says of what is not there."""

    after: tuple[After, ...] = ()
    later: tuple[Later, ...] = ()


_SHARING: Final = (GPU_FRACTION, GPU_MEMORY, GPU_FRACTION_DEVICES, MPS)
_read: Final = msgspec.json.Decoder(Anticipated)


def anticipated(
    unit: Unit, jobs: Mapping[str, ReplicatedJob], group_of: Callable[[str], str]
) -> str:
    """Write what a unit says of pods to come; empty where there is nothing to say."""
    value = Anticipated(after=_after(unit, jobs, group_of), later=_later(unit, jobs))
    return msgspec.json.encode(value, order="sorted").decode() if value != Anticipated() else ""


def read_anticipated(text: str) -> Anticipated:
    """Read the annotation; raise `msgspec.DecodeError` for what is none, or expects too much.

    It may be of any version, and by hand; what reads it counts on its bounds.
    """
    said = _read.decode(text) if text else Anticipated()
    excess = _excess(said)
    if excess:
        raise msgspec.ValidationError(excess)
    return said


def _excess(said: Anticipated) -> str:
    """Say what is too much in it."""
    for path, each in (("after", said.after), ("later", said.later)):
        replicas = max((one.replicas for one in each), default=0)
        if replicas > MOST_SUB_GROUPS:
            return f"{path}: {replicas} replicas, and {MOST_SUB_GROUPS} are the most"
    related = [one for one in said.later if _is_related(one)]
    return _many(said.later, "pods", MOST_EXPECTED) or _many(
        related, "pods with affinity, spread or ports", MOST_RELATED
    )


def _many(later: Iterable[Later], pods: str, most: int) -> str:
    expected = sum(max(one.replicas, 0) * max(one.count, 0) for one in later)
    if expected <= most:
        return ""
    return f"later: {expected} {pods} are expected, and {most} of one PodGroup are the most"


def _is_related(one: Later) -> bool:
    said = PodSpec(
        affinity=one.affinity, topology_spread_constraints=one.topology_spread_constraints
    )
    return bool(one.host_ports) or is_related(said)


def _after(
    unit: Unit, jobs: Mapping[str, ReplicatedJob], group_of: Callable[[str], str]
) -> tuple[After, ...]:
    behind: dict[tuple[str, str], list[str]] = {}
    for edge in unit.after:
        behind.setdefault((edge.before, edge.status), []).append(leaf_prefix(edge.after))
    return tuple(
        After(
            replicated_job=name,
            status=status,
            group=group_of(name),
            sub_group_prefix=leaf_prefix(name),
            replicas=jobs[name].replicas,
            count=pods_of(jobs[name]) if status == READY else _all_of(jobs[name]),
            before=tuple(before),
        )
        for (name, status), before in behind.items()
    )


def _all_of(job: ReplicatedJob) -> int:
    """Return how many pods of each Job must succeed; one is enough where they are not counted."""
    spec = job.template.spec
    if spec.completions is not None:
        return spec.completions
    return 1


def _later(unit: Unit, jobs: Mapping[str, ReplicatedJob]) -> tuple[Later, ...]:
    return tuple(
        _later_one(member, jobs[member.name]) for member in unit.members if member.is_later
    )


def _later_one(member: Member, job: ReplicatedJob) -> Later:
    likeness = later_like(job.template.spec.template)
    return msgspec.structs.replace(
        likeness,
        sub_group_prefix=leaf_prefix(member.name),
        replicas=member.replicas,
        count=member.pods,
    )


def later_like(template: PodTemplate | Pod) -> Later:
    """Return what one pod is like, in no sub-group."""
    meta, spec = template.metadata, template.spec
    return Later(
        sub_group_prefix="",
        replicas=1,
        count=1,
        requests=spell(demand(spec)),
        sharing={k: meta.annotations[k] for k in _SHARING if k in meta.annotations},
        node_selector=spec.node_selector,
        affinity=spec.affinity,
        tolerations=spec.tolerations,
        priority_class_name=spec.priority_class_name,
        labels=meta.labels,
        topology_spread_constraints=spec.topology_spread_constraints,
        host_ports=tuple(_host_ports(spec)),
        volumes=tuple(one for one in spec.volumes if one.persistent_volume_claim),
    )


def _host_ports(spec: PodSpec) -> Iterator[HostPort]:
    for protocol, number, address in dict.fromkeys(node_ports(spec)):
        yield HostPort(
            port=number,
            protocol="" if protocol == TCP else protocol,
            host_ip="" if address == EVERYWHERE else address,
        )
