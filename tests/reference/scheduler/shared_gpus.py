"""Which GPUs of a node a pod gets shares of: rules 23, 27c and 27d."""

from tests.reference.scheduler.model import WHOLE_GPU, NodeInfo, PodInfo, SharedGpu
from tests.reference.scheduler.resources import Amounts, added, fits, subtracted


def may_have_shares(pod: PodInfo, node_info: NodeInfo) -> bool:
    """Say whether a pod could have its shares on a node that is empty."""
    if pod.share is None:
        return True
    part, devices = pod.share.on(node_info.name), pod.share.devices
    needs = {node_info.gpu_resource: devices, "pods": pod.requests.get("pods", 0) + devices}
    return part is not None and part <= WHOLE_GPU and fits(needs, node_info.allocatable)


def fits_on(pod: PodInfo, node_info: NodeInfo, *, spreads: bool) -> bool:
    """Say whether a pod fits a node, if need be when others have terminated."""
    if not fits(pod.requests, node_info.idle, node_info.releasing):
        return False
    return pod.share is None or len(_choice(pod, node_info, spreads=spreads)) == pod.share.devices


def fits_without_waiting(pod: PodInfo, node_info: NodeInfo, *, spreads: bool) -> bool:
    """Say whether a pod that fits a node waits for nothing there."""
    return fits(pod.requests, node_info.idle) and not any(
        waits for _, waits in _choice(pod, node_info, spreads=spreads)
    )


def has_fitting_shared_gpu(pod: PodInfo, node_info: NodeInfo) -> bool:
    """Say whether a share of a pod fits a shared GPU without waiting."""
    options = _options(pod, node_info, spreads=False) if pod.share else []
    return any(gpu is not None and not waits for _, gpu, waits in options)


def add_shares(pod: PodInfo, node_info: NodeInfo, *, spreads: bool) -> None:
    """Give a pod that fits a node its shares there."""
    if pod.share is None:
        return
    _give(pod, node_info, [gpu for gpu, _ in _choice(pod, node_info, spreads=spreads)])


def put_on_fullest(pod: PodInfo, node_info: NodeInfo) -> bool:
    """Put a reserved place on the fullest GPUs of its node: rule 27f; say whether it fits."""
    if not fits(pod.requests, node_info.idle, node_info.releasing):
        return False
    pod.state = "nominated"
    if pod.share is not None:
        options = _able(pod, node_info, spreads=False)
        chosen = sorted(options, key=lambda it: it[0])[: pod.share.devices]
        if len(chosen) < pod.share.devices:
            return False
        _give(pod, node_info, [gpu for _, gpu in chosen])
    node_info.releasing_of_pods = subtracted(node_info.releasing_of_pods, pod.requests)
    return True


def _give(pod: PodInfo, node_info: NodeInfo, gpus: list[SharedGpu | None]) -> None:
    part = pod.share.on(node_info.name) if pod.share else None
    assert part is not None
    for gpu in gpus:
        if gpu is None:
            taken = {it.number for it in node_info.gpus}
            number = next(i for i in range(1, len(taken) + 2) if i not in taken)
            node_info.gpus.append(SharedGpu("", number, [(pod, part)]))
        else:
            gpu.shares.append((pod, part))


def _choice(
    pod: PodInfo, node_info: NodeInfo, *, spreads: bool
) -> list[tuple[SharedGpu | None, bool]]:
    """Return the GPUs that a pod takes, None for a whole one, and whether it waits for each."""
    if pod.share is None:
        return []
    options = sorted(_options(pod, node_info, spreads=spreads), key=lambda it: it[0])
    return [(gpu, waits) for _, gpu, waits in options[: pod.share.devices]]


def _options(
    pod: PodInfo, node_info: NodeInfo, *, spreads: bool
) -> list[tuple[tuple[object, ...], SharedGpu | None, bool]]:
    """Return the GPUs that have so much for a share, with what orders them."""
    assert pod.share is not None
    part = pod.share.on(node_info.name)
    idle_count = _whole_count(pod, node_info, node_info.idle)
    found: list[tuple[tuple[object, ...], SharedGpu | None, bool]] = []
    for rank, one in sorted(_able(pod, node_info, spreads=spreads), key=lambda it: it[0]):
        assert part is not None
        there = one.used("stays") + one.used("terminates") if one else 0
        is_over = node_info.idle.get(node_info.gpu_resource, 0) < 0
        waits = (is_over or there + part > WHOLE_GPU) if there else idle_count <= 0
        idle_count -= 0 if there else 1  # for it takes a GPU that is idle
        found.append(((waits, *rank), one, waits))
    return found


def _able(
    pod: PodInfo, node_info: NodeInfo, *, spreads: bool
) -> list[tuple[tuple[object, ...], SharedGpu | None]]:
    """Return the GPUs that have so much for a share once others have terminated."""
    part = pod.share.on(node_info.name) if pod.share else None
    if part is None or part > WHOLE_GPU:
        return []
    able: list[tuple[tuple[object, ...], SharedGpu | None]] = []
    for gpu in node_info.gpus:
        used = gpu.used("stays") + gpu.used("nominated")
        if used and used + part <= WHOLE_GPU:
            able.append(((used if spreads else -used, *gpu.rank), gpu))
    both = added(node_info.idle, node_info.releasing)
    if both.get(node_info.gpu_resource, 0) < 0:
        return []
    whole_count = _whole_count(pod, node_info, both)
    able += [((-1 if spreads else 1, i), None) for i in range(whole_count)]
    return able


def _whole_count(pod: PodInfo, node_info: NodeInfo, room: Amounts) -> int:
    """Return how many whole GPUs are free: with each goes a reservation pod."""
    pods = room.get("pods", 0) - pod.requests.get("pods", 0)
    return max(0, min(room.get(node_info.gpu_resource, 0), pods))
