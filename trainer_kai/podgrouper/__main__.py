"""The podgrouper as a process: `python -m trainer_kai.podgrouper`."""

import sys

from trainer_kai.kube.runner import Runner
from trainer_kai.kube.standard import Basis, elector, recorder, run_process
from trainer_kai.podgrouper.reconcile import Podgrouper
from trainer_kai.policy.groups import Rules
from trainer_kai.settings import PodgrouperSettings

_NAME = "trainer_kai.podgrouper"


async def podgrouper(run: Runner, basis: Basis, settings: PodgrouperSettings) -> None:
    """Wire the process up and start its services."""
    client, metrics, log = basis.client, basis.metrics, basis.log
    events = recorder(client, "trainer-kai-podgrouper", metrics, log)
    run.start("events", events.run, grace_s=5)
    rules = Rules(settings.mode, settings.scheduler_name, settings.default_queue)
    grouper = Podgrouper(rules, events, metrics, log)
    grouper.follow(run, client, basis.seen, basis.health)
    candidate = elector(client, settings.leader, metrics, log)
    run.start(
        "lead",
        lambda: candidate.lead(lambda fence: grouper.lead(client.behind(fence))),
        grace_s=20,
    )


if __name__ == "__main__":
    sys.exit(run_process(_NAME, PodgrouperSettings, podgrouper))
