"""Where the pods of a chunk go, or why they cannot: rules 21 to 27 and the last three verdicts."""

from tests.support.reference.amounts import Amounts, added, fits, gpus, subtracted
from tests.support.reference.matching import selects_node, tolerates
from tests.support.reference.neighbours import gets_along
from tests.support.reference.things import Cluster, Machine, Pod, Unit
from tests.support.reference.trees import satisfied

__all__ = ["place"]


def place(cluster: Cluster, unit: Unit, pods: list[Pod], *, waits: bool = False) -> str:
    """Decide a whole chunk; return the verdict if it cannot be, and then nothing has changed.

    If it *waits* for others to go, all of it is nominated.
    """
    before = [(machine, machine.idle, machine.releasing) for machine in cluster.machines]
    states = [(pod, pod.state) for pod in pods]
    for pod in pods:
        machine = _best(cluster, pod)
        if machine is None:
            would = _but_for_room(cluster, pod)
            _undo(before, states)
            return _verdict(pods, would)
        _put(pod, machine)
    nominated = any(pod.state == "nominated" for pod in unit.pods)
    if waits or (nominated and not satisfied(unit.root, without=("nominated",))):
        _nominate_all(cluster, pods)
    for pod in pods:
        cluster.hold(unit, pod)
    return ""


def _qualifies(cluster: Cluster, pod: Pod, machine: Machine) -> bool:
    return (
        machine.usable
        and tolerates(pod.spec, machine)
        and selects_node(pod.spec, machine)
        and gets_along(cluster, pod, machine)
    )


def _but_for_room(cluster: Cluster, pod: Pod) -> list[Machine]:
    """Return the nodes of which at most the room is missing."""
    return [
        machine
        for machine in cluster.machines
        if _qualifies(cluster, pod, machine) and fits(pod.needs, machine.whole)
    ]


def _best(cluster: Cluster, pod: Pod) -> Machine | None:
    able = [
        machine
        for machine in cluster.machines
        if fits(pod.needs, machine.idle, machine.releasing) and _qualifies(cluster, pod, machine)
    ]
    return min(able, key=lambda machine: _rank(pod, machine), default=None)


def _rank(pod: Pod, machine: Machine) -> tuple[object, ...]:
    room = added(machine.idle, machine.releasing)
    needs_gpus = gpus(pod.needs) > 0
    return (
        machine.name != pod.nominated,
        not fits(pod.needs, machine.idle),
        not needs_gpus and gpus(machine.whole) > 0,
        max(0, gpus(room) if needs_gpus else room.get("cpu", 0)),
        machine.name,
    )


def _put(pod: Pod, machine: Machine) -> None:
    pod.node = machine.name
    if fits(pod.needs, machine.idle):
        machine.idle = subtracted(machine.idle, pod.needs)
        pod.state = "reserved" if pod.later else "bound"
    else:
        machine.releasing = subtracted(machine.releasing, pod.needs)
        pod.state = "nominated"


def _nominate_all(cluster: Cluster, pods: list[Pod]) -> None:
    at = {machine.name: machine for machine in cluster.machines}
    for pod in pods:
        if pod.state in ("bound", "reserved"):
            machine = at[pod.node]
            machine.idle = added(machine.idle, pod.needs)
            machine.releasing = subtracted(machine.releasing, pod.needs)
            pod.state = "nominated"


def _undo(before: list[tuple[Machine, Amounts, Amounts]], states: list[tuple[Pod, str]]) -> None:
    for machine, idle, releasing in before:
        machine.idle, machine.releasing = idle, releasing
    for pod, state in states:
        pod.state, pod.node = state, ""


def _verdict(pods: list[Pod], would: list[Machine]) -> str:
    """Say why, given the nodes that would do for the pod that found none, had they room."""
    if not would:
        return "NoNodeMatches"
    needs: Amounts = {}
    for pod in pods:
        needs = added(needs, pod.needs)
    room: Amounts = {}
    for machine in would:
        here = added(machine.idle, machine.releasing)
        room = added(room, {name: max(0, amount) for name, amount in here.items()})
    return "Fragmented" if fits(needs, room) else "NoCapacity"
