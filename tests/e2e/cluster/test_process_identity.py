"""A process is identified by its number and its start time."""

import os
import signal
import subprocess
import sys

from e2e.cluster.process_identity import Identity, identify


def identify_child(pid: int) -> Identity:
    """Return who a living process is."""
    identity = identify(pid)
    assert identity is not None
    return identity


def test_a_zombie_has_no_identity(sleeper: "subprocess.Popen[bytes]") -> None:
    """A process that ended and was not collected yet is no longer alive."""
    identity = identify_child(sleeper.pid)

    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)

    assert identify(sleeper.pid) is None
    assert not identity.alive


def test_a_process_that_is_gone_has_no_identity(sleeper: "subprocess.Popen[bytes]") -> None:
    """Nothing is left of a process that was collected, and no signal reaches it."""
    identity = identify_child(sleeper.pid)

    sleeper.kill()
    sleeper.wait()

    assert identify(sleeper.pid) is None
    assert (identity.alive, identity.send(signal.SIGKILL)) == (False, False)


def test_a_reused_number_is_somebody_else(sleeper: "subprocess.Popen[bytes]") -> None:
    """Another birth is another process: it is not taken for ours and gets no signal for it."""
    ours = identify_child(sleeper.pid)
    earlier = ours._replace(born_ticks=ours.born_ticks - 1)

    assert (earlier.alive, earlier.send(signal.SIGKILL)) == (False, False)
    assert ours.alive


def test_a_name_may_hold_anything() -> None:
    """A program whose name looks like the fields behind it is read all the same."""
    rename = "open('/proc/self/comm', 'w').write(') Z 1 (')"
    code = f"{rename}; print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()

        assert identify_child(process.pid).pid == process.pid
        process.kill()
