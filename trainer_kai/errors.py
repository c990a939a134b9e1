"""The errors of the project, as one tree; each package defines its branch where it raises them.

    TrainerKaiError
    ├── ConfigError       invalid settings or arguments: the process exits with code 2
    ├── InvariantError    a bug of ours: it is logged in full, and the process exits
    └── ApiError          the cluster refused or did not answer: see trainer_kai.kube.rest.errors

Expected outcomes are values and not errors: a `FieldError` says what is wrong with one field of an
object. This module does not know Kubernetes and does not wait.
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
