"""What must be written in the cluster for a pod before it is bound: one step after the other.

Each step is a module of its own and a line in `main`; the binder knows none of them. A step notes
nothing in `reserve` for `prepare`, which may never come: what it relies on is in the cluster.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from scheduler.state.commands import PodGroupCommands
from trainer_kai.api.meta import Key
from trainer_kai.kube.rest.response import ApiError, Conflict, ErrorDetails


class PodBind(NamedTuple):
    """A pod that is about to be bound; the commands have what each step needs of the plan."""

    pod: Key
    node: str
    uid: str
    commands: PodGroupCommands


class StepFailed(Conflict):
    """A step is not possible now: the pod is planned anew, and an Event on it says why."""

    def __init__(self, details: ErrorDetails, event_reason: str) -> None:
        super().__init__(details)
        self.event_reason: Final = event_reason
        self.message: Final = details.message


class BindStep(ABC):
    """One thing that a pod needs in the cluster; each method may be called twice."""

    name: str  # in the log

    async def reserve(self, commands: PodGroupCommands) -> Mapping[Key, ApiError]:  # noqa: ARG002 - most steps reserve nothing
        """Reserve what pods need that are bound together, before the first of them is prepared.

        Return the pods for which it failed, and why; the step logs that in its own words. Nothing
        undoes what was reserved: the step itself releases it when no pod needs it.
        """
        return {}

    def is_done(self, bind: PodBind) -> bool:  # noqa: ARG002 - most steps are the same for all pods
        """Say whether this pod needs nothing of this step, and so nothing is to be undone."""
        return False

    @abstractmethod
    async def prepare(self, bind: PodBind) -> None:
        """Write what the pod needs; after an `ApiError` nothing of it hinders others."""

    @abstractmethod
    async def undo(self, bind: PodBind) -> None:
        """Remove what `prepare` wrote, if it is there: the pod is not bound."""


class BindSteps:
    """All steps, in the order in which pods are prepared."""

    def __init__(self, steps: Sequence[BindStep], log: FilteringBoundLogger) -> None:
        self._steps: Final = tuple(steps)
        self._log: Final = log

    async def reserve(self, commands: PodGroupCommands) -> Mapping[Key, ApiError]:
        """Reserve what each step needs, until one fails; return the pods for which it did."""
        for step in self._steps:
            failures = await step.reserve(commands)
            if failures:
                return failures
        return {}

    async def prepare(self, bind: PodBind) -> list[BindStep]:
        """Prepare a pod, and return the steps to undo if it is not bound; a failure undoes them."""
        prepared: list[BindStep] = []
        for step in self._steps:
            if step.is_done(bind):
                continue
            try:
                await step.prepare(bind)
            except ApiError:
                await self.undo(bind, prepared)
                raise
            prepared.append(step)
        return prepared

    async def undo(self, bind: PodBind, prepared: Sequence[BindStep]) -> None:
        """Undo steps in reverse; one that fails keeps no other from being undone."""
        for step in reversed(prepared):
            try:
                await step.undo(bind)
            except ApiError as error:
                self._log.warning(
                    "bind step not undone", step=step.name, pod=str(bind.pod), error=str(error)
                )
