"""What can go wrong, as one tree; each package has its own branch where its errors are raised.

    TrainerKaiError
    ├── ConfigError       the person who started us gave settings that cannot work: exit code 2
    ├── InvariantError    our own mistake: written down whole, and the process ends
    └── ApiError          the cluster refused or did not answer: see trainer_kai.kube.rest.errors

Expected outcomes are values and not in here: a `FieldError` says what is wrong with one field of
an object. Nothing in this module knows Kubernetes or waits.
"""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["ConfigError", "FieldError", "FieldWarning", "InvariantError", "TrainerKaiError"]


class TrainerKaiError(Exception):
    """The root: every error that this project raises by itself."""


class FieldError(NamedTuple):
    """One fault in one object: where it is, and what would be right."""

    path: str  # as kubectl writes it: spec.template.spec.containers[0].name
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class FieldWarning(FieldError):
    """What is wrong with a request in a label or annotation: the object itself is valid."""


class ConfigError(TrainerKaiError):
    """Settings that cannot work; it holds every fault, not only the first."""

    def __init__(self, faults: Iterable[FieldError]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


class InvariantError(TrainerKaiError):
    """A thing that cannot be, is: our own mistake, with the story that led there."""
