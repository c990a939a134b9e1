"""The part of a message that says why no victim is evicted."""

from dataclasses import replace

from scheduler.core.messages.rejection_messages import rejection_message
from scheduler.core.model.rejections import NO_EVICTION_FAILURE, Rejection
from scheduler.core.model.snapshot import Snapshot


def eviction_failure_text(snapshot: Snapshot, rejection: Rejection) -> str:
    """Return the sentences that follow those of the reason itself."""
    alone = rejection_message(snapshot, replace(rejection, eviction_failure=NO_EVICTION_FAILURE))
    return rejection_message(snapshot, rejection).removeprefix(alone).removeprefix(". ")
