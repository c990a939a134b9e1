"""Denials and warnings for an object, of several checks put together into one response.

Each check returns a `ValidationResult`; `combined_with` puts two together. All denials are in the
message, so that a user mends all faults at once.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from trainer_kai.errors import FieldError
from webhook.admission.review import UNCHANGED, AdmissionDenial, AdmissionResponse

__all__ = ["INVALID", "NO_OBJECTIONS", "ValidationResult", "all_denied", "denied", "warned"]

INVALID: Final = 422


class ValidationResult(NamedTuple):
    """Why it may not be, and what is worth telling whatever becomes of it."""

    denials: tuple[AdmissionDenial, ...] = ()
    warnings: tuple[str, ...] = ()

    def combined_with(self, other: "ValidationResult") -> "ValidationResult":
        """Return both together."""
        return ValidationResult(self.denials + other.denials, self.warnings + other.warnings)

    def response(self) -> AdmissionResponse:
        """Return what a review is answered; the first refusal gives the status."""
        if not self.denials:
            return AdmissionResponse(warnings=self.warnings) if self.warnings else UNCHANGED
        message = "; ".join(denial.message for denial in self.denials)
        return AdmissionResponse(
            warnings=self.warnings, denial=AdmissionDenial(self.denials[0].code, message)
        )


NO_OBJECTIONS: Final = ValidationResult()


def denied(fault: FieldError, code: int = INVALID) -> ValidationResult:
    """Refuse for one fault."""
    return ValidationResult(denials=(AdmissionDenial(code, str(fault)),))


def all_denied(faults: Iterable[FieldError]) -> ValidationResult:
    """Refuse for as many faults as there are."""
    return ValidationResult(denials=tuple(AdmissionDenial(INVALID, str(fault)) for fault in faults))


def warned(*faults: FieldError) -> ValidationResult:
    """Let through what should be known."""
    return ValidationResult(warnings=tuple(map(str, faults)))
