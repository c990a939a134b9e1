"""Checks at every change that pods with shares of GPUs were bound as they have to be. Pure.

When a pod with shares is bound, each of its GPUs has a reservation pod on that node with a device,
and the pod's labels, its annotation and its ConfigMaps name them. The shares of a GPU are never
more than the whole, and it stays reserved until its last user is gone.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from e2e.cluster.gpu_devices import GPU_GROUP, RESERVED_DEVICE, is_reservation
from e2e.cluster.nodes import GPU_MEMORY_LABEL
from e2e.cluster.resources import CONFIG_MAPS, NODES, PODS, Obj
from e2e.cluster.timeline import Key, Moment, State, replay

FRACTION: Final = "gpu-fraction"
MEMORY: Final = "gpu-memory"
NUMBER: Final = "gpu-fraction-num-devices"
DEVICES: Final = "trainer-kai.dev/gpu-devices"
_CONFIG_MAP: Final = "runai/shared-gpu-configmap"
_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
_FINISHED: Final = ("Succeeded", "Failed")


def sharing_faults(history: Sequence[Moment]) -> list[str]:
    """Return what was wrong in a record of pods, ConfigMaps and nodes."""
    faults: list[str] = []
    bound: set[str] = set()  # uids; pods from before the record are not judged
    for moment, state in replay(history):
        if moment.type == "LISTED":
            bound |= {uid for uid, pod in _pods(state) if _node(pod)}
        if moment.key.resource != PODS:
            continue
        found = [*_release_faults(state, moment)]
        uid = moment.obj["metadata"]["uid"]
        if _node(moment.obj) and moment.type != "DELETED" and uid not in bound:
            bound.add(uid)
            found += _bind_faults(state, moment.obj) if _shares(moment.obj) else []
        faults += [f"{moment.key.name} at {moment.at_s:.2f} s: {it}" for it in found]
    return faults


def _release_faults(state: State, moment: Moment) -> Iterator[str]:
    """Yield the pods that use the GPU of a reservation pod that is gone."""
    if moment.type != "DELETED" or not is_reservation(moment.obj):
        return
    node, group = _node(moment.obj), _labels(moment.obj)[GPU_GROUP]
    is_held = bool(_reservations(state, node, group))
    users = [pod["metadata"]["name"] for _, pod in _pods(state) if _uses(pod, node, group)]
    if users and not is_held:
        yield f"it is gone while {', '.join(users)} use its GPU"


def _bind_faults(state: State, pod: Obj) -> Iterator[str]:
    """Yield what is wrong with a pod that was bound just now."""
    groups = groups_of(pod)
    number = int(_annotations(pod).get(NUMBER, "1"))
    has_plain = GPU_GROUP in _labels(pod)
    if len(groups) != number or has_plain != (number == 1):
        yield f"it has {number} shares, and the labels {_labels(pod)}"
    devices = []
    for group in groups:
        reservations = _reservations(state, _node(pod), group)
        devices += [_annotations(it).get(RESERVED_DEVICE, "") for it in reservations]
        if len(reservations) != 1:
            yield f"{group} has {len(reservations)} reservation pods on {_node(pod)}"
        used = sum(_portion(state, it) for _, it in _pods(state) if _uses(it, _node(pod), group))
        if used > 1:
            yield f"{float(used):.3f} of {group} are used"
    said = _annotations(pod).get(DEVICES, "").split(",")
    if sorted(said) != sorted(devices) or not all(devices):
        yield f"it says it has {said}, and its reservation pods {devices}"
    yield from _config_map_faults(state, pod, said)


def _config_map_faults(state: State, pod: Obj, devices: list[str]) -> Iterator[str]:
    meta = pod["metadata"]
    prefix = _annotations(pod).get(_CONFIG_MAP, "")
    for name in (f"{prefix}-0", f"{prefix}-0-evar"):
        found = state.get(Key(CONFIG_MAPS, meta["namespace"], name))
        if found is None:
            yield f"there is no ConfigMap {name}"
            continue
        owners = [it["uid"] for it in found["metadata"].get("ownerReferences", ())]
        if owners != [meta["uid"]]:
            yield f"the owner of {name} is {owners}"
        visible = found.get("data", {}).get(_VISIBLE)
        if visible != ",".join(devices):
            yield f"{name} has {visible}, and not {devices}"


def leftovers(state: State) -> list[str]:
    """Return what only pods with shares of GPUs need: nothing is left if there are none."""
    found = [f"reservation pod {pod['metadata']['name']}" for pod in _all_reservations(state)]
    found += [f"labels of {pod['metadata']['name']}" for _, pod in _pods(state) if groups_of(pod)]
    maps = [key for key in state if key.resource == CONFIG_MAPS and "-shared-gpu" in key.name]
    return sorted(found + [f"ConfigMap {key.name}" for key in maps])


def groups_of(pod: Obj) -> list[str]:
    """Return the shared GPUs of a pod that uses them, by their ids."""
    if is_reservation(pod):
        return []
    labels = _labels(pod)
    several = [it for name, it in labels.items() if name.startswith(f"{GPU_GROUP}/")]
    return sorted([*several, *([labels[GPU_GROUP]] if GPU_GROUP in labels else [])])


def _shares(pod: Obj) -> bool:
    is_ours = pod["spec"].get("schedulerName") == "kai-scheduler"
    return is_ours and not {FRACTION, MEMORY}.isdisjoint(_annotations(pod))


def _uses(pod: Obj, node: str, group: str) -> bool:
    is_over = pod.get("status", {}).get("phase") in _FINISHED
    return not is_over and _node(pod) == node and group in groups_of(pod)


def _portion(state: State, pod: Obj) -> Fraction:
    """Return a pod's share of each of its GPUs."""
    annotations = _annotations(pod)
    if FRACTION in annotations:
        return Fraction(annotations[FRACTION])
    node = state[Key(NODES, "", _node(pod))]
    return Fraction(int(annotations[MEMORY]), int(node["metadata"]["labels"][GPU_MEMORY_LABEL]))


def _pods(state: State) -> list[tuple[str, Obj]]:
    """Return all pods, with their uids."""
    return [(it["metadata"]["uid"], it) for key, it in state.items() if key.resource == PODS]


def _all_reservations(state: State) -> list[Obj]:
    return [pod for _, pod in _pods(state) if is_reservation(pod)]


def _reservations(state: State, node: str, group: str) -> list[Obj]:
    """Return the reservation pods that hold a GPU."""
    return [
        it
        for it in _all_reservations(state)
        if (_node(it), _labels(it)[GPU_GROUP]) == (node, group)
        and it.get("status", {}).get("phase") not in _FINISHED
        and "deletionTimestamp" not in it["metadata"]
    ]


def _node(pod: Obj) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node


def _labels(pod: Obj) -> dict[str, str]:
    return pod["metadata"].get("labels") or {}


def _annotations(pod: Obj) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}
