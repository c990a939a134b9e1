"""Patch every pod once, as fast as the API server goes; for `benchmarks.watch`, in its own process.

It prints the seconds it took, and for each pod the moments of sending and of the answer, on the
clock that all processes of a machine share.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import Final

from trainer_kai.api.meta import Key
from trainer_kai.api.resources import PODS
from trainer_kai.kube.auth.kubeconfig import find_rest_config
from trainer_kai.kube.client import Client, process_client
from trainer_kai.kube.process.runner import run_loop
from trainer_kai.service.clock import SystemClock

_STAMP: Final = "example.com/sent-ns"


async def main(kubeconfig: str, pods: int, in_flight: int) -> None:
    """Patch, some at a time."""
    clock = SystemClock()
    access = await find_rest_config({}, clock, kubeconfig=kubeconfig)
    left = iter(range(pods))
    moments: dict[str, tuple[int, int]] = {}
    async with process_client(access, clock) as client:
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(_patch(client, left, moments))
        seconds = time.monotonic() - began
    print(json.dumps([seconds, moments]))


async def _patch(client: Client, left: Iterator[int], moments: dict[str, tuple[int, int]]) -> None:
    for number in left:
        sent_ns = time.monotonic_ns()
        fields = {"metadata": {"annotations": {_STAMP: f"{sent_ns}"}}}
        await client.merge_patch(PODS, Key("default", f"pod-{number}"), fields)
        moments[f"pod-{number}"] = sent_ns, time.monotonic_ns()


if __name__ == "__main__":
    run_loop(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
