"""What the API server has: its version, and the kinds that a TrainJob takes to become pods."""

import re
from collections.abc import Iterator
from typing import Final

from trainer_kai.api.names import JOBSET, TRAINER
from trainer_kai.api.resources import CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS
from trainer_kai.cli.doctor.expected import Definition
from trainer_kai.cli.doctor.facts import Facts, Obj, at, listed
from trainer_kai.cli.doctor.finding import CannotTell, Finding, fault, known, ok, unknown, warning
from trainer_kai.cli.doctor.schema import fields_of, missing_from
from trainer_kai.cli.doctor.tried import has_kai

__all__ = [
    "JOBSET_DEFINITIONS",
    "TRAINER_DEFINITIONS",
    "check_definitions",
    "check_jobset_kind",
    "check_runtime_field",
    "check_server",
    "check_trainer_kinds",
]

_LEAST: Final = 30  # of Kubernetes 1: match conditions are taken for granted from there on
JOBSET_DEFINITIONS: Final = {str(JOBSETS): JOBSETS.version}
TRAINER_DEFINITIONS: Final = {str(it): it.version for it in (TRAINJOBS, RUNTIMES, CLUSTER_RUNTIMES)}
_FIELD: Final = "manifests/components/runtime-queue-field"
_CRDS: Final = "kubectl apply --server-side -k manifests/base/crds"


def check_server(facts: Facts) -> Iterator[Finding]:
    """Say whether the API server is new enough."""
    check, version = "API server", known(facts.version)
    told = str(version.get("gitVersion") or "of unknown version")
    is_so = f"Kubernetes {told} at {facts.site.server}"
    minor = re.match(r"\d+", str(version.get("minor") or ""))
    if version.get("major") == "1" and minor and int(minor.group()) < _LEAST:
        yield fault(check, is_so, f"Kubernetes 1.{_LEAST} or newer: our webhooks need it")
    else:
        yield ok(check, is_so)


def check_jobset_kind(facts: Facts) -> Iterator[Finding]:
    """Say whether JobSet is installed."""
    yield _served(facts, "JobSet", JOBSET, JOBSET_DEFINITIONS)


def check_trainer_kinds(facts: Facts) -> Iterator[Finding]:
    """Say whether Trainer is installed, in the version that we read."""
    yield _served(facts, "Trainer", TRAINER, TRAINER_DEFINITIONS)


def _served(facts: Facts, check: str, group: str, wanted: dict[str, str]) -> Finding:
    found = {name: known(facts.definitions[name]) for name in wanted}
    missing = [name for name, crd in found.items() if crd is None]
    if missing:
        return fault(check, f"there is no {listed(missing)}", f"{check}, installed first")
    late = [name for name, crd in found.items() if not _serves(crd, wanted[name])]
    version = next(iter(wanted.values()))
    if late:
        right = f"{group}/{version}, which is what we read and write"
        return fault(check, f"{listed(late)}: {version} is not served", right)
    return ok(check, f"{group}/{version} is served")


def check_definitions(facts: Facts) -> Iterator[Finding]:
    """Say of each definition of KAI's whether it is there and keeps what we write."""
    for wanted in facts.manifests.definitions:
        plural, _, _ = wanted.name.partition(".")
        check = f"kind {plural}"
        try:
            yield _complete(
                check, wanted, known(facts.definitions[wanted.name]), beside_kai=has_kai(facts)
            )
        except CannotTell as error:
            yield unknown(check, error)


def _complete(check: str, wanted: Definition, crd: Obj | None, *, beside_kai: bool) -> Finding:
    if crd is None:
        return fault(check, f"there is no definition {wanted.name}", _CRDS)
    version = _version(crd, wanted.version)
    if version is None or not _serves(crd, wanted.version):
        is_so = f"{wanted.name}: {wanted.version} is not served"
        return fault(check, is_so, f"{_CRDS}, or the KAI of today where KAI has installed it")
    schema = at(version, "schema", "openAPIV3Schema") or {}
    dropped = missing_from(schema, wanted.fields)
    rules = set(_rules_of(schema))
    is_ours = any(it in rules for it in wanted.rules)
    if dropped:
        is_so = f"{listed(dropped)} is dropped when it is written"
        right = "KAI v0.17, which has all that we write" if beside_kai else _CRDS
        return (warning if beside_kai else fault)(check, is_so, right)
    if is_ours and not rules.issuperset(wanted.rules):
        return warning(check, "ours, but of another version: rules are missing", _CRDS)
    return ok(check, "ours, complete" if is_ours else "of a KAI, complete")


def check_runtime_field(facts: Facts) -> Iterator[Finding]:
    """Say whether the queue can be a field of a runtime, and whether that was so once."""
    check, wanted = "queue of a runtime", facts.manifests.runtime_field
    names = facts.manifests.runtime_definitions
    crds = {name: known(facts.definitions[name]) for name in names}
    if None in crds.values():
        raise CannotTell("Trainer is not there")
    having = [name for name, crd in crds.items() if crd and _has_field(crd, wanted)]
    lacking = [name for name in names if name not in having]
    short = wanted.removeprefix("spec.")
    right = f"the patch in {_FIELD}, after each upgrade of Trainer"
    if having and lacking:
        yield fault(check, f"{listed(lacking)} lacks {short}, the other one has it", right)
    elif having:
        yield ok(check, f"{short} is there")
    elif noted := known(facts.noted_runtimes):
        is_so = f"{short} is gone, and {listed(noted)} had it: their TrainJobs go elsewhere"
        yield fault(check, is_so, right)
    else:
        yield ok(check, "by label only; nobody uses the field, which is not installed")


def _serves(crd: Obj | None, version: str) -> bool:
    conditions = at(crd, "status", "conditions") or ()
    served = {it.get("type") for it in conditions if it.get("status") == "True"}
    found = _version(crd, version)
    return found is not None and bool(found.get("served")) and "Established" in served


def _version(crd: Obj | None, name: str) -> Obj | None:
    versions = at(crd, "spec", "versions") or ()
    return next((it for it in versions if it.get("name") == name), None)


def _has_field(crd: Obj, path: str) -> bool:
    version = _version(crd, RUNTIMES.version) or {}
    return path in set(fields_of(at(version, "schema", "openAPIV3Schema") or {}))


def _rules_of(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for rule in schema.get("x-kubernetes-validations") or ():
            yield str(rule.get("message") or rule.get("messageExpression"))
        for inner in schema.values():
            yield from _rules_of(inner)
