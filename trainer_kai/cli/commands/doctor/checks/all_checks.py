"""All checks, in the order of the output: a check that others depend on comes first."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from trainer_kai.cli.commands.doctor.checks.admission_policies import check_policies
from trainer_kai.cli.commands.doctor.checks.api_kinds import (
    check_definitions,
    check_jobset_kind,
    check_runtime_field,
    check_server,
    check_trainer_kinds,
)
from trainer_kai.cli.commands.doctor.checks.certificates import (
    check_certificate,
    check_trust,
)
from trainer_kai.cli.commands.doctor.checks.dry_runs import (
    TRAINJOB_CHECK,
    check_foreign_pod,
    check_gang_pod,
    check_jobset,
    check_namespaces,
    check_refusal,
)
from trainer_kai.cli.commands.doctor.checks.gpu_sharing import (
    check_gpu_sharing,
    check_other_installations,
    check_reservation_pods,
)
from trainer_kai.cli.commands.doctor.checks.permissions import check_permissions
from trainer_kai.cli.commands.doctor.checks.processes import (
    check_clocks,
    check_kueue,
    check_leases,
    check_mode,
    check_other_schedulers,
    check_processes,
    check_settings,
)
from trainer_kai.cli.commands.doctor.checks.queues import (
    check_access,
    check_default_queue,
    check_named_queues,
    check_nodes,
    check_priority_classes,
    check_queues,
)
from trainer_kai.cli.commands.doctor.checks.webhooks import (
    check_configurations,
    check_order,
)
from trainer_kai.cli.commands.doctor.facts import InstallationFacts
from trainer_kai.cli.commands.doctor.finding import CannotTell, CheckFinding, unknown

Check: TypeAlias = Callable[[InstallationFacts], Iterable[CheckFinding]]

# By the name of the finding if a check has no result.
CHECKS: Final[Mapping[str, Check]] = {
    "API server": check_server,
    "JobSet": check_jobset_kind,
    "Trainer": check_trainer_kinds,
    "definitions": check_definitions,
    "runtime queue field": check_runtime_field,
    "webhooks": check_configurations,
    "webhook order": check_order,
    "policies": check_policies,
    "CA bundle": check_trust,
    "certificate": check_certificate,
    "namespaces": check_namespaces,
    TRAINJOB_CHECK: check_jobset,
    "invalid TrainJob dry run": check_refusal,
    "gang pod dry run": check_gang_pod,
    "other pod dry run": check_foreign_pod,
    "mode": check_mode,
    "settings": check_settings,
    "permissions": check_permissions,
    "processes": check_processes,
    "leases": check_leases,
    "another scheduler": check_other_schedulers,
    "another installation": check_other_installations,
    "GPU sharing": check_gpu_sharing,
    "reservation pods": check_reservation_pods,
    "Kueue": check_kueue,
    "clocks": check_clocks,
    "queues": check_queues,
    "queue access": check_access,
    "default queue": check_default_queue,
    "named queues": check_named_queues,
    "priority classes": check_priority_classes,
    "nodes": check_nodes,
}


def run_checks(
    facts: InstallationFacts, checks: Mapping[str, Check] = CHECKS
) -> list[CheckFinding]:
    """Return the findings of all checks; a check without a result does not stop the others."""
    findings: list[CheckFinding] = []
    for name, check in checks.items():
        try:
            findings += check(facts)
        except CannotTell as error:
            findings.append(unknown(name, error))
    return findings
