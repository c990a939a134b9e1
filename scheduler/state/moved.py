"""What is written of whoever moves: his slots elsewhere, and what his pods are like.

Between his eviction and his return he has no pods by which that could be known, and whoever leads
then may have seen none of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from scheduler.state.cluster import Cluster
from scheduler.state.departures import Departure
from scheduler.state.repair import leaf_of
from scheduler.state.reserved import Held, SlotAt, write_reserved
from scheduler.state.terms import stamp
from scheduler.state.trees import minima
from trainer_kai.api.meta import Key
from trainer_kai.api.names import COMPLETION_INDEX, POD_GROUP
from trainer_kai.api.pod import Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.policy.anticipated import later_like

__all__ = ["with_holds"]

_AWAITED_S: Final = 300  # pods that have not come back by then find their room taken


def with_holds(one: Departure, cluster: Cluster, now: int) -> Departure:
    """Return a departure with the annotations of the groups that move."""
    pods = [cluster.pods[key] for key in one.pods if key in cluster.pods]
    until, holds = stamp(now + _AWAITED_S), []
    for key, slots in one.slots:
        group = cluster.pod_groups.get(key)
        if group is not None:
            least = minima(group)
            mine = {leaf_of(pod, least): pod for pod in pods if _group_of(pod) == key}
            holds.append((key, write_reserved(slots, _moved(mine, slots, until))))
    return one._replace(holds=tuple(holds))


def _moved(pods: Mapping[str, Pod], slots: Iterable[SlotAt], until: str) -> dict[str, Held]:
    """Return what is to be known of each leaf; *pods* is one of each."""
    counts = Counter(slot.leaf for slot in slots)
    found = {}
    for leaf in counts.keys() & pods.keys():
        try:
            like = later_like(pods[leaf])
        except QuantityError:
            continue  # nobody can say what room that is
        labels = {name: text for name, text in like.labels.items() if name != COMPLETION_INDEX}
        like = msgspec.structs.replace(
            like, sub_group_prefix=leaf, count=counts[leaf], labels=labels
        )
        found[leaf] = Held(until=until, like=like)
    return found


def _group_of(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.annotations.get(POD_GROUP, ""))
