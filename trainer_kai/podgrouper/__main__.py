"""The podgrouper as a process: `python -m trainer_kai.podgrouper`."""

import sys

from trainer_kai.kube.process.context import (
    ProcessContext,
    event_recorder,
    leader_elector,
    run_process,
)
from trainer_kai.kube.process.runner import Runner
from trainer_kai.podgrouper.reconcile import Podgrouper
from trainer_kai.policy.podgroups.manifests import GroupingRules
from trainer_kai.policy.queueing.kind_defaults import KindDefaults
from trainer_kai.service.setting_checks import read_kind_defaults
from trainer_kai.service.settings import PodgrouperSettings

_NAME = "trainer_kai.podgrouper"


async def podgrouper(run: Runner, context: ProcessContext, settings: PodgrouperSettings) -> None:
    client, metrics, log = context.client, context.metrics, context.log
    events = event_recorder(client, "trainer-kai-podgrouper", metrics, log)
    run.start("events", events.run, grace_s=5)
    rules = GroupingRules(
        settings.mode,
        settings.scheduler_name,
        settings.default_queue,
        kind_defaults=KindDefaults(read_kind_defaults(settings.kind_defaults)),
    )
    grouper = Podgrouper(rules, events, metrics, log)
    grouper.start_watches(run, client, context.observer, context.health)
    candidate = leader_elector(client, settings.leader, metrics, log)
    run.start(
        "lead",
        lambda: candidate.lead(lambda fence: grouper.lead(client.with_fence(fence))),
        grace_s=20,
    )


if __name__ == "__main__":
    sys.exit(run_process(_NAME, PodgrouperSettings, podgrouper))
