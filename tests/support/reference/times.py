"""Time: who gives others time, and who has not run for long enough to lose all: rules 36a, 37a."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from tests.support.reference.things import Cluster, Pod, Queue, Unit

__all__ = ["began", "is_patient", "is_protected", "saved", "seconds_between"]

Obj: TypeAlias = Mapping[str, Any]

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours"}


def is_patient(group: Obj, now: str) -> bool:
    """Say whether a group takes nothing from others yet."""
    meta, delay = group["metadata"], group["spec"].get("preemptionDelay", "")
    evicted = meta.get("annotations", {}).get("kai.scheduler/last-eviction-timestamp", "")
    times = [_moment(text) for text in (meta["creationTimestamp"], evicted) if text]
    return bool(delay) and _moment(now) < max(times) + _length(delay)


def began(group: Obj, pods: list[tuple[Obj, Pod]]) -> str:
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


def saved(job: Obj) -> str:
    """Return when a TrainJob says that it saved its work, or nothing."""
    text = job["metadata"].get("annotations", {}).get("trainer-kai.dev/last-checkpoint", "")
    try:
        _moment(text)
    except ValueError:
        return ""
    return str(text)


def seconds_between(one: str, other: str) -> int:
    """Return how many seconds pass from one moment to another."""
    return int((_moment(other) - _moment(one)).total_seconds())


def is_protected(cluster: Cluster, action: str, claimant: Unit, loser: Unit) -> bool:
    """Say whether a unit may not lose all it has by an action, for it has not run for long."""
    if not loser.began:
        return False
    ask = cluster.way_up(loser.queue)
    if action == "reclaim":
        mine = cluster.way_up(claimant.queue)
        common = [queue for queue in ask if queue in mine]
        own = [queue for queue in ask if queue not in mine]
        ask = [*own[-1:], *common]
    said = [text for queue in ask if (text := _promise(queue, action))]
    return bool(said) and _moment(cluster.now) < _moment(loser.began) + _length(said[0])


def _promise(queue: Queue, action: str) -> str:
    return queue.reclaim_min if action == "reclaim" else queue.preempt_min


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _length(text: str) -> timedelta:
    """Read a duration of whole seconds, minutes and hours."""
    parts = re.findall("([0-9]+)([smh])", text)
    return timedelta(**{_UNITS[unit]: int(number) for number, unit in parts})
