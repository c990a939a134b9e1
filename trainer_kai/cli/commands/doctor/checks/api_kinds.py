"""The API server: its version, and the kinds that a TrainJob needs to become pods."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainer_kai.api.resources import CLUSTER_RUNTIMES, JOBSETS, RUNTIMES, TRAINJOBS, Resource
from trainer_kai.cli.commands.doctor.checks.dry_runs import kai_binds
from trainer_kai.cli.commands.doctor.expected import (
    ExpectedDefinition,
    dropped_fields,
    field_paths,
    rule_messages,
)
from trainer_kai.cli.commands.doctor.facts import (
    CannotTell,
    Findings,
    InstallationFacts,
    Obj,
    fault,
    listed,
    nested_field,
    ok,
    require,
    warning,
)

Definitions = Mapping[str, Obj | None]

_MIN_MINOR: Final = 33  # of Kubernetes 1: since then a CRD can have the rules of our PodGroups
JOBSET_KINDS: Final = (JOBSETS,)
TRAINER_KINDS: Final = (TRAINJOBS, RUNTIMES, CLUSTER_RUNTIMES)
_FIELD: Final = "manifests/components/runtime-queue-field"
_CRDS: Final = "kubectl apply --server-side -k manifests/base/crds"


def check_server(facts: InstallationFacts, version: Obj) -> Findings:
    version_text = str(version.get("gitVersion") or "of unknown version")
    observed = f"Kubernetes {version_text} at {facts.installation.server}"
    minor = re.match(r"\d+", str(version.get("minor") or ""))
    if version.get("major") == "1" and minor and int(minor.group()) < _MIN_MINOR:
        yield fault(observed, f"upgrade to Kubernetes 1.{_MIN_MINOR} or later; our CRDs need it")
    else:
        yield ok(observed)


def check_kinds(
    product: str, kinds: Sequence[Resource[Any]], _: InstallationFacts, found: Definitions
) -> Findings:
    version = kinds[0].api_version
    missing = [name for name, crd in found.items() if crd is None]
    not_served = [str(it) for it in kinds if not _serves(found[str(it)], it.version)]
    if missing:
        yield fault(f"{listed(missing)} does not exist", f"install {product} first")
    elif not_served:
        observed = f"{listed(not_served)}: {kinds[0].version} is not served"
        yield fault(observed, f"install a version that serves {version}")
    else:
        yield ok(f"{version} is served")


def check_definition(
    wanted: ExpectedDefinition, facts: InstallationFacts, crd: Obj | None
) -> Findings:
    if crd is None:
        yield fault(f"the CustomResourceDefinition {wanted.name} does not exist", _CRDS)
        return
    version = _version(crd, wanted.version)
    if version is None or not _serves(crd, wanted.version):
        observed = f"{wanted.name}: {wanted.version} is not served"
        yield fault(observed, f"{_CRDS}, or upgrade KAI if KAI installed it")
        return
    schema = nested_field(version, "schema", "openAPIV3Schema") or {}
    dropped = dropped_fields(schema, wanted.fields)
    rules = set(rule_messages(schema))
    is_ours = any(it in rules for it in wanted.rules)
    if dropped and kai_binds(facts):
        remedy = "upgrade to KAI v0.17, which defines all fields"
        yield warning(f"the API server drops {listed(dropped)}", remedy)
    elif dropped:
        yield fault(f"the API server drops {listed(dropped)}", _CRDS)
    elif is_ours and not rules.issuperset(wanted.rules):
        observed = "installed by trainer-kai, but in another version: validation rules are missing"
        yield warning(observed, _CRDS)
    else:
        yield ok(f"installed by {'trainer-kai' if is_ours else 'KAI'}, complete")


def check_runtime_field(facts: InstallationFacts, found: Definitions) -> Findings:
    """Say whether a runtime can name its queue in a field, and whether it could before."""
    wanted = facts.manifests.runtime_field
    if None in found.values():
        raise CannotTell("Trainer is not installed")
    without_field = [name for name, crd in found.items() if not (crd and _has_field(crd, wanted))]
    field_name = wanted.removeprefix("spec.")
    remedy = f"apply the patch in {_FIELD} again; needed after each upgrade of Trainer"
    if not without_field:
        yield ok(f"{field_name} is available")
    elif len(without_field) < len(found):
        observed = f"has no field {field_name}, but the other definition has it"
        yield fault(f"{listed(without_field)} {observed}", remedy)
    elif runtimes := require(facts.runtimes_with_queue_field):
        observed = (
            f"{field_name} is gone, but {listed(runtimes)} used it: their TrainJobs get another"
            " queue"
        )
        yield fault(observed, remedy)
    else:
        yield ok("not installed and not used; runtimes name their queue by label")


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
