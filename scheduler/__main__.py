"""The scheduler as a process: `python -m scheduler`."""

import sys

from scheduler.shell.main import scheduler
from trainer_kai.kube.process.context import run_process
from trainer_kai.service.settings import SchedulerSettings

if __name__ == "__main__":
    sys.exit(run_process("scheduler", SchedulerSettings, scheduler))
