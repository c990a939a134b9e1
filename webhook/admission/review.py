"""AdmissionReview v1: bytes in, bytes out; and how several checks of one object are combined.

The object of a request stays raw JSON, which the rule for its kind decodes. Bytes that are not a
review become `Malformed`, with the reason; the server answers with HTTP 400, because without a uid
there is no review to answer.

Each check returns a `ValidationResult`; `combined_with` combines two. The message of the response
has all denials, so that a user can correct all faults at once.
"""

import base64
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from trainer_kai.api.decode import DecodeError, decode
from trainer_kai.api.names import ADMISSION
from trainer_kai.api.resources import Resource
from trainer_kai.api.text import one_line
from trainer_kai.errors import FieldError
from webhook.admission.patch import Operation

FORBIDDEN: Final = 403
INVALID: Final = 422
SERVICE_UNAVAILABLE: Final = 503
_API_VERSION: Final = f"{ADMISSION}/v1"
_KIND: Final = "AdmissionReview"
_NULL: Final = msgspec.Raw(b"null")
_MAX_WARNINGS: Final = 16  # the API server drops warnings above 4 KiB in total
_MAX_WARNING_CHARACTERS: Final = 256
_MAX_MESSAGE_CHARACTERS: Final = 2048
_MAX_PARTS: Final = 50_000  # objects and lists; one of 64 replicatedJobs has some 20,000
_MAX_QUOTES: Final = 250_000
_MIN_COUNTED_BYTES: Final = 3 * _MAX_PARTS  # a text with that many parts has at least so many bytes
_MAX_USER_BYTES: Final = 256 << 10
_REASONS: Final = {
    400: "BadRequest",
    FORBIDDEN: "Forbidden",
    INVALID: "Invalid",
    SERVICE_UNAVAILABLE: "ServiceUnavailable",
}


