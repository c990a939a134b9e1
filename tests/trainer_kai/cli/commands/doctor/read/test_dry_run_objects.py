"""What is tried dry, as our webhook answers it."""

import pytest

from tests.trainer_kai.cli.commands.doctor.installation import check_results, healthy_installation
from tests.webhook.objects import BUNDLED, EXTERNAL, applied, reviewed_jobset, reviewed_pod
from trainer_kai.cli.commands.doctor.checks.admission.dry_runs import binding_mode
from trainer_kai.cli.commands.doctor.facts import DryRun
from trainer_kai.cli.commands.doctor.read import dry_run_objects
from trainer_kai.policy.podgroups.manifests import GroupingRules
from webhook.admission.review import UNCHANGED
from webhook.rules.jobset_mutate import JobSetContext


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=lambda it: it.mode)
def test_our_webhook_injects_what_is_tried(rules: GroupingRules) -> None:
    """Though its TrainJob does not exist; and it shows the mode."""
    jobset, pod = dry_run_objects.jobset("default"), dry_run_objects.gang_pod("default")
    answer = reviewed_jobset(jobset, JobSetContext(None), rules)
    facts = healthy_installation()._replace(
        jobset=DryRun(jobset, applied(jobset, answer)),
        gang_pod=DryRun(pod, applied(pod, reviewed_pod(pod, rules))),
    )

    assert check_results(facts, "TrainJob dry run") == [
        ("ok", "in default: queue default-queue, scheduler kai-scheduler")
    ]
    assert check_results(facts, "gang pod dry run") == [
        ("ok", "in default: the pod gets its PodGroup")
    ]
    assert binding_mode(facts) == rules.mode


def test_our_webhook_lets_others_be() -> None:
    """A pod without our mark."""
    assert reviewed_pod(dry_run_objects.foreign_pod("default")) == UNCHANGED
