"""Consolidation by looking at every set of candidates: rules 40a to 40e."""

from collections.abc import Iterator
from dataclasses import replace

from tests.support.reference.amounts import axes
from tests.support.reference.ending import Saved, awaits_its_own, is_late, settles
from tests.support.reference.evicting import MOST, Block, TooMany, blocks_of, evict, first, line_of
from tests.support.reference.placing import place
from tests.support.reference.things import Cluster, Leaf, Pod, Unit
from tests.support.reference.trees import chunk, satisfied
from tests.support.reference.turns import next_unit, over_capacity, unit_rank

__all__ = ["move_all"]

_CURABLE = ("Fragmented", "NoCapacity", "ExceedsLimit")


def move_all(cluster: Cluster, verdicts: dict[Unit, str]) -> Iterator[tuple[Unit, str, list[Pod]]]:
    """Yield who gets room, and the pods that have to go for it; their slots are held by then."""
    left = [
        unit
        for unit, verdict in verdicts.items()
        if verdict in _CURABLE and not unit.awaits_its_own
    ]
    moved: set[Unit] = set()
    while left := [unit for unit in left if unit not in moved]:
        unit = next_unit(cluster, left)
        left.remove(unit)
        if not unit.preemptible or verdicts[unit] == "ExceedsLimit":
            continue
        if moved and _settles(cluster, unit, [], keeps=True):
            yield unit, "consolidation", []
            continue
        line = line_of(cluster, [*_candidates(cluster, unit)])
        if len(line) > MOST:
            raise TooMany

        def does(ranks: tuple[int, ...], line: list[Block] = line, unit: Unit = unit) -> bool:
            return _settles(cluster, unit, [line[rank] for rank in ranks])

        some = first(len(line), does, does)
        if some is not None:
            blocks = [line[rank] for rank in some]
            assert _settles(cluster, unit, blocks, keeps=True)
            moved |= {one for block in blocks for one in block.units}
            yield unit, "consolidation", [pod for block in blocks for pod in block.pods]


def _candidates(cluster: Cluster, unit: Unit) -> Iterator[Block]:
    """Yield who can be moved, each with all it has."""
    for block in blocks_of(cluster, set()):
        (one, *others) = block.units
        is_all = {*block.pods} == {pod for pod in one.pods if pod.state in ("there", "old")}
        may = not others and not block.is_partly_done
        if one is not unit and may and is_all and _can_move(one):
            yield replace(block, more=_sum(block.pods), rank=unit_rank(one))


def _can_move(unit: Unit) -> bool:
    """Say whether a unit can be made anew in slots; no test looks at one with several shapes."""
    is_alone = any(unit.name == f"pg-{pod.name}-{pod.uid}" for pod in unit.pods)
    return not is_alone and satisfied(unit.root)


def _settles(cluster: Cluster, unit: Unit, blocks: list[Block], *, keeps: bool = False) -> bool:
    """Say whether a unit and those who are moved all find room; unless it *keeps* it, undo it."""
    pods = chunk(unit.root)
    saved = Saved(cluster)
    anew = [
        (one, leaf, replace(pod, state="later", node="", later=True))
        for block in blocks
        for one in block.units
        for leaf in one.leaves
        for pod in leaf.pods
        if pod in block.pods
    ]
    anew.sort(key=lambda it: [-n for n in (axes(it[2].needs)[i] for i in (2, 0, 1))])
    may = not over_capacity(cluster, unit, pods) and not awaits_its_own(cluster, unit, pods)
    waits = bool(blocks) or is_late(cluster, unit, pods)
    evict(cluster, blocks)
    done = may and not place(cluster, unit, pods, waits=waits)
    done = done and all(not place(cluster, one, [pod]) for one, _, pod in anew)
    if done and keeps:
        settles(cluster, unit, pods, waits=waits)
        _hold(anew)
        return True
    saved.restore()
    return done


def _hold(anew: list[tuple[Unit, Leaf, Pod]]) -> None:
    for _, leaf, pod in anew:
        leaf.later.append(pod)


def _sum(pods: list[Pod]) -> tuple[int, int, int]:
    cpu, memory, gpu = (sum(axes(pod.needs)[i] for pod in pods) for i in range(3))
    return cpu, memory, gpu
