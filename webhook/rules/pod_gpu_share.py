"""What is written on a pod that requests shares of GPUs, in the form of KAI's admission.

The scheduler chooses the GPUs later, and tells them the container by two ConfigMaps. Here the
container is made to read them, and the annotation with the prefix of their names is set. A prefix
that a user set is replaced: the ConfigMaps of another pod could have it.

Another webhook may add containers after us, so that ours is called again. Then the container that
was prepared keeps the share, and only what depends on its number is written again. A pod with a
prefix of the user is prepared anew, so that its container is named the first time.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from trainer_kai.api.gpu_requests import unknown_container_fault
from trainer_kai.api.names import GPU_CONFIG_MAP, GPU_CONTAINER
from trainer_kai.api.syntax import dns_subdomain_fault
from trainer_kai.errors import FieldError
from trainer_kai.policy.pods.gpu_share_config_maps import (
    GPU_PORTION,
    MEMORY_LIMIT,
    NUMBER_OF_GPUS,
    VISIBLE_DEVICES,
    GpuConfigMaps,
    SharingContainer,
    config_map_prefix,
    is_config_map_prefix,
    sharing_container,
)
from webhook.admission.patch import FieldPath
from webhook.rules.pod_devices import Entry, NewPod, container_path

_ANNOTATIONS: Final[FieldPath] = ("metadata", "annotations")
_VOLUMES: Final[FieldPath] = ("spec", "volumes")
_TAIL: Final = re.compile("-i?[0-9]+(?:-evar)?")
_NOT_IN_NAMES: Final = re.compile("[^a-z0-9]+")


class ShareRules(NamedTuple):
    """The settings that decide what is written on pods with shares of GPUs."""

    is_enabled: bool = True  # our scheduler binds such pods
    is_by_kai: bool = False  # admission of KAI prepares them, and is called after ours
    runtime_class: str = ""  # "" means none
    limits_memory: bool = False  # the container reads the limit of its share of GPU memory


def share_container(pod: NewPod) -> SharingContainer | FieldError | None:
    """Return the container that gets the shares of a pod, or why there is none; None if no pod has.

    A pod without containers is left to the API server.
    """
    if not pod.requests_shares:
        return None
    spec = pod.spec()
    found = sharing_container(pod.annotations, spec)
    if found is None:
        names = [it.name for it in (*spec.init_containers, *spec.containers)]
        fault = unknown_container_fault(pod.annotations[GPU_CONTAINER], names)
        return FieldError(f"metadata.annotations[{GPU_CONTAINER}]", fault or "")
    prefix = _earlier_prefix(pod)
    if prefix:
        found = next((it for it, _ in pod.containers() if _is_prepared(pod, it, prefix)), found)
    return found if pod.patch.get(container_path(found)) is not None else None


def prepare_share(
    pod: NewPod, container: SharingContainer, rules: ShareRules, new_random: Callable[[], str]
) -> None:
    given, prefix = _given_prefix(pod), _earlier_prefix(pod)
    is_copied = pod.managers.is_recorded and pod.managers.sets_annotation(GPU_CONFIG_MAP)
    if not prefix:
        prefix = config_map_prefix(_base(pod.base_names), new_random(), container)
    if is_copied or container != sharing_container(pod.annotations, pod.spec()):
        name = pod.patch.get((*container_path(container), "name"))
        pod.patch.set((*_ANNOTATIONS, GPU_CONTAINER), name)
    names = GpuConfigMaps.of(prefix, container)
    pod.patch.set((*_ANNOTATIONS, GPU_CONFIG_MAP), prefix)
    for place, _ in pod.containers():
        is_chosen = place == container
        env = _env(names, limits_memory=rules.limits_memory) if is_chosen else []
        env_from = [_env_from(names)] if is_chosen else []
        path = container_path(place)
        _write(pod, (*path, "env"), env, given)
        _write(pod, (*path, "envFrom"), env_from, given)
    _write(pod, _VOLUMES, [_volume(names)], given)
    if rules.runtime_class and not pod.pod.spec.runtime_class_name:
        pod.patch.set(("spec", "runtimeClassName"), rules.runtime_class)


def _given_prefix(pod: NewPod) -> str:
    """Return the prefix that a pod comes with; "" for a text that is none."""
    prefix = pod.annotations.get(GPU_CONFIG_MAP, "")
    return prefix if is_config_map_prefix(prefix) else ""


def _earlier_prefix(pod: NewPod) -> str:
    """Return the prefix that an earlier review of the same pod wrote; "" if there was none.

    The API server records what the user sent, and not what webhooks write. If nothing is recorded,
    the prefix counts if a container reads the ConfigMaps.
    """
    prefix = _given_prefix(pod)
    if pod.managers.is_recorded:
        return "" if pod.managers.sets_annotation(GPU_CONFIG_MAP) else prefix
    is_read = any(_is_prepared(pod, place, prefix) for place, _ in pod.containers())
    return prefix if prefix and is_read else ""


def _is_prepared(pod: NewPod, place: SharingContainer, prefix: str) -> bool:
    return any(
        it.get("name") == VISIBLE_DEVICES and _belongs(it, prefix)
        for it in pod.entries((*container_path(place), "env"))
    )


def _base(names: Iterable[str]) -> str:
    """Return the name of the owner, or of the pod, as a part of a name of a ConfigMap."""
    name = next(filter(None, names), "").rstrip("-")
    if dns_subdomain_fault(name) is None:
        return name
    return _NOT_IN_NAMES.sub("-", name.lower()).strip("-") or "pod"


def _env(names: GpuConfigMaps, *, limits_memory: bool) -> list[Entry]:
    keys = [VISIBLE_DEVICES, NUMBER_OF_GPUS, GPU_PORTION]
    found = [_variable(key, {"name": names.capabilities, "key": key}) for key in keys]
    if limits_memory:
        limit = {"name": names.capabilities, "key": MEMORY_LIMIT, "optional": True}
        found.append(_variable(MEMORY_LIMIT, limit))
    return found


def _variable(name: str, reference: Entry) -> Entry:
    return {"name": name, "valueFrom": {"configMapKeyRef": reference}}


def _env_from(names: GpuConfigMaps) -> Entry:
    return {"configMapRef": {"name": names.direct_env, "optional": False}}


def _volume(names: GpuConfigMaps) -> Entry:
    return {"name": names.volume, "configMap": {"name": names.capabilities}}


def _write(pod: NewPod, path: FieldPath, wanted: Sequence[Entry], prefix: str) -> None:
    """Append entries to a list; they replace those with their names and those of a prefix."""
    names = [it["name"] for it in wanted if "name" in it]
    others: list[Entry] = []
    ours: list[Entry] = []
    for entry in pod.entries(path):
        is_ours = entry.get("name") in names or (prefix and _belongs(entry, prefix))
        (ours if is_ours else others).append(entry)
    is_written = all(any(_contains(entry, it) for entry in ours) for it in wanted)
    if is_written and len(ours) == len(wanted):
        return
    if ours:
        pod.patch.set(path, [*others, *wanted])
        return
    for entry in wanted:
        pod.patch.append(path, entry)


def _belongs(entry: Entry, prefix: str) -> bool:
    """Say whether an entry of env, envFrom or volumes refers to a ConfigMap with a prefix."""
    value_from = entry.get("valueFrom")
    inner = value_from if isinstance(value_from, dict) else entry
    for field in ("configMapKeyRef", "configMapRef", "configMap"):
        reference = inner.get(field)
        name = reference.get("name") if isinstance(reference, dict) else None
        if isinstance(name, str) and name.startswith(f"{prefix}-"):
            return bool(_TAIL.fullmatch(name, len(prefix)))
    return False


def _contains(given: Any, wanted: Any) -> bool:
    """Say whether an entry is the wanted one; the API server may have added defaults."""
    if isinstance(wanted, Mapping) and isinstance(given, Mapping):
        return all(name in given and _contains(given[name], it) for name, it in wanted.items())
    return bool(given == wanted)
