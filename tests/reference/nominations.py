"""Nominations that are lost between two cycles of a simulation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_BOUNDS: Final = ("ExceedsLimit", "NonPreemptibleOverQuota")
_DEFAULT: Final = 50  # the priority of a PodGroup that names no class


def lost_nominations(
    objects: Sequence[Mapping[str, Any]], cycles: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, str]]:
    """Yield the cycle and the pod of each nomination that was lost to another queue.

    A pod may lose its room, or what its queue may use, to a PodGroup of its own queue that has a
    larger priority: that is no loss.
    """
    priorities = {it["metadata"]["name"]: it["value"] for it in objects if "value" in it}
    specs = {it["metadata"]["name"]: it["spec"] for it in objects if it["kind"] == "PodGroup"}
    of = {
        name: (spec["queue"], priorities.get(spec.get("priorityClassName", ""), _DEFAULT))
        for name, spec in specs.items()
    }
    promised: dict[str, str] = {}
    for number, cycle in enumerate(cycles, start=1):
        got = {one["pod"]: one["node"] for one in (*cycle["binds"], *cycle["nominations"])}
        refused = {it["podGroup"] for it in cycle["unschedulable"] if it["reason"] in _BOUNDS}
        for pod in promised.keys() - got.keys():
            queue, priority = of[_podgroup_of(pod)]
            nodes = {
                node for one, node in promised.items() if _podgroup_of(one) == _podgroup_of(pod)
            }
            takers = [
                of[_podgroup_of(it)]
                for it in got
                if got[it] in nodes or _podgroup_of(pod) in refused
            ]
            if not any(other == queue and larger > priority for other, larger in takers):
                yield number, pod
        promised = {one["pod"]: one["node"] for one in cycle["nominations"]}


def _podgroup_of(pod: str) -> str:
    return pod.rsplit("-", 1)[0]
