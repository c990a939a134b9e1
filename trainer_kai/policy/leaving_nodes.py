"""Which nodes leave the cluster, by their taints and conditions, as the settings list them."""

from typing import Final, NamedTuple

from trainer_kai.api.cluster_kinds import Node
from trainer_kai.api.names import TERMINATION_TAINTS


class LeavingSigns(NamedTuple):
    """What marks a node that leaves: `KEY` or `KEY=VALUE`, and `TYPE` (True) or `TYPE=STATUS`."""

    taints: tuple[str, ...] = TERMINATION_TAINTS
    conditions: tuple[str, ...] = ()

    def cause(self, node: Node) -> str:
        """Return why a node leaves, as a clause about "it"; "" if it stays."""
        for taint in node.spec.taints:
            text = f"{taint.key}={taint.value}"
            if taint.key in self.taints or text in self.taints:
                return f"it has the taint {text if taint.value else taint.key}"
        for condition in node.status.conditions if self.conditions else ():
            text = f"{condition.type}={condition.status}"
            is_plain = condition.status == "True" and condition.type in self.conditions
            if is_plain or text in self.conditions:
                return f"its condition {condition.type} is {condition.status}"
        return ""


DEFAULT_SIGNS: Final = LeavingSigns()
