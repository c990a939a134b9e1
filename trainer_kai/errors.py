"""The errors of the project, as one tree; each package defines its branch where it raises them.

    TrainerKaiError
    ├── ConfigError       invalid settings or arguments: the process exits with code 2
    ├── InvariantError    a bug of ours: it is logged in full, and the process exits
    └── ApiError          the cluster refused or did not answer: see trainer_kai.kube.rest.response

Expected outcomes are values and not errors: a `FieldError` says what is wrong with one field of an
object. This module does not know Kubernetes and does not wait.
"""

from collections.abc import Iterable
from typing import NamedTuple


class TrainerKaiError(Exception):
    """The base of all errors that the project raises."""


class FieldError(NamedTuple):
    path: str  # in kubectl's format: spec.template.spec.containers[0].name
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class FieldWarning(FieldError):
    """An invalid request in a label or an annotation of an otherwise valid object."""


class ConfigError(TrainerKaiError):
    def __init__(self, faults: Iterable[FieldError]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(map(str, self.faults)))


class InvariantError(TrainerKaiError):
    """A state that cannot occur: a bug of ours, with what led there."""
