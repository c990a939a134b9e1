"""What is held against a TrainJob, by however many who look at it: refusals and warnings.

Each looks for himself and hands back a `Verdict`; `beside` puts two together. What is refused by
several is told whole, so that nobody mends one thing only to hear of the next.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from trainer_kai.errors import FieldError
from webhook.review import UNTOUCHED, Answer, Refusal

__all__ = ["INVALID", "NOTHING", "Verdict", "all_refused", "refused", "warned"]

INVALID: Final = 422


class Verdict(NamedTuple):
    """Why it may not be, and what is worth telling whatever becomes of it."""

    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()

    def beside(self, other: "Verdict") -> "Verdict":
        """Return both together."""
        return Verdict(self.refusals + other.refusals, self.warnings + other.warnings)

    def answer(self) -> Answer:
        """Return what a review is answered; the first refusal gives the status."""
        if not self.refusals:
            return Answer(warnings=self.warnings) if self.warnings else UNTOUCHED
        message = "; ".join(refusal.message for refusal in self.refusals)
        return Answer(warnings=self.warnings, refusal=Refusal(self.refusals[0].code, message))


NOTHING: Final = Verdict()


def refused(fault: FieldError, code: int = INVALID) -> Verdict:
    """Refuse for one fault."""
    return Verdict(refusals=(Refusal(code, str(fault)),))


def all_refused(faults: Iterable[FieldError]) -> Verdict:
    """Refuse for as many faults as there are."""
    return Verdict(refusals=tuple(Refusal(INVALID, str(fault)) for fault in faults))


def warned(*faults: FieldError) -> Verdict:
    """Let through what should be known."""
    return Verdict(warnings=tuple(map(str, faults)))
