"""The API server: its version, and the kinds that a TrainJob needs to become pods."""

import re
from collections.abc import Iterator
from typing import Final

from trainer_kai.api.names import JOBSET, TRAINER
from trainer_kai.api.resources import CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS
from trainer_kai.cli.commands.doctor.checks.dry_runs import kai_binds
from trainer_kai.cli.commands.doctor.facts import InstallationFacts, Obj, listed, nested_field
from trainer_kai.cli.commands.doctor.finding import (
    CannotTell,
    CheckFinding,
    fault,
    ok,
    require,
    unknown,
    warning,
)
from trainer_kai.cli.commands.doctor.manifests.expected import ExpectedDefinition
from trainer_kai.cli.commands.doctor.manifests.schema import dropped_fields, field_paths

__all__ = [
    "JOBSET_DEFINITIONS",
    "TRAINER_DEFINITIONS",
    "check_definitions",
    "check_jobset_kind",
    "check_runtime_field",
    "check_server",
    "check_trainer_kinds",
]

_MIN_MINOR: Final = 30  # of Kubernetes 1: match conditions are enabled from there on
JOBSET_DEFINITIONS: Final = {str(JOBSETS): JOBSETS.version}
TRAINER_DEFINITIONS: Final = {str(it): it.version for it in (TRAINJOBS, RUNTIMES, CLUSTER_RUNTIMES)}
_FIELD: Final = "manifests/components/runtime-queue-field"
_CRDS: Final = "kubectl apply --server-side -k manifests/base/crds"


def check_server(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether the API server is new enough."""
    check, version = "API server", require(facts.version)
    version_text = str(version.get("gitVersion") or "of unknown version")
    observed = f"Kubernetes {version_text} at {facts.installation.server}"
    minor = re.match(r"\d+", str(version.get("minor") or ""))
    if version.get("major") == "1" and minor and int(minor.group()) < _MIN_MINOR:
        yield fault(check, observed, f"Kubernetes 1.{_MIN_MINOR} or newer: our webhooks need it")
    else:
        yield ok(check, observed)


def check_jobset_kind(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether JobSet is installed."""
    yield _served_finding(facts, "JobSet", JOBSET, JOBSET_DEFINITIONS)


def check_trainer_kinds(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether Trainer is installed, in the version that we read."""
    yield _served_finding(facts, "Trainer", TRAINER, TRAINER_DEFINITIONS)


def _served_finding(
    facts: InstallationFacts, check: str, group: str, wanted: dict[str, str]
) -> CheckFinding:
    found = {name: require(facts.definitions[name]) for name in wanted}
    missing = [name for name, crd in found.items() if crd is None]
    if missing:
        return fault(check, f"there is no {listed(missing)}", f"{check}, installed first")
    not_served = [name for name, crd in found.items() if not _serves(crd, wanted[name])]
    version = next(iter(wanted.values()))
    if not_served:
        remedy = f"{group}/{version}, which is what we read and write"
        return fault(check, f"{listed(not_served)}: {version} is not served", remedy)
    return ok(check, f"{group}/{version} is served")


def check_definitions(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say of each definition of KAI whether it exists and keeps the fields that we write."""
    for wanted in facts.manifests.definitions:
        plural, _, _ = wanted.name.partition(".")
        check = f"kind {plural}"
        try:
            yield _definition_finding(
                check, wanted, require(facts.definitions[wanted.name]), beside_kai=kai_binds(facts)
            )
        except CannotTell as error:
            yield unknown(check, error)


def _definition_finding(
    check: str, wanted: ExpectedDefinition, crd: Obj | None, *, beside_kai: bool
) -> CheckFinding:
    if crd is None:
        return fault(check, f"there is no definition {wanted.name}", _CRDS)
    version = _version(crd, wanted.version)
    if version is None or not _serves(crd, wanted.version):
        observed = f"{wanted.name}: {wanted.version} is not served"
        return fault(check, observed, f"{_CRDS}, or the KAI of today where KAI has installed it")
    schema = nested_field(version, "schema", "openAPIV3Schema") or {}
    dropped = dropped_fields(schema, wanted.fields)
    rules = set(_rules_of(schema))
    is_ours = any(it in rules for it in wanted.rules)
    if dropped:
        observed = f"{listed(dropped)} is dropped when it is written"
        remedy = "KAI v0.17, which has all that we write" if beside_kai else _CRDS
        return (warning if beside_kai else fault)(check, observed, remedy)
    if is_ours and not rules.issuperset(wanted.rules):
        return warning(check, "ours, but of another version: rules are missing", _CRDS)
    return ok(check, "ours, complete" if is_ours else "of a KAI, complete")


def check_runtime_field(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether the queue can be a field of a runtime, and whether it could be before."""
    check, wanted = "queue of a runtime", facts.manifests.runtime_field
    names = facts.manifests.runtime_definitions
    crds = {name: require(facts.definitions[name]) for name in names}
    if None in crds.values():
        raise CannotTell("Trainer is not there")
    with_field = [name for name, crd in crds.items() if crd and _has_field(crd, wanted)]
    without_field = [name for name in names if name not in with_field]
    field_name = wanted.removeprefix("spec.")
    remedy = f"the patch in {_FIELD}, after each upgrade of Trainer"
    if with_field and without_field:
        yield fault(
            check, f"{listed(without_field)} lacks {field_name}, the other one has it", remedy
        )
    elif with_field:
        yield ok(check, f"{field_name} is there")
    elif runtimes := require(facts.runtimes_with_queue_field):
        observed = (
            f"{field_name} is gone, and {listed(runtimes)} had it: their TrainJobs go elsewhere"
        )
        yield fault(check, observed, remedy)
    else:
        yield ok(check, "by label only; nobody uses the field, which is not installed")


def _serves(crd: Obj | None, version: str) -> bool:
    conditions = nested_field(crd, "status", "conditions") or ()
    true_conditions = {it.get("type") for it in conditions if it.get("status") == "True"}
    found = _version(crd, version)
    return found is not None and bool(found.get("served")) and "Established" in true_conditions


def _version(crd: Obj | None, name: str) -> Obj | None:
    versions = nested_field(crd, "spec", "versions") or ()
    return next((it for it in versions if it.get("name") == name), None)


def _has_field(crd: Obj, path: str) -> bool:
    version = _version(crd, RUNTIMES.version) or {}
    return path in set(field_paths(nested_field(version, "schema", "openAPIV3Schema") or {}))


def _rules_of(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for rule in schema.get("x-kubernetes-validations") or ():
            yield str(rule.get("message") or rule.get("messageExpression"))
        for inner in schema.values():
            yield from _rules_of(inner)
