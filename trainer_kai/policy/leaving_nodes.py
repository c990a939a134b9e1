"""Which nodes leave the cluster, by their taints and conditions, as the settings list them."""

from typing import Final, NamedTuple

from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.names import TERMINATION_TAINTS


class LeavingSign(NamedTuple):
    """Why a node leaves, as a clause about "it"; whether it will go, or is only said to be ill."""

    cause: str
    is_notice: bool


class LeavingSigns(NamedTuple):
    """What marks a node that leaves: `KEY` or `KEY=VALUE`, and `TYPE` (True) or `TYPE=STATUS`."""

    taints: tuple[str, ...] = TERMINATION_TAINTS
    conditions: tuple[str, ...] = ()

    def of(self, node: Node) -> LeavingSign | None:
        for taint in node.spec.taints:
            text = f"{taint.key}={taint.value}"
            if taint.key in self.taints or text in self.taints:
                cause = f"it has the taint {text if taint.value else taint.key}"
                return LeavingSign(cause, is_notice=True)
        for condition in node.status.conditions if self.conditions else ():
            text = f"{condition.type}={condition.status}"
            is_plain = condition.status == "True" and condition.type in self.conditions
            if is_plain or text in self.conditions:
                cause = f"its condition {condition.type} is {condition.status}"
                return LeavingSign(cause, is_notice=False)
        return None


DEFAULT_SIGNS: Final = LeavingSigns()
