"""The pods on nodes, of which a list needs only the PodGroup and the node."""

from typing import Final

import msgspec

from trainer_kai.api.meta import Meta
from trainer_kai.api.names import GANG
from trainer_kai.api.pod import TERMINAL_PHASES
from trainer_kai.api.resources import PODS
from trainer_kai.kube.rest.request import Selection


class _Spec(msgspec.Struct, frozen=True, rename="camel", kw_only=True, gc=False):
    node_name: str = ""


class _Status(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    phase: str = ""


class PlacedPod(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def counts(self) -> bool:
        return bool(self.spec.node_name) and self.status.phase not in TERMINAL_PHASES


PLACED_PODS: Final = PODS.with_struct(PlacedPod)
OF_WORKLOADS: Final = Selection(labels=GANG, fields="spec.nodeName!=")
