"""Runs a process by its name, or all of them in one process.

Flags and variables are the same as those of `python -m webhook` and so on. In one process the name
of a process is the prefix of its settings; all share a client and a health server, and if one
fails, all end.
"""

from collections.abc import Sequence

from scheduler.shell.main import scheduler
from trainer_kai.kube.process.context import ProcessContext, run_process
from trainer_kai.kube.process.runner import Runner
from trainer_kai.podgrouper.__main__ import podgrouper
from trainer_kai.service.settings import (
    AllSettings,
    PodgrouperSettings,
    SchedulerSettings,
    WebhookSettings,
)
from webhook.__main__ import webhook


def run_named_process(process: str, argv: Sequence[str]) -> int:
    match process:
        case "webhook":
            return run_process("webhook", WebhookSettings, webhook, argv)
        case "podgrouper":
            return run_process("trainer_kai.podgrouper", PodgrouperSettings, podgrouper, argv)
        case "scheduler":
            return run_process("scheduler", SchedulerSettings, scheduler, argv)
        case _:
            return run_process("trainer_kai", AllSettings, _run_all, argv)


async def _run_all(run: Runner, process: ProcessContext, settings: AllSettings) -> None:
    """Start the services of all three; the webhook last, because it waits for its certificate."""

    def part(name: str) -> ProcessContext:
        return process._replace(health=process.health.part(name), log=process.log.bind(part=name))

    grouping = settings.settings_for(PodgrouperSettings, settings.podgrouper)
    await podgrouper(run, part("podgrouper"), grouping)
    await scheduler(
        run, part("scheduler"), settings.settings_for(SchedulerSettings, settings.scheduler)
    )
    await webhook(run, part("webhook"), settings.settings_for(WebhookSettings, settings.webhook))
