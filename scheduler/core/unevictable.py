"""What units have that may be preempted by their word, and that cannot be evicted all the same."""

from collections.abc import Iterator, Sequence

from scheduler.core.model import NONE, PodGroupInfo, Snapshot
from scheduler.core.stock import allocated_by_podgroup
from scheduler.core.tenants import is_evictable
from scheduler.core.usage import UnevictableUsage

__all__ = ["unevictable_usage"]


def unevictable_usage(snapshot: Snapshot) -> dict[int, UnevictableUsage]:
    """Return by queue what counts as if it could not be preempted."""
    rows = [*_unevictable_rows(snapshot.podgroups)]
    if not rows:
        return {}
    has, counts = allocated_by_podgroup(snapshot)
    found: dict[int, UnevictableUsage] = {}
    for row in rows:
        queue = snapshot.podgroups[row].queue
        if not counts[row]:
            continue
        podgroups, (cpu, memory, gpu) = found.get(queue, UnevictableUsage((), (0, 0, 0)))
        amounts = cpu + has[row][0], memory + has[row][1], gpu + has[row][2]
        found[queue] = UnevictableUsage((*podgroups, row), amounts)
    return found


def _unevictable_rows(podgroups: Sequence[PodGroupInfo]) -> Iterator[int]:
    """Yield the units that stay, and not only while they move; of a bundle if any other does."""
    jobsets: dict[str, list[int]] = {}
    for row, podgroup in enumerate(podgroups):
        if podgroup.owning_jobset:
            jobsets.setdefault(podgroup.owning_jobset, []).append(row)
        elif (
            podgroup.non_evictable_reason
            and not podgroup.is_relocating
            and _is_charged_as_preemptible(podgroup)
        ):
            yield row
    for rows in jobsets.values():
        some = [podgroups[row] for row in rows]
        is_torn = any(podgroup.queue != some[0].queue for podgroup in some)
        if any(podgroup.is_relocating for podgroup in some) or not (
            is_torn or not all(map(is_evictable, some))
        ):
            continue
        yield from (row for row in rows if _is_charged_as_preemptible(podgroups[row]))


def _is_charged_as_preemptible(podgroup: PodGroupInfo) -> bool:
    """Say whether a unit has a queue, and does not count in any case."""
    return podgroup.queue != NONE and podgroup.is_preemptible
