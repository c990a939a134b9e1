"""Preemption delay, and the minimum runtime before a PodGroup is evicted: rules 36a, 37a."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from tests.reference.scheduler.model import ClusterInfo, PodGroupInfo, PodInfo, QueueInfo

Obj: TypeAlias = Mapping[str, Any]

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours"}


def in_preemption_delay(group: Obj, now: str) -> bool:
    """Say whether a group takes nothing from others yet."""
    meta, delay = group["metadata"], group["spec"].get("preemptionDelay", "")
    evicted = meta.get("annotations", {}).get("kai.scheduler/last-eviction-timestamp", "")
    times = [_parse_time(text) for text in (meta["creationTimestamp"], evicted) if text]
    return bool(delay) and _parse_time(now) < max(times) + _parse_duration(delay)


def started_at(group: Obj, pods: list[tuple[Obj, PodInfo]]) -> str:
    """Return when a group began to run, or nothing; *pods* are those of it that are there."""
    written = group["metadata"].get("annotations", {}).get("kai.scheduler/last-start-timestamp")
    if not pods or written:
        return written or "" if pods else ""
    placed = [
        one["lastTransitionTime"]
        for raw, _ in pods
        for one in raw["status"].get("conditions", ())
        if one["type"] == "PodScheduled" and one["status"] == "True"
    ]
    return min(placed, default="")


def checkpointed_at(job: Obj) -> str:
    """Return when a TrainJob says that it saved its work, or nothing."""
    text = job["metadata"].get("annotations", {}).get("trainer-kai.dev/last-checkpoint", "")
    try:
        _parse_time(text)
    except ValueError:
        return ""
    return str(text)


def seconds_between(one: str, other: str) -> int:
    """Return how many seconds pass from one moment to another."""
    return int((_parse_time(other) - _parse_time(one)).total_seconds())


def is_within_min_runtime(
    cluster: ClusterInfo, action: str, claimant: PodGroupInfo, loser: PodGroupInfo
) -> bool:
    """Say whether a PodGroup may not lose all it has by an action, for it has not run for long."""
    if not loser.started_at:
        return False
    ask = cluster.queue_with_ancestors(loser.queue)
    if action == "reclaim":
        mine = cluster.queue_with_ancestors(claimant.queue)
        common = [queue for queue in ask if queue in mine]
        own = [queue for queue in ask if queue not in mine]
        ask = [*own[-1:], *common]
    output = [text for queue in ask if (text := _min_runtime(queue, action))]
    return bool(output) and _parse_time(cluster.now) < _parse_time(
        loser.started_at
    ) + _parse_duration(output[0])


def _min_runtime(queue: QueueInfo, action: str) -> str:
    return queue.reclaim_min_runtime if action == "reclaim" else queue.preempt_min_runtime


def _parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _parse_duration(text: str) -> timedelta:
    """Read a duration of whole seconds, minutes and hours."""
    parts = re.findall("([0-9]+)([smh])", text)
    return timedelta(**{_UNITS[podgroup]: int(number) for number, podgroup in parts})