class ReviewedKind(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    group: str = ""
    version: str = ""
    kind: str = ""


class AdmissionRequest(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A request of the API server; the objects and the user are raw JSON."""

    uid: str
    kind: ReviewedKind = ReviewedKind()
    sub_resource: str = ""
    operation: str = ""
    namespace: str = ""
    dry_run: bool = False
    user_info: msgspec.Raw = _NULL
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL

    def is_of(self, resource: Resource[Any], *operations: str) -> bool:
        """Say whether it is one of some operations on objects of a kind, in this version."""
        kind = (self.kind.group, self.kind.version, self.kind.kind)
        return (
            kind == (resource.group, resource.version, resource.kind)
            and self.operation in operations
            and not self.sub_resource
        )


class _Review(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


class Malformed(NamedTuple):
    """Bytes that are not a review."""

    message: str


class AdmissionDenial(NamedTuple):
    code: int
    message: str


class AdmissionResponse(NamedTuple):
    operations: tuple[Operation, ...] = ()
    warnings: tuple[str, ...] = ()
    denial: AdmissionDenial | None = None

    @property
    def outcome(self) -> str:
        if self.denial is not None:
            return "denied"
        return "patched" if self.operations else "allowed"


UNCHANGED: Final = AdmissionResponse()


class ValidationResult(NamedTuple):
    """Why an object is denied, and the warnings about it in either case."""

    denials: tuple[AdmissionDenial, ...] = ()
    warnings: tuple[str, ...] = ()

    def combined_with(self, other: "ValidationResult") -> "ValidationResult":
        return ValidationResult(self.denials + other.denials, self.warnings + other.warnings)

    def response(self) -> AdmissionResponse:
        """Return the response to a review; the first denial gives the status."""
        if not self.denials:
            return AdmissionResponse(warnings=self.warnings) if self.warnings else UNCHANGED
        message = "; ".join(denial.message for denial in self.denials)
        denial = AdmissionDenial(self.denials[0].code, message)
        return AdmissionResponse(warnings=self.warnings, denial=denial)


NO_OBJECTIONS: Final = ValidationResult()


def read_review(body: bytes) -> AdmissionRequest | Malformed:
    try:
        review = decode(_Review, body)
    except DecodeError as error:
        return Malformed(_short_line(f"not an AdmissionReview: {error}", _MAX_MESSAGE_CHARACTERS))
    if (review.api_version, review.kind) != (_API_VERSION, _KIND):
        actual = f"{review.api_version!r} {review.kind!r}"
        message = f"apiVersion and kind are {actual}, and must be {_API_VERSION!r} {_KIND!r}"
        return Malformed(_short_line(message, _MAX_MESSAGE_CHARACTERS))
    if review.request is None:
        return Malformed("request: must not be empty")
    if not review.request.uid:
        return Malformed("request.uid: must not be empty")
    if memoryview(review.request.user_info).nbytes > _MAX_USER_BYTES:
        return Malformed(f"request.userInfo: has more than {_MAX_USER_BYTES} bytes")
    return review.request


def size_fault(text: msgspec.Raw) -> str:
    """Say why an object is not read: in memory its parts may take 40 times their text."""
    if memoryview(text).nbytes < _MIN_COUNTED_BYTES:
        return ""
    data = bytes(text)
    parts, quotes = data.count(b"{") + data.count(b"["), data.count(b'"')
    if parts <= _MAX_PARTS and quotes <= _MAX_QUOTES:
        return ""
    return (
        f"has {parts} objects and lists and {quotes // 2} strings, and may have at most "
        f"{_MAX_PARTS} and {_MAX_QUOTES // 2}"
    )


def unreadable_object(error: DecodeError) -> AdmissionResponse:
    """Deny an object that cannot be decoded as its kind."""
    path = ".".join(part for part in ("request.object", error.fault.path) if part)
    return AdmissionResponse(denial=AdmissionDenial(400, f"{path}: {error.fault.message}"))


def oversized_object(what: str, fault: str) -> AdmissionResponse:
    """Deny an object with a `size_fault`."""
    return AdmissionResponse(
        denial=AdmissionDenial(INVALID, f"the {what} is too large: it {fault}")
    )


def encode_response(uid: str, answer: AdmissionResponse) -> bytes:
    response: dict[str, object] = {"uid": uid, "allowed": answer.denial is None}
    if answer.denial is not None:
        code, message = answer.denial
        status = {"code": code, "message": _short_line(message, _MAX_MESSAGE_CHARACTERS)}
        response["status"] = {**status, "reason": _REASONS.get(code, "")}
    elif answer.operations:
        text = msgspec.json.encode(answer.operations)
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(text).decode()
    if answer.warnings:
        warnings = (_short_line(text, _MAX_WARNING_CHARACTERS) for text in answer.warnings)
        response["warnings"] = list(dict.fromkeys(warnings))[:_MAX_WARNINGS]
    review = {"apiVersion": _API_VERSION, "kind": _KIND, "response": response}
    return msgspec.json.encode(review)


def denied(fault: FieldError, code: int = INVALID) -> ValidationResult:
    return ValidationResult(denials=(AdmissionDenial(code, str(fault)),))


def all_denied(faults: Iterable[FieldError]) -> ValidationResult:
    return ValidationResult(denials=tuple(AdmissionDenial(INVALID, str(fault)) for fault in faults))


def warned(*faults: FieldError) -> ValidationResult:
    """Return a warning for each fault; the object is allowed."""
    return ValidationResult(warnings=tuple(map(str, faults)))


def _short_line(text: str, characters: int) -> str:
    """Fold a text into one line, and cut it to the limit: warnings are sent in HTTP headers.

    It is cut between words where that keeps half of the limit or more; a word may be very long.
    """
    text = text[: 4 * characters]  # first of all: it may be as long as a body
    line = one_line(text)
    if len(line) <= characters:
        return line
    whole_words = line[: characters - 1].rpartition(" ")[0]
    is_enough = 2 * len(whole_words) >= characters
    return f"{whole_words if is_enough else line[: characters - 2]} …"
