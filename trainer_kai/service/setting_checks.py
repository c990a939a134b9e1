"""What the texts of settings may say: how each is read, and its faults, each with what is right."""

import re
from collections.abc import Callable, Collection, Iterator
from decimal import Decimal
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Final

from pydantic import AfterValidator

from trainer_kai.api.requested_values import PREEMPTIBILITIES
from trainer_kai.api.scheduler_names import ACTIONS, ALWAYS_ON_PLUGINS, OPTIONAL_PLUGINS, Action
from trainer_kai.api.syntax import (
    condition_fault,
    dns_subdomain_fault,
    label_name_fault,
    taint_fault,
)

_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?")
_DNS_NAME: Final = re.compile(rf"(\*\.)?({_LABEL}\.)*{_LABEL}", re.IGNORECASE)


def split_names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _unknown_name(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return f"{name!r} is unknown; {meant}valid names are {', '.join(known)}"


def action_faults(text: str) -> Iterator[str]:
    unknown = [_unknown_name(name, ACTIONS) for name in split_names(text) if name not in ACTIONS]
    yield from unknown
    if not unknown and Action.ALLOCATE not in split_names(text):
        yield f"should include '{Action.ALLOCATE}'; without it no pod starts"


def disabled_plugin_faults(text: str) -> Iterator[str]:
    for name in split_names(text):
        if name in ALWAYS_ON_PLUGINS:
            yield f"{name!r} is always on"
        elif name not in OPTIONAL_PLUGINS:
            yield _unknown_name(name, sorted(OPTIONAL_PLUGINS))


def resource_name_faults(text: str) -> Iterator[str]:
    yield from filter(None, map(label_name_fault, split_names(text)))


def read_gpu_replicas(text: str) -> dict[str, int]:
    """Return the resources of a setting, each with what it is charged, in thousandths of a GPU.

    Raise `ValueError` for a part that is no number above 0 and up to 1.
    """
    charges = {}
    for item in split_names(text):
        name, _, part = item.partition("=")
        thousandths = round(Decimal(part.strip() or 1) * 1000)
        if not 1 <= thousandths <= 1000:
            raise ValueError(part)
        charges[name.strip()] = thousandths
    return charges


def gpu_replica_faults(text: str) -> Iterator[str]:
    for item in split_names(text):
        try:
            (name,) = read_gpu_replicas(item)
        except (ValueError, ArithmeticError):
            part = item.partition("=")[2].strip()
            yield f"{part!r} should be the part of a GPU that one is: a number up to 1, from 0.001"
        else:
            yield from filter(None, [label_name_fault(name)])


def read_kind_defaults(text: str) -> dict[str, tuple[str, str]]:
    """Return the PriorityClass and the preemptibility of each kind in a setting.

    Raise `ValueError` for what is not of the form KIND=CLASS or KIND=CLASS/PREEMPTIBILITY.
    """
    defaults = {}
    for item in split_names(text):
        kind, _, values = item.partition("=")
        name, slash, preemptibility = values.strip().partition("/")
        is_known = preemptibility in PREEMPTIBILITIES if slash else True
        if not (_KIND.fullmatch(kind.strip()) and is_known) or dns_subdomain_fault(name):
            raise ValueError(item)
        defaults[kind.strip()] = name, preemptibility
    return defaults


def kind_default_faults(text: str) -> Iterator[str]:
    for item in split_names(text):
        try:
            read_kind_defaults(item)
        except ValueError:
            yield (
                f"{item!r} should be a kind and a PriorityClass, such as Deployment.apps=train, or "
                f"also {' or '.join(PREEMPTIBILITIES)}, such as Job.batch=train/preemptible"
            )


def taint_faults(text: str) -> Iterator[str]:
    yield from filter(None, map(taint_fault, split_names(text)))


def condition_faults(text: str) -> Iterator[str]:
    yield from filter(None, map(condition_fault, split_names(text)))


def kubernetes_name_faults(text: str) -> Iterator[str]:
    for name in split_names(text):
        try:
            checked_kubernetes_name(name)
        except ValueError as error:
            yield f"{name!r} {error}"


def startup_taint_faults(text: str) -> Iterator[str]:
    for name in split_names(text):
        # The beginning of a key is checked as the key that it is the beginning of.
        fault = label_name_fault(f"{name}any" if name.endswith("/") else name)
        if fault:
            yield f"{name!r}: {fault}"


def priority_class_faults(text: str) -> Iterator[str]:
    yield from filter(None, map(dns_subdomain_fault, split_names(text)))


def checked(rule: Callable[[str], Iterator[str]]) -> AfterValidator:
    """Report every fault of the names of a setting."""

    def check(text: str) -> str:
        faults = [*rule(text)]
        if faults:
            raise ValueError("; ".join(faults))
        return text

    return AfterValidator(check)


def checked_kubernetes_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-.a-z0-9]{0,61}[a-z0-9])?", value):
        message = "should have at most 63 of a-z, 0-9, - and ., and a letter or digit at each end"
        raise ValueError(message)
    return value


def checked_hosts(value: str) -> str:
    """Check that each host can be in a certificate, and is read back unchanged."""
    for host in filter(None, map(str.strip, value.split(","))):
        try:
            is_good = "%" not in str(ip_address(host))
        except ValueError:
            is_good = bool(_DNS_NAME.fullmatch(host)) and len(host) <= 253
        if not is_good:
            right = "should be a host name, or an IP address without brackets or zone"
            raise ValueError(f"{host} {right}")
    return value
