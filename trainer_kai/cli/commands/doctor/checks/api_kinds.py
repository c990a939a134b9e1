"""The API server: its version, and the kinds that a TrainJob needs to become pods."""

import re
from collections.abc import Iterator
from typing import Final

from trainer_kai.api.names import JOBSET, TRAINER
from trainer_kai.api.resources import CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS
from trainer_kai.cli.commands.doctor.checks.dry_runs import kai_binds
from trainer_kai.cli.commands.doctor.expected import ExpectedDefinition, dropped_fields, field_paths
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

_MIN_MINOR: Final = 33  # of Kubernetes 1: since then a CRD can have the rules of our PodGroups
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
        yield fault(
            check, observed, f"upgrade to Kubernetes 1.{_MIN_MINOR} or later; our CRDs need it"
        )
    else:
        yield ok(check, observed)


def check_jobset_kind(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether JobSet is installed."""
    yield _served_finding(facts, "JobSet", JOBSET, JOBSET_DEFINITIONS)


def check_trainer_kinds(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether Trainer is installed, in the supported version."""
    yield _served_finding(facts, "Trainer", TRAINER, TRAINER_DEFINITIONS)


def _served_finding(
    facts: InstallationFacts, check: str, group: str, wanted: dict[str, str]
) -> CheckFinding:
    found = {name: require(facts.definitions[name]) for name in wanted}
    missing = [name for name, crd in found.items() if crd is None]
    if missing:
        return fault(check, f"{listed(missing)} does not exist", f"install {check} first")
    not_served = [name for name, crd in found.items() if not _serves(crd, wanted[name])]
    version = next(iter(wanted.values()))
    if not_served:
        remedy = f"install a version that serves {group}/{version}"
        return fault(check, f"{listed(not_served)}: {version} is not served", remedy)
    return ok(check, f"{group}/{version} is served")


def check_definitions(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say for each CustomResourceDefinition of KAI whether it exists and keeps our fields."""
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
        return fault(check, f"the CustomResourceDefinition {wanted.name} does not exist", _CRDS)
    version = _version(crd, wanted.version)
    if version is None or not _serves(crd, wanted.version):
        observed = f"{wanted.name}: {wanted.version} is not served"
        return fault(check, observed, f"{_CRDS}, or upgrade KAI if KAI installed it")
    schema = nested_field(version, "schema", "openAPIV3Schema") or {}
    dropped = dropped_fields(schema, wanted.fields)
    rules = set(_rules_of(schema))
    is_ours = any(it in rules for it in wanted.rules)
    if dropped:
        observed = f"the API server drops {listed(dropped)}"
        remedy = "upgrade to KAI v0.17, which defines all fields" if beside_kai else _CRDS
        return (warning if beside_kai else fault)(check, observed, remedy)
    if is_ours and not rules.issuperset(wanted.rules):
        return warning(
            check,
            "installed by trainer-kai, but in another version: validation rules are missing",
            _CRDS,
        )
    return ok(
        check, "installed by trainer-kai, complete" if is_ours else "installed by KAI, complete"
    )


def check_runtime_field(facts: InstallationFacts) -> Iterator[CheckFinding]:
    """Say whether a runtime can name its queue in a field, and whether it could before."""
    check, wanted = "runtime queue field", facts.manifests.runtime_field
    names = facts.manifests.runtime_definitions
    crds = {name: require(facts.definitions[name]) for name in names}
    if None in crds.values():
        raise CannotTell("Trainer is not installed")
    with_field = [name for name, crd in crds.items() if crd and _has_field(crd, wanted)]
    without_field = [name for name in names if name not in with_field]
    field_name = wanted.removeprefix("spec.")
    remedy = f"apply the patch in {_FIELD} again; needed after each upgrade of Trainer"
    if with_field and without_field:
        yield fault(
            check,
            f"{listed(without_field)} has no field {field_name}, but the other definition has it",
            remedy,
        )
    elif with_field:
        yield ok(check, f"{field_name} is available")
    elif runtimes := require(facts.runtimes_with_queue_field):
        observed = (
            f"{field_name} is gone, but {listed(runtimes)} used it: their TrainJobs get another"
            " queue"
        )
        yield fault(check, observed, remedy)
    else:
        yield ok(check, "not installed and not used; runtimes name their queue by label")


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
