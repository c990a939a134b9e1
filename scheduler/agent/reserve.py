"""Write the device of a reservation pod onto that pod, where the scheduler reads it."""

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from structlog.typing import FilteringBoundLogger

from trainer_kai.api.meta import Key
from trainer_kai.api.names import RESERVED_DEVICE
from trainer_kai.api.resources import PODS
from trainer_kai.errors import ConfigError, FieldError, TrainerKaiError
from trainer_kai.kube.client import Client
from trainer_kai.kube.rest.response import ApiError, is_retryable
from trainer_kai.kube.workqueue import Backoff

A = TypeVar("A")

_FIRST_WAIT_S: Final = 1.0
_LONGEST_WAIT_S: Final = 30.0


class OwnPod(NamedTuple):
    key: Key
    uid: str  # "" if the pod does not tell it: then it is that of the first answer


class PodReplaced(TrainerKaiError):
    """Another pod has the name of ours, so our device is not its device."""


def own_pod(environ: Mapping[str, str]) -> OwnPod:
    missing = [name for name in ("POD_NAME", "POD_NAMESPACE") if not environ.get(name)]
    if missing:
        message = "is not set: the container needs it from a fieldRef to the metadata of its pod"
        raise ConfigError(FieldError(name, message) for name in missing)
    key = Key(environ["POD_NAMESPACE"], environ["POD_NAME"])
    return OwnPod(key, environ.get("POD_UID", ""))


async def reserve(client: Client, pod: OwnPod, device: str, log: FilteringBoundLogger) -> None:
    found = (await _answered(client, lambda: client.get(PODS, pod.key), log)).metadata
    if pod.uid and found.uid != pod.uid:
        message = f"pod {pod.key} has the uid {found.uid}, and ours {pod.uid}: it was recreated"
        raise PodReplaced(message)
    is_missing = found.annotations.get(RESERVED_DEVICE) != device
    if is_missing:
        fields = {"metadata": {"uid": found.uid, "annotations": {RESERVED_DEVICE: device}}}
        await _answered(client, lambda: client.merge_patch(PODS, pod.key, fields), log)
    log.info("device reserved", device=device, pod=str(pod.key), patched=is_missing)


async def _answered(
    client: Client, send: Callable[[], Awaitable[A]], log: FilteringBoundLogger
) -> A:
    """Send a request until the API server answers it, however long it is away."""
    backoff = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S, random.random)
    while True:
        try:
            return await send()
        except ApiError as error:
            if not is_retryable(error):
                raise
            wait_s = backoff.next_s(error.retry_after_s)
            log.warning("api server does not answer", error=str(error), wait_s=round(wait_s, 1))
        await client.clock.sleep(wait_s)
