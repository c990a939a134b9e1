"""What is written of whoever moves: his slots elsewhere, and what his pods are like.

Between his eviction and his return he has no pods by which that could be known, and whoever leads
then may have seen none of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from scheduler.state.cluster import Cluster
from scheduler.state.departures import PlannedEviction
from scheduler.state.repair import podset_of
from scheduler.state.reserved import NamedPlace, ReservedPodSet, write_reserved
from scheduler.state.terms import format_timestamp
from scheduler.state.trees import min_members
from trainer_kai.api.meta import Key
from trainer_kai.api.names import COMPLETION_INDEX, POD_GROUP
from trainer_kai.api.pod import Pod
from trainer_kai.api.quantity import QuantityError
from trainer_kai.policy.anticipated import anticipated_pod

__all__ = ["with_reserved_annotations"]

_RELOCATION_WAIT_S: Final = 300  # pods that have not come back by then find their room taken


def with_reserved_annotations(one: PlannedEviction, cluster: Cluster, now: int) -> PlannedEviction:
    """Return a departure with the annotations of the groups that move."""
    pods = [cluster.pods[key] for key in one.pods if key in cluster.pods]
    until, annotations = format_timestamp(now + _RELOCATION_WAIT_S), []
    for key, places in one.places:
        group = cluster.pod_groups.get(key)
        if group is not None:
            minimums = min_members(group)
            pods_by_podset = {
                podset_of(pod, minimums): pod for pod in pods if _podgroup_key(pod) == key
            }
            annotations.append(
                (key, write_reserved(places, _reserved_podsets(pods_by_podset, places, until)))
            )
    return one._replace(reserved_annotations=tuple(annotations))


def _reserved_podsets(
    pods: Mapping[str, Pod], places: Iterable[NamedPlace], until: str
) -> dict[str, ReservedPodSet]:
    """Return what is to be known of each leaf; *pods* is one of each."""
    counts = Counter(place.podset for place in places)
    found = {}
    for podset in counts.keys() & pods.keys():
        try:
            like = anticipated_pod(pods[podset])
        except QuantityError:
            continue  # nobody can say what room that is
        labels = {name: text for name, text in like.labels.items() if name != COMPLETION_INDEX}
        like = msgspec.structs.replace(
            like, sub_group_prefix=podset, count=counts[podset], labels=labels
        )
        found[podset] = ReservedPodSet(until=until, like=like)
    return found


def _podgroup_key(pod: Pod) -> Key:
    return Key(pod.metadata.namespace, pod.metadata.annotations.get(POD_GROUP, ""))
