"""Plays kubelet and agent for pods that reserve GPUs: it runs them and writes their device on them.

KWOK leaves these pods alone. On a node without a free device such a pod fails as a kubelet lets it
fail. Pods with whole GPUs are KWOK's and run in any case. All pods that come to a node with too few
free devices are reported, one JSON line each, in the file that `--refusals` names.

    python -m e2e.cluster.gpu_agents --kubeconfig FILE [--delay SECONDS] [--refusals FILE]

It is a process of its own, so that it neither slows down nor waits for what it is used by.
"""

import argparse
import asyncio
import base64
import json
import ssl
import sys
from collections import defaultdict
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import aiohttp

from e2e.cluster.api import Api, ApiError
from e2e.cluster.gpu_devices import (
    AGENT,
    RESERVED_DEVICE,
    SILENT,
    DeviceLedger,
    device_name,
    is_reservation,
)
from e2e.cluster.resources import NODES, PODS, Obj, Resource

_ON_NODES: Final = {"fieldSelector": "spec.nodeName!="}
_AGAIN_S: Final = 0.1
_GONE: Final = (404, 409)  # the pod is gone, or another one has its name
_NO_DEVICE: Final = {
    "phase": "Failed",
    "reason": "UnexpectedAdmissionError",
    "message": "Pod was rejected: Allocate failed due to requested number of devices unavailable"
    " for nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected",
}


class GpuAgents:
    """The kubelets and agents of all nodes."""

    def __init__(self, api: Api, delay_s: float = 0.0, refusals: Path | None = None) -> None:
        self._api = api
        self._delay_s = delay_s
        self._refusals = refusals
        self._ledger = DeviceLedger()
        self._reported = 0
        self._silent: set[str] = set()  # nodes
        self._waiting: defaultdict[str, dict[str, Obj]] = defaultdict(dict)  # node -> uid -> pod
        self._devices: dict[str, str] = {}  # by uid of a reservation pod
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Do it for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(NODES, {}))
            group.create_task(self._follow(PODS, _ON_NODES))

    async def _follow(self, resource: Resource, query: dict[str, str]) -> None:
        """List and watch, and begin anew whenever that ends."""
        while True:
            try:
                listed, version = await self._api.list(resource, **query)
                self._replace(resource, listed)
                watch = {**query, "watch": "true", "resourceVersion": version}
                async with self._api.stream(resource.path(), watch) as lines:
                    async for line in lines:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        self._change(resource, event["type"], event["object"])
            except (aiohttp.ClientError, ApiError, OSError, ValueError):
                pass  # it is restarted, or its history is gone
            await asyncio.sleep(_AGAIN_S)

    def _replace(self, resource: Resource, listed: list[Obj]) -> None:
        """Take over a list: a pod that is not in it is gone; one with a device keeps it."""
        if resource == PODS:
            here = {it["metadata"]["uid"] for it in listed}
            for uid in [it for it in self._ledger.pods if it not in here]:
                self._forget(uid)
        for obj in sorted(listed, key=_age):
            self._change(resource, "ADDED", obj)

    def _change(self, resource: Resource, kind: str, obj: Obj) -> None:
        if resource == NODES:
            self._change_node(kind, obj)
        elif kind == "DELETED":
            self._forget(obj["metadata"]["uid"])
        else:
            self._change_pod(obj)
        self._report()

    def _change_node(self, kind: str, node: Obj) -> None:
        name = node["metadata"]["name"]
        if kind == "DELETED":
            self._ledger.remove_node(name)
            return
        is_silent = node["metadata"].get("annotations", {}).get(AGENT) == SILENT
        (self._silent.add if is_silent else self._silent.discard)(name)
        for pod in self._ledger.set_node(node):
            self._change_pod(pod)
        if not is_silent:
            for pod in self._waiting.pop(name, {}).values():
                self._start(self._speak(pod))

    def _change_pod(self, pod: Obj) -> None:
        devices = self._ledger.set_pod(pod)
        if devices is None or not is_reservation(pod):
            return
        if not devices:
            self._start(self._patch(pod, {}, _NO_DEVICE))
            return
        self._devices[pod["metadata"]["uid"]] = device_name(pod["spec"]["nodeName"], devices[0])
        if RESERVED_DEVICE not in pod["metadata"].get("annotations", {}):
            self._start(self._run_pod(pod))

    def _forget(self, uid: str) -> None:
        self._ledger.remove_pod(uid)
        self._devices.pop(uid, None)
        for pods in self._waiting.values():
            pods.pop(uid, None)

    async def _run_pod(self, pod: Obj) -> None:
        status = None if pod["status"].get("phase") == "Running" else _running(pod)
        if self._delay_s or pod["spec"]["nodeName"] in self._silent:
            await self._patch(pod, {}, status)
            await asyncio.sleep(self._delay_s)
            status = None
        await self._speak(pod, status)

    async def _speak(self, pod: Obj, status: Obj | None = None) -> None:
        """Write the device of a pod on it, unless the agents of its node are silent."""
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        if uid not in self._devices:
            return
        if node in self._silent:
            self._waiting[node][uid] = pod
            return
        await self._patch(pod, {"annotations": {RESERVED_DEVICE: self._devices[uid]}}, status)

    async def _patch(self, pod: Obj, metadata: Obj, status: Obj | None = None) -> None:
        """Merge into this very pod: another one of its name is left alone."""
        meta = pod["metadata"]
        patch: Obj = {"metadata": {"uid": meta["uid"], **metadata}}
        if status is not None:
            patch["status"] = status
        part = "" if status is None else "status"
        while True:
            try:
                await self._api.merge(PODS, meta["namespace"], meta["name"], patch, part)
            except ApiError as error:
                if error.status in _GONE:
                    return
            except (aiohttp.ClientError, OSError):
                pass
            else:
                return
            await asyncio.sleep(_AGAIN_S)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _report(self) -> None:
        new = self._ledger.refusals[self._reported :]
        self._reported += len(new)
        if new and self._refusals is not None:
            with self._refusals.open("a") as file:
                file.writelines(f"{json.dumps(it._asdict())}\n" for it in new)


def _age(obj: Obj) -> tuple[bool, str, str]:
    meta = obj["metadata"]
    has_no_device = RESERVED_DEVICE not in meta.get("annotations", {})
    return has_no_device, meta["creationTimestamp"], meta["name"]


def _running(pod: Obj) -> Obj:
    """Return the status of a pod of which all containers run."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    state = {"running": {"startedAt": now}}
    return {
        "phase": "Running",
        "startTime": now,
        "conditions": [
            {"type": it, "status": "True", "lastTransitionTime": now}
            for it in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": it["name"],
                "image": it["image"],
                "imageID": "",
                "ready": True,
                "restartCount": 0,
                "state": state,
            }
            for it in pod["spec"]["containers"]
        ],
    }


def _connect(kubeconfig: Path) -> Api:
    """Return the connection that a kubeconfig of the chain describes."""
    config = json.loads(kubeconfig.read_text())  # JSON, as the chain writes it
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    tls = ssl.create_default_context(cadata=authority)
    return Api(cluster["server"], user["token"], tls)


async def _run(options: argparse.Namespace) -> None:
    async with _connect(options.kubeconfig) as api:
        await GpuAgents(api, options.delay, options.refusals).run()


def main(arguments: list[str]) -> int:
    """Run until it is ended."""
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster.gpu_agents", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of the administrator")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds until a device is known")
    parser.add_argument("--refusals", type=Path, help="the file of pods that got no device")
    asyncio.run(_run(parser.parse_args(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
