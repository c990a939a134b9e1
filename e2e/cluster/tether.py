"""Processes that cannot outlive the one that started them, however it ends.

The kernel does it: a process asks with PR_SET_PDEATHSIG for a signal at its parent's death, which
also covers `kill -9`. Linux only, like the chain. Run as a script, this file asks for itself and
then becomes the program (`preexec_fn` would do it too, but is not safe beside threads). A program
with children of its own, `go build`, is run in a group that is taken down as a whole.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1


def tethered(command: list[str], *, group: bool = False) -> list[str]:
    """Return the command that runs *command* tied to the calling process.

    Start it from the main thread: the kernel takes the death of that thread for the parent's.
    With *group* the children of the command go down with it.
    """
    mode = "group" if group else "exec"
    return [sys.executable, "-I", "-S", __file__, mode, str(os.getpid()), *command]


def die_with_parent(number: signal.Signals, parent: int) -> None:
    """Ask the kernel to send us *number* when *parent* dies; exit when it is dead already."""
    _ask_kernel(int(number))
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Take back `die_with_parent`."""
    _ask_kernel(0)


def _ask_kernel(number: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses PR_SET_PDEATHSIG")


def _main(mode: str, parent: int, command: list[str]) -> int:
    if mode == "exec":
        die_with_parent(signal.SIGKILL, parent)
        os.execv(command[0], command)  # noqa: S606 -- an argument list, as everywhere here
    return _run_group(parent, command)


def _run_group(parent: int, command: list[str]) -> int:
    """Run *command* in a process group of its own; end the whole group when told to or orphaned."""
    child: subprocess.Popen[bytes] | None = None

    def end_group(number: int, _frame: FrameType | None) -> None:
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # nobody in a group can fork away from this
        os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end_group)
    die_with_parent(signal.SIGTERM, parent)
    child = subprocess.Popen(tethered(command), process_group=0)
    return child.wait()


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
