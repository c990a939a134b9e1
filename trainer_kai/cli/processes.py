"""Our processes, and all of them in one.

Flags and variables are those of `python -m webhook` and so on. In one process each has its own
settings behind its name; they share a client, a health server and their end: if one of them fails,
so do the others.
"""

from collections.abc import Sequence

from scheduler.shell.process import scheduler
from trainer_kai.kube.runner import Runner
from trainer_kai.kube.standard import Basis, run_process
from trainer_kai.podgrouper.__main__ import podgrouper
from trainer_kai.settings import (
    AllSettings,
    PodgrouperSettings,
    SchedulerSettings,
    WebhookSettings,
)
from webhook.__main__ import webhook

__all__ = ["be"]


def be(process: str, argv: Sequence[str]) -> int:
    """Be a process until it is told to stop; return its exit code."""
    match process:
        case "webhook":
            return run_process("webhook", WebhookSettings, webhook, argv)
        case "podgrouper":
            return run_process("trainer_kai.podgrouper", PodgrouperSettings, podgrouper, argv)
        case "scheduler":
            return run_process("scheduler", SchedulerSettings, scheduler, argv)
        case _:
            return run_process("trainer_kai", AllSettings, _everything, argv)


async def _everything(run: Runner, basis: Basis, settings: AllSettings) -> None:
    """Start the services of all three; the webhook last, for it waits for its certificate."""

    def part(name: str) -> Basis:
        return basis._replace(health=basis.health.part(name), log=basis.log.bind(part=name))

    grouping = settings.of(PodgrouperSettings, settings.podgrouper)
    await podgrouper(run, part("podgrouper"), grouping)
    await scheduler(run, part("scheduler"), settings.of(SchedulerSettings, settings.scheduler))
    await webhook(run, part("webhook"), settings.of(WebhookSettings, settings.webhook))
