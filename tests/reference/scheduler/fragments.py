"""What typical pods cannot use of the GPUs of a node: rule 24a."""

from collections import Counter

from tests.reference.scheduler.model import WHOLE_GPU, ClusterInfo, NodeInfo, PodInfo
from tests.reference.scheduler.resources import (
    GPU_RESOURCES,
    Amounts,
    added,
    fits,
    gpu_count,
    subtracted,
)

_STEP = 40 * 10_000


def typical_pods(cluster: ClusterInfo) -> list[tuple[PodInfo, int, int]]:
    """Return one pod of each typical shape, its share of each GPU, and the weight of the shape."""
    known = {name for node_info in cluster.nodes for name in node_info.allocatable}
    shapes: dict[object, tuple[PodInfo, int]] = {}
    counts = Counter[object]()
    weights = [(pod, 16) for pod in cluster.pods if not pod.is_terminating]
    weights += [(pod, 8 // 2**hours) for pod, hours in cluster.ended if hours < 4]
    for pod, weight in weights:
        if pod.spec.get("schedulerName") != "kai-scheduler":
            continue
        share = _share(pod)
        needs = {name: n for name, n in pod.requests.items() if n and name in known}
        devices = pod.share.devices if pod.share else 0
        shape = frozenset(needs.items()), devices, share
        shapes.setdefault(shape, (pod, share))
        counts[shape] += weight
    found, covered, last = [], 0, 0
    for one, count in counts.most_common():
        if 100 * covered >= 95 * counts.total() and count < last:
            break
        covered, last = covered + count, count
        if shapes[one][1] or gpu_count(shapes[one][0].requests):
            found.append((*shapes[one], 10_000 * count // counts.total()))
    return found


def fragment_rank(cluster: ClusterInfo, pod: PodInfo, node_info: NodeInfo) -> tuple[int, int]:
    """Return by how many steps the fragments of a node grow, and how many whole GPUs are free."""
    room = added(node_info.idle, node_info.releasing)
    used = [gpu.used("stays") + gpu.used("nominated") for gpu in node_info.gpus]
    left = [WHOLE_GPU - it for it in used if 0 < it < WHOLE_GPU]
    after, left_after = subtracted(room, pod.requests), sorted(left)
    share = pod.share.on(node_info.name) if pod.share else None
    for _ in range(pod.share.devices if pod.share and share else 0):
        assert share
        tightest = next((it for it in left_after if it >= share), 0)
        if tightest:
            left_after.remove(tightest)
            left.remove(tightest)
            left.append(tightest - share)
        else:
            after = subtracted(after, {node_info.gpu_resource: 1})
            left.append(WHOLE_GPU - share)
    before = [WHOLE_GPU - it for it in used if 0 < it < WHOLE_GPU]
    growth = _fragments(cluster, after, left) - _fragments(cluster, room, before)
    return (growth + _STEP // 2) // _STEP, _whole(room)


def _share(pod: PodInfo) -> int:
    if pod.share is None:
        return 0
    on_node = pod.share.on(pod.node) if pod.node else pod.share.thousandths
    part = on_node or int(pod.share.charge("") * WHOLE_GPU) // pod.share.devices
    return min(max(part, 1), WHOLE_GPU)


def _fragments(cluster: ClusterInfo, room: Amounts, left: list[int]) -> int:
    known = {name for node_info in cluster.nodes for name in node_info.allocatable}
    found = 0
    for pod, share, weight in cluster.typical:
        needs = {name: n for name, n in pod.requests.items() if name in known}
        enough = [it for it in left if it >= (share or WHOLE_GPU)]
        is_enough = pod.share is None or _whole(room) + len(enough) >= pod.share.devices
        if is_enough and fits(needs, room):
            found += weight * (sum(left) - sum(enough))
        else:
            found += weight * (WHOLE_GPU * _whole(room) + sum(left))
    return found


def _whole(room: Amounts) -> int:
    return sum(max(room.get(name, 0), 0) for name in GPU_RESOURCES)
