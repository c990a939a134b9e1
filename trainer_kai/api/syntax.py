"""The syntax of names and labels; the functions return what is wrong, or None."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from trainer_kai.api.bounds import ANNOTATIONS_BYTES, LABEL_CHARACTERS, SUBDOMAIN_CHARACTERS
from trainer_kai.errors import FieldError

_WORD: Final = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL: Final = re.compile(_WORD)
_DNS_SUBDOMAIN: Final = re.compile(rf"{_WORD}(?:\.{_WORD})*")
_NAME: Final = re.compile("[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def dns_label_fault(text: str) -> str | None:
    if len(text) <= LABEL_CHARACTERS and _DNS_LABEL.fullmatch(text):
        return None
    return (
        f"{text!r} must be 1 to {LABEL_CHARACTERS} lower-case letters, digits and '-', "
        "and begin and end with a letter or digit"
    )


def dns_subdomain_fault(text: str) -> str | None:
    if len(text) <= SUBDOMAIN_CHARACTERS and _DNS_SUBDOMAIN.fullmatch(text):
        return None
    return (
        f"{text!r} must be 1 to {SUBDOMAIN_CHARACTERS} lower-case letters, digits, '-' and '.', "
        "and each part between dots begin and end with a letter or digit"
    )


def label_name_fault(text: str) -> str | None:
    prefix, slash, name = text.rpartition("/")
    if slash and dns_subdomain_fault(prefix):
        return f"{text!r}: the part before '/' must be a DNS name, such as 'example.org'"
    if len(name) <= LABEL_CHARACTERS and _NAME.fullmatch(name):
        return None
    return (
        f"{text!r}: the name must be 1 to {LABEL_CHARACTERS} letters, digits, '-', '_' and '.', "
        "and begin and end with a letter or digit"
    )


def taint_fault(text: str) -> str | None:
    """Return what is wrong with a taint in a setting: `KEY`, or `KEY=VALUE`."""
    key, _, value = text.partition("=")
    if fault := label_name_fault(key):
        return fault
    return (
        f"{text!r} should be the key of a taint, or KEY=VALUE" if label_value_fault(value) else None
    )


def condition_fault(text: str) -> str | None:
    """Return what is wrong with a condition in a setting: `TYPE`, or `TYPE=STATUS`."""
    name, equals, status = text.partition("=")
    if fault := label_name_fault(name):
        return fault
    if name == "Ready" and status in {"", "True"}:
        right = "write Ready=False or Ready=Unknown"
        return f"{text!r} is a condition of each node that works: {right}"
    if not equals or status in {"False", "True", "Unknown"}:
        return None
    return f"{text!r} should be the type of a condition, or TYPE=False or TYPE=Unknown"


def label_value_fault(text: str) -> str | None:
    """Return what is wrong with the value of a label; it may be empty."""
    if not text or (len(text) <= LABEL_CHARACTERS and _NAME.fullmatch(text)):
        return None
    return (
        f"{text!r} must be at most {LABEL_CHARACTERS} letters, digits, '-', '_' and '.', "
        "and begin and end with a letter or digit"
    )


def label_faults(labels: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for name, value in labels.items():
        for fault in (label_name_fault(name), label_value_fault(value)):
            if fault:
                yield FieldError(f"{path}[{name}]", fault)


def annotation_faults(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Their keys, and their total size."""
    for name in annotations:
        fault = label_name_fault(name.lower())  # the API server ignores the case too
        if fault:
            yield FieldError(f"{path}[{name}]", fault)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
    if size > ANNOTATIONS_BYTES:
        yield FieldError(path, f"{size} bytes in total; at most {ANNOTATIONS_BYTES} are allowed")
