"""A snapshot of KAI's scheduler: `snapshot.zip` with one `snapshot.json`.

Its objects have no kind fields, and its scheduler configuration is read like a SchedulingShard. The
unpacked size is limited, independent of the size in the archive.
"""

import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from trainer_kai.api import resources
from trainer_kai.api.names import NODE_TOPOLOGY, RESOURCE
from trainer_kai.api.scheduler_names import ACTIONS
from trainer_kai.cli.input.documents import Document
from trainer_kai.cli.input.kinds import BIND_REQUESTS, CONFIGS
from trainer_kai.errors import ConfigError, FieldError

MAX_BYTES: Final = 1024 * 1024 * 1024
_MEMBER: Final = "snapshot.json"
_KNOWN_PARTS: Final = {"config", "rawObjects", "schedulerParams"}
_ARCHIVE_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OSError,
)
_KIND_OF_LIST: Final = {
    "bindRequests": (BIND_REQUESTS.api_version, BIND_REQUESTS.kind),
    "configMaps": ("v1", "ConfigMap"),
    "deviceClasses": (f"{RESOURCE}/v1", "DeviceClass"),
    "nodeResourceTopologies": (f"{NODE_TOPOLOGY}/v1alpha2", "NodeResourceTopology"),
    "nodes": (resources.NODES.api_version, resources.NODES.kind),
    "persistentVolumeClaims": (resources.PVCS.api_version, resources.PVCS.kind),
    "persistentVolumes": (resources.PVS.api_version, resources.PVS.kind),
    "podGroups": (resources.PODGROUPS.api_version, resources.PODGROUPS.kind),
    "pods": (resources.PODS.api_version, resources.PODS.kind),
    "priorityClasses": (resources.PRIORITY_CLASSES.api_version, resources.PRIORITY_CLASSES.kind),
    "queues": (resources.QUEUES.api_version, resources.QUEUES.kind),
    "resourceClaims": (f"{RESOURCE}/v1", "ResourceClaim"),
    "resourceSlices": (f"{RESOURCE}/v1", "ResourceSlice"),
    "storageClasses": (resources.STORAGE_CLASSES.api_version, resources.STORAGE_CLASSES.kind),
    "topologies": (resources.TOPOLOGIES.api_version, resources.TOPOLOGIES.kind),
}


def unpack(file: str, data: bytes, max_bytes: int = MAX_BYTES) -> Iterator[Document]:
    """Yield the objects of a snapshot, and its configuration as a SchedulerConfig object."""
    whole = _read(file, data, max_bytes)
    objects = whole.get("rawObjects")
    if not isinstance(objects, Mapping):
        raise _fault(file, f"{_MEMBER} has no rawObjects: it is not a snapshot of KAI's scheduler")
    for name in sorted((whole.keys() - _KNOWN_PARTS) | (objects.keys() - _KIND_OF_LIST.keys())):
        yield Document(file, {"apiVersion": _MEMBER, "kind": name})  # reported as ignored
    for name, (version, kind) in _KIND_OF_LIST.items():
        items = objects.get(name) or []
        if not isinstance(items, list):
            raise _fault(file, f"rawObjects.{name} must be a list")
        for item in items:
            if not isinstance(item, dict):
                raise _fault(file, f"rawObjects.{name} has an item that is not an object")
            yield Document(file, {**item, "apiVersion": version, "kind": kind})
    yield Document(file, _config(whole.get("config"), whole.get("schedulerParams")))


def _read(file: str, data: bytes, max_bytes: int) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open(_MEMBER) as member:
            text = member.read(max_bytes + 1)
        if len(text) > max_bytes:
            raise _fault(file, f"{_MEMBER} is larger than {max_bytes // 1024 // 1024} MiB")
        whole = msgspec.json.decode(text)
    except KeyError as error:
        raise _fault(file, f"has no {_MEMBER}: it is not a snapshot of KAI's scheduler") from error
    except _ARCHIVE_ERRORS as error:
        raise _fault(file, f"cannot be unpacked: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _fault(file, f"{_MEMBER} is not valid JSON: {error}") from error
    if not isinstance(whole, dict):
        raise _fault(file, f"{_MEMBER} is not an object")
    return whole


def _fault(file: str, message: str) -> ConfigError:
    return ConfigError([FieldError(file, message)])


def _config(config: Any, params: Any) -> dict[str, Any]:
    """Return the scheduler's configuration as a SchedulingShard."""
    config = config if isinstance(config, Mapping) else {}
    params = params if isinstance(params, Mapping) else {}
    spec: dict[str, Any] = {"args": {}}
    if params.get("schedulerName"):
        spec["args"]["scheduler-name"] = params["schedulerName"]
    max_preemptees = params.get("maxNumberConsolidationPreemptees")
    if isinstance(max_preemptees, int):
        spec["args"]["max-consolidation-preemptees"] = str(max_preemptees)
    actions = config.get("actions")
    if isinstance(actions, str) and actions.strip():
        names = {name.strip() for name in actions.split(",")} - {""}
        known = sorted({*names, *ACTIONS})
        spec["actions"] = {name: {"enabled": name in names} for name in known}
    plugins = [*_plugins(config.get("tiers"))]
    if plugins:
        spec |= {"plugins": dict(plugins), "only": True}
    kind = {"apiVersion": CONFIGS.api_version, "kind": CONFIGS.kind}
    return {**kind, "metadata": {"name": _MEMBER}, "spec": spec}


def _plugins(tiers: Any) -> Iterable[tuple[str, dict[str, Any]]]:
    for tier in tiers if isinstance(tiers, list) else ():
        for plugin in tier.get("plugins") or () if isinstance(tier, Mapping) else ():
            if isinstance(plugin, Mapping) and plugin.get("name"):
                yield str(plugin["name"]), {"arguments": plugin.get("arguments") or {}}
