"""What is tried dry, as our webhook answers it."""

import pytest

from tests.trainer_kai.cli.doctor.sound import sound, states
from tests.webhook.objects import BUNDLED, EXTERNAL, applied, assigned, reviewed
from trainer_kai.cli.doctor import trials
from trainer_kai.cli.doctor.facts import Trial
from trainer_kai.cli.doctor.tried import mode_of
from trainer_kai.policy.groups import Rules
from webhook.mutate_jobset import Facts
from webhook.review import UNTOUCHED


@pytest.mark.parametrize("rules", [BUNDLED, EXTERNAL], ids=lambda it: it.mode)
def test_our_webhook_injects_what_is_tried(rules: Rules) -> None:
    """Though there is no such TrainJob; and it shows who binds."""
    jobset, pod = trials.jobset("default"), trials.gang_pod("default")
    answer = reviewed(jobset, Facts(None), rules)
    facts = sound()._replace(
        jobset=Trial(jobset, applied(jobset, answer)),
        gang_pod=Trial(pod, applied(pod, assigned(pod, rules))),
    )

    assert states(facts, "a TrainJob") == [
        ("ok", "dry in default: queue default-queue, scheduler kai-scheduler")
    ]
    assert states(facts, "a pod of a gang") == [("ok", "dry in default: it joins its group")]
    assert mode_of(facts) == rules.mode


def test_our_webhook_lets_others_be() -> None:
    """A pod without our mark."""
    assert assigned(trials.foreign_pod("default")) == UNTOUCHED
