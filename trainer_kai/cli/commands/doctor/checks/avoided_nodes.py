"""Nodes that PodGroups avoid because they refused pods: a broken node shows nowhere else."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from trainer_kai.api.text import counted
from trainer_kai.cli.commands.doctor.facts import (
    Findings,
    InstallationFacts,
    PodGroupQueue,
    listed,
    ok,
    warning,
)
from trainer_kai.policy.podgroups.avoided_nodes import AvoidedNodeRecord, ends_at

_MOST_NAMED: Final = 3
_REMEDY: Final = (
    "look at the node, its kubelet and its device plugin; cordon it until it is repaired. To use "
    "it before the time is over: `kubectl annotate podgroup NAME trainer-kai.dev/avoided-nodes-`"
)


class _Avoiding(NamedTuple):
    podgroup: str
    queue: str
    record: AvoidedNodeRecord


def check_avoided_nodes(facts: InstallationFacts, groups: Sequence[PodGroupQueue]) -> Findings:
    now_s, by_node = facts.server_now.timestamp(), dict[str, list[_Avoiding]]()
    for group in groups:
        for name, record in group.avoided_nodes.items():
            if ends_at(record) > now_s:
                avoiding = _Avoiding(group.name, group.queue, record)
                by_node.setdefault(name, []).append(avoiding)
    if not by_node:
        yield ok("no PodGroup avoids a node")
        return
    order = sorted(by_node, key=lambda name: (-len(by_node[name]), name))
    yield warning(listed([_described(it, by_node[it]) for it in order], _MOST_NAMED), _REMEDY)


def _described(node: str, avoiding: Sequence[_Avoiding]) -> str:
    queues = {it.queue for it in avoiding}
    last = max(avoiding, key=lambda it: it.record.at)
    until = max(it.record.until for it in avoiding)
    return (
        f"node {node} is avoided by {counted(len(avoiding), 'PodGroup')} of "
        f"{counted(len(queues), 'queue')} until {until} at the latest (last refusal: "
        f"{last.record.reason}, PodGroup {last.podgroup})"
    )
