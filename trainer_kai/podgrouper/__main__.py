"""The podgrouper as a process: `python -m trainer_kai.podgrouper`."""

import os
import sys

from trainer_kai.clock import SystemClock
from trainer_kai.config import read_or_exit
from trainer_kai.health import Health, HealthServer
from trainer_kai.kube import runner
from trainer_kai.kube.connect import process_client
from trainer_kai.kube.locate import find_access
from trainer_kai.kube.observed import Observed
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.standard import elector, recorder
from trainer_kai.log import configure, logger
from trainer_kai.metrics import Metrics
from trainer_kai.podgrouper.reconcile import Podgrouper
from trainer_kai.policy.groups import Rules
from trainer_kai.settings import PodgrouperSettings

__all__ = ["main"]


async def podgrouper(run: Runner, settings: PodgrouperSettings) -> None:
    """Wire the process up and start its services."""
    clock, metrics, health, log = SystemClock(), Metrics(), Health(), logger(__package__ or "")
    seen = Observed(metrics)
    await run.enter("health", HealthServer(health, metrics, clock, settings.health))
    access = await find_access(
        os.environ, clock, kubeconfig=settings.kubeconfig, context=settings.context
    )
    client = await run.enter("client", process_client(access, clock, seen))
    events = recorder(client, "trainer-kai-podgrouper", metrics, log)
    run.start("events", events.run, grace_s=5)
    rules = Rules(settings.mode, settings.scheduler_name, settings.default_queue)
    grouper = Podgrouper(rules, events, metrics, log)
    grouper.follow(run, client, seen, health)
    candidate = elector(client, settings.leader, metrics, log)
    run.start(
        "lead",
        lambda: candidate.lead(lambda fence: grouper.lead(client.behind(fence))),
        grace_s=20,
    )
    health.started()


def main() -> int:
    """Read the settings and run until told to stop."""
    settings = read_or_exit(PodgrouperSettings, sys.argv[1:], os.environ)
    configure(SystemClock(), layout=settings.log.format, level=settings.log.level)
    return runner.main(lambda run: podgrouper(run, settings))


if __name__ == "__main__":
    sys.exit(main())
