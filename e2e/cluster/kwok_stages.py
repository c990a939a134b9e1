"""What KWOK does to nodes, pods and volumes, told by annotations on the pod. Pure.

KWOK's own stages finish every pod of a Job the moment it runs, so nobody ever sees a gang running.
Here a bound pod runs and is ready at once, and then stays so, unless it says otherwise:

    ready-seconds: "10s"   it runs at once, but is ready only after this long
    run-seconds: "5s"      once ready, it succeeds after this long
    fail-seconds: "5s"     once ready, it fails after this long (and `run-seconds` is ignored)

The unit may be left out. The kubelets of `REFUSING_NODES` refuse every pod, which fails before it
runs; those of `SILENT_NODES` never start one. A pod that reserves a GPU begins when `gpu_agents`
lets it, which alone knows whether its node has a device for it; it takes 0.2 s to end, so that
there is a time in which its GPU is not free yet. KWOK draws one of the stages that match a pod by
lot, so no two of these may ever match the same pod; a test holds that.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

from e2e.cluster.gpu_devices import RESERVATIONS
from e2e.cluster.resources import Obj

READY_SECONDS: Final = "ready-seconds"
RUN_SECONDS: Final = "run-seconds"
FAIL_SECONDS: Final = "fail-seconds"
REFUSING_NODES: Final = ("broken-0", "broken-1", "broken-2")  # each with a reason of its own
SILENT_NODES: Final = ("asleep-0",)
WAITING_CLASS: Final = "kwok-local"  # its volumes wait for a pod's node and then stay on it

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_DEFAULT_CLASS = "kwok-volume"
_END_MS: Final = 200
_ANNOTATED: Final = (READY_SECONDS, RUN_SECONDS, FAIL_SECONDS)
_READY: Final = '.status.conditions.[] | select( .type == "Ready" ) | .status'


def all_stages(kwok: Mapping[str, Obj]) -> list[Obj]:
    """Return the stages to run KWOK with, made from the ones it ships."""
    as_shipped = ("node-initialize", "node-heartbeat-with-lease")
    volumes = ("pv-bind", "pv-delete", "pvc-delete", "pvc-provision")
    return [
        *(kwok[name] for name in as_shipped),
        *_delete_stages(kwok["pod-delete"]),
        *_pod_stages(kwok),
        *(kwok[name] for name in volumes),
        *(_for_waiting_class(kwok[name]) for name in volumes),
    ]


def storage_classes(kwok: Mapping[str, Obj]) -> list[Obj]:
    """Return KWOK's default class and one that waits for the first consumer."""
    default = kwok[_DEFAULT_CLASS]
    waiting = {
        **{key: default[key] for key in ("apiVersion", "kind", "provisioner", "reclaimPolicy")},
        "metadata": {"name": WAITING_CLASS},
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    return [default, waiting]


def _delete_stages(shipped: Obj) -> list[Obj]:
    """Return the stage that deletes pods, and the one for pods that reserve GPUs."""
    others, reserving = copy.deepcopy(shipped), copy.deepcopy(shipped)
    others["spec"]["selector"]["matchExpressions"].append(_RESERVES_NONE)
    reserves = {**_RESERVES_NONE, "operator": "In"}
    reserving["metadata"]["name"] = "reservation-pod-delete"
    reserving["spec"]["selector"]["matchExpressions"].append(reserves)
    reserving["spec"]["delay"] = {"durationMilliseconds": _END_MS}
    return [others, reserving]


def _pod_stages(kwok: Mapping[str, Obj]) -> list[Obj]:
    is_ready = _matches(_READY, "In", "True")
    is_set = {name: _matches(f'.metadata.annotations["{name}"]', "Exists") for name in _ANNOTATED}
    is_unset = {name: {**match, "operator": "DoesNotExist"} for name, match in is_set.items()}
    return [
        _stage(kwok["pod-ready"], "pod-ready", [*_BEGINS, _IS_ADMITTED, is_unset[READY_SECONDS]]),
        _stage(
            kwok["pod-ready"],
            "pod-refused",
            [*_BEGINS, _IS_REFUSED],
            template=lambda _: _REFUSED,
        ),
        _stage(
            kwok["pod-ready"],
            "pod-started",
            [*_BEGINS, _IS_ADMITTED, is_set[READY_SECONDS]],
            template=_not_ready_yet,
        ),
        _stage(
            kwok["pod-ready"],
            "pod-ready-later",
            [_IS_RUNNING, {**is_ready, "operator": "NotIn"}, is_set[READY_SECONDS]],
            delay=READY_SECONDS,
            template=lambda _: _READY_LATER,
        ),
        _stage(
            kwok["pod-complete"],
            "pod-complete",
            [_IS_RUNNING, is_ready, is_set[RUN_SECONDS], is_unset[FAIL_SECONDS]],
            delay=RUN_SECONDS,
        ),
        _stage(
            kwok["pod-container-running-failed"],
            "pod-failed",
            [_IS_RUNNING, is_ready, is_set[FAIL_SECONDS]],
            delay=FAIL_SECONDS,
        ),
    ]


def _stage(
    shipped: Obj,
    name: str,
    matches: list[Obj],
    *,
    delay: str | None = None,
    template: Callable[[str], str] = str,
) -> Obj:
    """Return a stage that writes what a shipped one writes, for other pods, after another time."""
    seconds = f'.metadata.annotations["{delay}"] | rtrimstr("s") + "s"'
    written = template(shipped["spec"]["next"]["statusTemplate"])
    return {
        **{key: shipped[key] for key in ("apiVersion", "kind")},
        "metadata": {"name": name},
        "spec": {
            "resourceRef": shipped["spec"]["resourceRef"],
            "selector": {"matchExpressions": [_IS_WANTED, *matches]},
            **({"delay": {"durationFrom": {"expressionFrom": seconds}}} if delay else {}),
            "next": {"statusTemplate": written},
        },
    }


def _matches(key: str, operator: str, *values: str) -> Obj:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


def _not_ready_yet(template: str) -> str:
    """Return the status of a pod that runs and is not ready."""
    lines = template.splitlines()
    for at, line in enumerate(lines):
        if line.strip() in ("type: Ready", "type: ContainersReady"):
            lines[at - 1] = lines[at - 1].replace('"True"', '"False"')
    containers = lines.index("containerStatuses:")
    for at in range(containers, lines.index("initContainerStatuses:")):
        lines[at] = lines[at].replace("ready: true", "ready: false")
    return "\n".join(lines)


_IS_WANTED: Final = _matches(".metadata.deletionTimestamp", "DoesNotExist")
_RESERVES_NONE: Final = _matches(".metadata.namespace", "NotIn", RESERVATIONS)
_BEGINS: Final = (_matches(".status.phase", "In", "Pending"), _RESERVES_NONE)
_IS_REFUSED: Final = _matches(".spec.nodeName", "In", *REFUSING_NODES)
_IS_ADMITTED: Final = _matches(".spec.nodeName", "NotIn", *REFUSING_NODES, *SILENT_NODES)
_REFUSED: Final = """
phase: Failed
message: Pod was rejected
{{ if eq .spec.nodeName "broken-0" }}
reason: OutOfnvidia.com/gpu
{{ else if eq .spec.nodeName "broken-1" }}
reason: UnexpectedAdmissionError
{{ else }}
reason: TopologyAffinityError
{{ end }}
"""
_IS_RUNNING: Final = _matches(".status.phase", "In", "Running")
_READY_LATER: Final = """
{{ $now := Now }}
conditions:
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .status.containerStatuses }}
- image: {{ .image | Quote }}
  name: {{ .name | Quote }}
  ready: true
  restartCount: 0
  state:
    running:
      startedAt: {{ .state.running.startedAt | Quote }}
{{ end }}
"""


def _for_waiting_class(stage: Obj) -> Obj:
    """Return a volume stage for the class that waits: only with a chosen node, and tied to it."""
    text: Obj = _replaced(copy.deepcopy(stage), _DEFAULT_CLASS, WAITING_CLASS)
    text["metadata"]["name"] += "-waiting"
    if stage["metadata"]["name"] == "pvc-provision":
        chosen = f"'{SELECTED_NODE}' in self.metadata.annotations"
        has_any = "has(self.metadata.annotations)"
        text["spec"]["selector"]["matchExpressions"].append(
            {"cel": {"expression": f"{has_any} && {chosen}"}}
        )
        apply = text["spec"]["steps"][0]["apply"]
        apply["template"] = apply["template"].rstrip() + _NODE_AFFINITY
    return text


_NODE_AFFINITY = f"""
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions:
        - key: kubernetes.io/hostname
          operator: In
          values:
          - {{{{ index .metadata.annotations "{SELECTED_NODE}" | Quote }}}}
"""


def _replaced(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, old, new) for item in value]
    return value.replace(old, new) if isinstance(value, str) else value
