"""Where PodGroups would start on an empty cluster, as text and as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from trainer_kai.api.text import counted, listed_names
from trainer_kai.cli.output.table import MAX_WIDTH, wrapped_lines

_MOST_LISTED: Final = 16


class Placement(NamedTuple):
    """Where one PodGroup starts, or why it does not."""

    podgroup: str
    pods: tuple[Mapping[str, Any], ...] = ()  # pod, node, and claims with their devices
    reserved: tuple[Mapping[str, Any], ...] = ()  # node and count, for pods that come later
    level: str = ""  # of the domains; "": it has no constraint
    domains: Mapping[str, int] = {}  # with the number of its pods
    reason: str = ""
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        document = {
            "podGroup": self.podgroup,
            "pods": [*self.pods],
            "reserved": [*self.reserved],
            "reason": self.reason,
            "message": self.message,
        }
        return {**document, "level": self.level, "domains": {**self.domains}}

    def lines(self) -> Iterator[str]:
        if self.pods:
            where = self.domains or self.nodes()
            named = [f"{name or 'no domain'} ({counted(it, 'pod')})" for name, it in where.items()]
            at, of = ("in", f", at {self.level}") if self.level else ("on", "")
            yield f"{self.podgroup} starts {at} {listed_names(named, _MOST_LISTED)}{of}"
            for claim, (devices, node) in self._claims().items():
                yield f"  claim {claim}: {listed_names(devices, _MOST_LISTED)} on {node}"
        if self.reason:
            begin = f"{self.podgroup}: more pods wait" if self.pods else f"{self.podgroup} waits"
            yield f"{begin} ({self.reason}): {self.message}"
        elif not self.pods:
            yield f"{self.podgroup} was not tried: its pods are created later"

    def nodes(self) -> Mapping[str, int]:
        nodes = Counter([it["node"] for it in self.pods])
        for it in self.reserved:
            nodes[it["node"]] += it["count"]
        return dict(sorted(nodes.items()))

    def _claims(self) -> Mapping[str, tuple[list[str], str]]:
        return {
            claim: (devices, it["node"])
            for it in self.pods
            for claim, devices in it.get("claims", {}).items()
        }


def placement_text(placements: tuple[Placement, ...]) -> str:
    """Return one part for all PodGroups; of many lines the first ones."""
    lines = [line for it in placements for line in it.lines()]
    more = len(lines) - 3 * _MOST_LISTED
    shown = lines[: 3 * _MOST_LISTED] if more > 0 else lines
    text = ["On an empty cluster:"]
    for line in shown:
        indent = " " * (len(line) - len(line.lstrip()))
        wrapped = wrapped_lines(line.lstrip(), "    ", MAX_WIDTH - len(indent))
        text += [f"{indent}{it}" for it in wrapped]
    return "\n".join([*text, *([f"  {more} more lines; -o json has all"] if more > 0 else [])])
