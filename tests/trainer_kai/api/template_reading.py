"""How the tests tell a pod that is read by likeness from one that is parsed."""

import json
from typing import Any

import msgspec

from trainer_kai.api.decode import decode
from trainer_kai.api.pod import Pod
from trainer_kai.api.pod_text import read_matching

LABEL = "batch.kubernetes.io/job-completion-index"


def learn(text: str) -> None:
    """Show a pod as often as it takes to learn from it."""
    for _ in range(2):
        decode(Pod, text.encode())


def parsed(text: str) -> Pod:
    """Read a pod without any of the shortcuts, and drop the volumes that claim nothing."""
    pod = msgspec.json.decode(text, type=Pod)
    stored = tuple(v for v in pod.spec.volumes if v.persistent_volume_claim or v.ephemeral)
    spec = msgspec.structs.replace(pod.spec, volumes=stored)
    return msgspec.structs.replace(pod, spec=spec)


def compact(obj: Any) -> str:
    return json.dumps(obj, separators=(",", ":"), ensure_ascii=False)


def is_matched(text: str) -> bool:
    data = text.encode()
    return read_matching(data, data.find(b"{", 1), len(data) - 1, alone=True) is not None
