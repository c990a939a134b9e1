"""Pods that have an owner and no PodGroup yet: they wait a while for the podgrouper.

The podgrouper reads the owners of a pod after the pod exists. Scheduled alone before that, the
first pods of a gang would start without the others. Where no podgrouper runs, no pod waits for
ever.
"""

from typing import Final

from scheduler.core.model.rejections import ClusterEvent, PreFilterCause, PreFilterFailure
from scheduler.state.inputs import epoch_s, format_timestamp
from trainer_kai.api.pod import Pod
from trainer_kai.policy.workloads.owner_chain import is_skipped


class UngroupedPods:
    def __init__(self, wait_s: int) -> None:
        self._wait_s: Final = wait_s
        self._until: Final[dict[int, int]] = {}  # by pod row: when it is scheduled alone

    def due(self, now: int) -> list[int]:
        """Return the rows of pods that have waited long enough; a row may be another pod's now."""
        rows = [row for row, until in self._until.items() if until <= now]
        for row in rows:
            del self._until[row]
        return rows

    def failure(self, row: int, pod: Pod, now: int) -> PreFilterFailure | None:
        """Return why a pending pod that names no PodGroup waits."""
        self._until.pop(row, None)
        meta = pod.metadata
        if not self._wait_s or not meta.owner_references or is_skipped(meta.annotations):
            return None
        until = (epoch_s(meta.creation_timestamp) or 0) + self._wait_s
        if until <= now:
            return None
        self._until[row] = until
        owner = meta.controller or meta.owner_references[0]
        return PreFilterFailure(
            PreFilterCause.NOT_GROUPED,
            (f"{owner.kind} {owner.name}", format_timestamp(until)),
            ClusterEvent.ANY,
            pod=f"pod {meta.name}",
        )
