"""The table of all checks, in the order of the output: a check that others depend on comes first.

A check has a title, the fact that it reads, and a function from that fact to findings. If the fact
is unread, or the function cannot tell, the only finding is that the check has no result. `skip` has
the conditions under which a check is not needed, each with what is reported then.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from trainer_kai.api.names import RESERVATION_APP
from trainer_kai.api.resources import Resource
from trainer_kai.cli.commands.doctor.checks import (
    admission_policies,
    api_kinds,
    avoided_nodes,
    certificates,
    dry_runs,
    gpu_sharing,
    processes,
    queues,
    webhooks,
)
from trainer_kai.cli.commands.doctor.checks.dry_runs import has_policy_only, kai_binds
from trainer_kai.cli.commands.doctor.checks.gpu_sharing import shares_no_gpus
from trainer_kai.cli.commands.doctor.expected import ExpectedAccount, ExpectedDefinition
from trainer_kai.cli.commands.doctor.facts import (
    SCHEDULER,
    CannotTell,
    CheckFinding,
    Fact,
    Findings,
    InstallationFacts,
    all_of,
    both,
    ok,
    require,
    unknown,
)

A = TypeVar("A")
Check: TypeAlias = Callable[[InstallationFacts], Findings]  # may raise `CannotTell`
Skip: TypeAlias = tuple[Callable[[InstallationFacts], bool], str]

_NO_WEBHOOK: Final = has_policy_only, "not needed: no webhook of trainer-kai is called"
_KAI_SHARES: Final = kai_binds, "not needed: KAI shares GPUs"


def _reads(
    fact: Callable[[InstallationFacts], Fact[A]],
    findings: Callable[[InstallationFacts, A], Findings],
    *skip: Skip,
) -> Check:
    def check(facts: InstallationFacts) -> Findings:
        for is_unneeded, observed in skip:
            if is_unneeded(facts):
                return [ok(observed)]
        return findings(facts, require(fact(facts)))

    return check


def _each(checks: Callable[[InstallationFacts], Mapping[str, Check]]) -> Check:
    """Return a check of several objects, each with a title and a result of its own."""
    return lambda facts: run_checks(facts, checks(facts))


def _of_product(product: str, kinds: Sequence[Resource[Any]]) -> Check:
    return _reads(
        lambda it: all_of({str(kind): it.definitions[str(kind)] for kind in kinds}),
        partial(api_kinds.check_kinds, product, kinds),
    )


def _of_definition(wanted: ExpectedDefinition) -> Check:
    findings = partial(api_kinds.check_definition, wanted)
    return _reads(lambda it: it.definitions[wanted.name], findings)


def _of_account(wanted: ExpectedAccount) -> Check:
    findings = partial(processes.check_account, wanted)
    skip = shares_no_gpus, "not needed: trainer-kai shares no GPU"
    is_agent = wanted.name == RESERVATION_APP
    return _reads(lambda it: it.accounts[wanted.name], findings, *([skip] if is_agent else []))


def _of_lease(name: str, is_unneeded: Callable[[InstallationFacts], bool]) -> Check:
    findings = partial(processes.check_lease, name)
    return _reads(lambda it: it.leases, findings, (is_unneeded, "not needed: KAI does this"))


CHECKS: Final[Mapping[str, Check]] = {
    "API server": _reads(lambda it: it.version, api_kinds.check_server),
    "JobSet": _of_product("JobSet", api_kinds.JOBSET_KINDS),
    "Trainer": _of_product("Trainer", api_kinds.TRAINER_KINDS),
    "definitions": _each(
        lambda it: {
            f"kind {wanted.name.partition('.')[0]}": _of_definition(wanted)
            for wanted in it.manifests.definitions
        }
    ),
    "runtime queue field": _reads(
        lambda it: all_of(
            {name: it.definitions[name] for name in it.manifests.runtime_definitions}
        ),
        api_kinds.check_runtime_field,
    ),
    "webhooks": _reads(lambda it: it.configurations, webhooks.check_configurations),
    "webhook order": _reads(lambda it: it.configurations, webhooks.check_order),
    "policies": _reads(lambda it: it.validating_policies, admission_policies.check_policies),
    "CA bundle": _reads(lambda it: it.configurations, certificates.check_trust, _NO_WEBHOOK),
    "certificate": _reads(
        certificates.served_certificate, certificates.check_certificate, _NO_WEBHOOK
    ),
    "namespaces": _reads(
        lambda it: both(it.configurations, it.namespaces), dry_runs.check_namespaces
    ),
    dry_runs.TRAINJOB_CHECK: _reads(lambda it: it.jobset, dry_runs.check_jobset),
    dry_runs.INVALID_TRAINJOB_CHECK: _reads(
        lambda it: it.trainjob,
        dry_runs.check_refusal,
        (has_policy_only, "not checked: the policy refuses no TrainJobs"),
    ),
    "gang pod dry run": _reads(
        lambda it: it.gang_pod,
        dry_runs.check_gang_pod,
        (has_policy_only, "not needed: KAI groups pods"),
    ),
    "other pod dry run": _reads(lambda it: it.foreign_pod, dry_runs.check_foreign_pod),
    "mode": processes.check_mode,  # it needs no single fact
    "settings": _reads(lambda it: it.deployments, processes.check_settings),
    "permissions": _each(
        lambda it: {
            f"permissions of {processes.title(wanted)}": _of_account(wanted)
            for wanted in it.manifests.accounts
        }
    ),
    "processes": _reads(lambda it: it.deployments, processes.check_processes),
    "leases": _each(
        lambda _: {
            "lease of podgrouper": _of_lease(processes.PODGROUPER, has_policy_only),
            "lease of scheduler": _of_lease(SCHEDULER, kai_binds),
        }
    ),
    "another scheduler": _reads(
        lambda it: both(it.other_scheduler_leases, it.other_scheduler_deployments),
        processes.check_other_schedulers,
    ),
    "another installation": _reads(
        lambda it: it.scheduler_leases, gpu_sharing.check_other_installations
    ),
    "GPU sharing": _reads(
        lambda it: it.namespaces,
        gpu_sharing.check_gpu_sharing,
        _KAI_SHARES,
        (shares_no_gpus, "off: pods that request shares of GPUs wait"),
    ),
    "reservation pods": _reads(
        lambda it: it.reservation_pods, gpu_sharing.check_reservation_pods, _KAI_SHARES
    ),
    "Kueue": _reads(lambda it: it.kueue_trainjobs, processes.check_kueue),
    "clocks": _reads(lambda it: it.skew_s, processes.check_clocks),
    "queues": _reads(lambda it: it.queues, queues.check_queues),
    "queue access": _reads(lambda it: it.queues, queues.check_access),
    "default queue": _reads(lambda it: it.queues, queues.check_default_queue),
    "named queues": _reads(
        lambda it: both(it.queues, it.podgroup_queues), queues.check_named_queues
    ),
    "priority classes": _reads(lambda it: it.priority_classes, queues.check_priority_classes),
    "nodes": _reads(lambda it: it.nodes, queues.check_nodes),
    "avoided nodes": _reads(lambda it: it.podgroup_queues, avoided_nodes.check_avoided_nodes),
}


def run_checks(
    facts: InstallationFacts, checks: Mapping[str, Check] = CHECKS
) -> list[CheckFinding]:
    """Return the findings of all checks; a check without a result does not stop the others."""
    findings: list[CheckFinding] = []
    for title, check in checks.items():
        try:
            findings += (it if it.check else it._replace(check=title) for it in check(facts))
        except CannotTell as error:
            findings.append(unknown(str(error))._replace(check=title))
    return findings
