"""Answers reviews of new pods: prepares their shares of GPUs, and hides GPUs from containers."""

import secrets
import string
from collections.abc import Callable
from typing import Final, NamedTuple

from trainer_kai.errors import FieldError
from webhook.admission.review import AdmissionRequest, AdmissionResponse
from webhook.admission.validation_result import all_denied
from webhook.rules.pods.device_access import restrict_devices
from webhook.rules.pods.gpu_share import ShareRules, prepare_share, share_container
from webhook.rules.pods.new_pod import read_new_pod

_LETTERS: Final = string.ascii_lowercase + string.digits
_RANDOM: Final = 7  # characters of the name of a ConfigMap


class GpuAccessRules(NamedTuple):
    """The settings that decide which GPUs the containers of a pod see."""

    scheduler_name: str
    shares: ShareRules
    restricts_devices: bool = False


def new_random_text() -> str:
    """Return a text that no other pod has, as a part of the names of its ConfigMaps."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_RANDOM))


class NewPodHandler:
    """Answers the reviews of new pods."""

    def __init__(
        self, rules: GpuAccessRules, new_random: Callable[[], str] = new_random_text
    ) -> None:
        self._rules = rules
        self._new_random = new_random

    async def answer(self, request: AdmissionRequest) -> AdmissionResponse:
        """Answer the review of a pod; nothing is read for it."""
        pod = read_new_pod(request, self._rules.scheduler_name)
        if isinstance(pod, AdmissionResponse):
            return pod
        faults = []
        shares = self._rules.shares
        sharing = share_container(pod) if shares.is_enabled or shares.is_by_kai else None
        if isinstance(sharing, FieldError):
            faults += [sharing] if shares.is_enabled else []
            sharing = None
        elif sharing is not None and shares.is_enabled:
            prepare_share(pod, sharing, shares, self._new_random)
        if self._rules.restricts_devices:
            faults += restrict_devices(pod, sharing)
        if faults:
            return all_denied(faults).response()
        return AdmissionResponse(pod.patch.operations)
