"""The scheduler as a process: `python -m scheduler`."""

import sys

from scheduler.shell.process import scheduler
from trainer_kai.kube.standard import run_process
from trainer_kai.settings import SchedulerSettings

if __name__ == "__main__":
    sys.exit(run_process("scheduler", SchedulerSettings, scheduler))
