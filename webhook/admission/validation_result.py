"""The denials and warnings of several checks of one object, combined into one response.

Each check returns a `ValidationResult`; `combined_with` combines two. The message of the response
has all denials, so that a user can correct all faults at once.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from trainer_kai.errors import FieldError
from webhook.admission.review import INVALID, UNCHANGED, AdmissionDenial, AdmissionResponse


class ValidationResult(NamedTuple):
    """Why an object is denied, and the warnings about it in either case."""

    denials: tuple[AdmissionDenial, ...] = ()
    warnings: tuple[str, ...] = ()

    def combined_with(self, other: "ValidationResult") -> "ValidationResult":
        """Return the denials and warnings of both."""
        return ValidationResult(self.denials + other.denials, self.warnings + other.warnings)

    def response(self) -> AdmissionResponse:
        """Return the response to a review; the first denial gives the status."""
        if not self.denials:
            return AdmissionResponse(warnings=self.warnings) if self.warnings else UNCHANGED
        message = "; ".join(denial.message for denial in self.denials)
        return AdmissionResponse(
            warnings=self.warnings, denial=AdmissionDenial(self.denials[0].code, message)
        )


NO_OBJECTIONS: Final = ValidationResult()


def denied(fault: FieldError, code: int = INVALID) -> ValidationResult:
    """Return a denial for one fault."""
    return ValidationResult(denials=(AdmissionDenial(code, str(fault)),))


def all_denied(faults: Iterable[FieldError]) -> ValidationResult:
    """Return a denial for each fault."""
    return ValidationResult(denials=tuple(AdmissionDenial(INVALID, str(fault)) for fault in faults))


def warned(*faults: FieldError) -> ValidationResult:
    """Return a warning for each fault; the object is allowed."""
    return ValidationResult(warnings=tuple(map(str, faults)))
