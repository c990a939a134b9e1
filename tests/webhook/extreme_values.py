"""Makes numbers in a review extreme: counts, sums, quantities, and how much there is of a thing.

The sizes are those by which a user could stop a plan, and those at the bounds of ours: just
below, on and above them.
"""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

from trainer_kai.api.bounds import MOST_EXPECTED, MOST_JOBS, MOST_SUB_GROUPS

_INT: Final = 2**31 - 1
_COUNTS: Final = (
    *(0, 1, 300, _INT - 1, _INT),
    *(bound + more for bound in (MOST_SUB_GROUPS, MOST_EXPECTED) for more in (-1, 0, 1)),
)
_SUMS: Final = (  # replicas and pods of each: their products are at the bound of what is expected
    *((300, 333), (300, 334), (100, 1000), (1, MOST_EXPECTED), (1, MOST_EXPECTED + 1)),
    *((MOST_SUB_GROUPS - 3, 1), (MOST_SUB_GROUPS - 1, 34), (300, MOST_EXPECTED), (_INT, _INT)),
)
_SIZES: Final = (64, 65, 256, 257, 1000, 4000)
_QUANTITIES: Final = (str(2**45), str(2**45 + 1), str(2**63 - 1), str(2**63), "8E", "9e99", "1n")
_NUMBERS: Final = frozenset(
    (
        *("replicas", "parallelism", "completions", "numNodes", "numProcPerNode", "backoffLimit"),
        *("quota", "limit", "overQuotaWeight"),
    )
)


def extreme(tree: Any, chance: random.Random) -> None:
    obj = tree["request"]["object"] or tree["request"]["oldObject"]  # none: of a deletion
    chance.choice((_counts, _sums, _amounts, _many))(obj, chance)


def _counts(obj: Any, chance: random.Random) -> None:
    for holder, key in [*_places(obj)]:
        holder[key] = chance.choice(_COUNTS)
    trainer = obj.get("spec", {}).get("trainer")
    if isinstance(trainer, dict):
        trainer["numNodes"] = chance.choice(_COUNTS)


def _sums(obj: Any, chance: random.Random) -> None:
    """Add expected pods to a JobSet, as many as are allowed, or too many."""
    jobs = obj.get("spec", {}).get("replicatedJobs")
    if not jobs:
        _counts(obj, chance)
        return
    first = jobs[0]
    for number in range(chance.choice((1, 1, 3, MOST_JOBS - len(jobs)))):
        job = copy.deepcopy(first)
        job["name"] = f"later-{number}"
        job["dependsOn"] = [{"name": first["name"], "status": "Ready"}]
        job["replicas"], pods = chance.choice(_SUMS)
        job["template"]["spec"] |= {"parallelism": pods, "completions": pods}
        jobs.append(job)


def _amounts(obj: Any, chance: random.Random) -> None:
    """Let each pod request amounts with sums that no machine word holds."""
    for spec in _pod_specs(obj):
        for container in spec.get("containers", ()):
            names = ("cpu", "memory", "nvidia.com/gpu")
            asked = {name: chance.choice(_QUANTITIES) for name in names}
            container["resources"] = {"requests": asked, "limits": asked}
    _counts(obj, chance)


def _many(obj: Any, chance: random.Random) -> None:
    fill, size = chance.choice(_FILLS), chance.choice(_SIZES)
    for spec in _pod_specs(obj):
        fill(spec, size)


def _resources(spec: Any, size: int) -> None:
    for container in spec.get("containers", ()):
        asked = {f"example.com/r{number}": "1" for number in range(size)}
        container["resources"] = {"requests": asked, "limits": asked}


def _ports(spec: Any, size: int) -> None:
    for container in spec.get("containers", ()):
        container["ports"] = [{"containerPort": it + 1, "hostPort": it + 1} for it in range(size)]


def _terms(spec: Any, size: int) -> None:
    terms = [
        {"topologyKey": f"zone-{it}", "labelSelector": {"matchLabels": {f"key-{it}": "x"}}}
        for it in range(size)
    ]
    asked = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    spec["affinity"] = {"podAntiAffinity": asked, "podAffinity": asked}


def _expressions(spec: Any, size: int) -> None:
    expressions = [{"key": f"key-{it}", "operator": "In", "values": ["x"]} for it in range(size)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    spec["affinity"] = {"nodeAffinity": required}


_FILLS: Final[tuple[Callable[[Any, int], None], ...]] = (_resources, _ports, _terms, _expressions)


def _places(node: Any) -> Iterator[tuple[Any, str]]:
    if isinstance(node, list):
        for child in node:
            yield from _places(child)
    elif isinstance(node, dict):
        for key, child in node.items():
            if key in _NUMBERS:
                yield node, key
            yield from _places(child)


def _pod_specs(node: Any) -> Iterator[Any]:
    if isinstance(node, list):
        for child in node:
            yield from _pod_specs(child)
    elif isinstance(node, dict):
        if isinstance(node.get("containers"), list):
            yield node
        for child in [*node.values()]:
            yield from _pod_specs(child)
