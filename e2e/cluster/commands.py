"""What `python -m e2e.cluster` does for people: clusters that stay until they are taken down."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from e2e.cluster import registry
from e2e.cluster.api import Api
from e2e.cluster.binaries import ensure_built
from e2e.cluster.kubeconfig import ADMIN, Credentials, write_kubeconfig
from e2e.cluster.paths import clusters_root
from e2e.cluster.patience import patience_s
from e2e.cluster.registry import Note
from e2e.cluster.supervise import READY

_DOWN_S = 15.0
_US = f"{os.path.relpath(sys.executable)} -m e2e.cluster"  # as it can be typed here


class CommandError(Exception):
    """What was asked cannot be done; the message says why and what would be right."""


def up(name: str, nodes: int, gpus: int, *, kube_scheduler: bool) -> None:
    """Start a cluster that stays, and say how to reach it."""
    registry.sweep()
    chain = ensure_built(*(["kube-scheduler"] if kube_scheduler else []))
    scheduler = "kube-scheduler" if kube_scheduler else "none"
    arguments = [str(os.getpid()), name, str(nodes), str(gpus), scheduler]
    with tempfile.TemporaryFile("w+") as errors:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "e2e.cluster.supervise", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            started = _relay(supervisor)
        except BaseException:
            supervisor.terminate()
            supervisor.wait()
            raise
        if started is None:
            supervisor.wait()
            errors.seek(0)
            raise CommandError(f"the cluster did not come up:\n{errors.read()}")
    file = clusters_root() / started / "kubeconfigs" / f"{ADMIN}.yaml"
    print(f"cluster {started} is ready:\n  export KUBECONFIG={file}")
    print(f"  {chain.program('kubectl')} get clustertrainingruntimes")
    print(f"  {_US} down {started}")


def down(name: str | None, *, every: bool) -> None:
    """End one cluster, or every cluster that was started by hand, and all their processes."""
    registry.sweep()
    notes = registry.known()
    chosen = [n for n in notes.values() if n.by_hand] if every else [_pick(name, notes)]
    for note in chosen:
        if not note.by_hand and note.owner.alive:
            message = f"{note.name} belongs to a running test (process {note.owner.pid}): end that"
            raise CommandError(message)
        note.owner.send(signal.SIGTERM)
    for note in chosen:
        _wait_gone(note)
        print(f"cluster {note.name} is down")
    if not chosen:
        print("no cluster was started by hand")


def status() -> None:
    """List the clusters and their processes."""
    registry.sweep()
    notes = registry.known()
    if not notes:
        print("no cluster is up")
    for note in notes.values():
        age = int(time.time() - note.started_at)
        held = "by hand" if note.by_hand else "by a test"
        print(
            f"{note.name}: {note.state}, {age // 60}:{age % 60:02} old, held {held} "
            f"(process {note.owner.pid}), {note.url}"
        )
        for program, who in note.programs.items():
            print(f"  {program:<24} {'running' if who.alive else 'GONE':<8} {who.pid}")


def kubeconfig_path(name: str | None, service_account: str | None) -> Path:
    """Return the kubeconfig of a cluster's administrator or of one of its ServiceAccounts."""
    note = _pick(name, registry.known())
    admin = note.folder / "kubeconfigs" / f"{ADMIN}.yaml"
    if service_account is None:
        return admin
    namespace, slash, account = service_account.partition("/")
    if not slash or not namespace or not account:
        raise CommandError(f"--service-account takes NAMESPACE/NAME, not {service_account!r}")
    token = asyncio.run(_request_token(note, namespace, account))
    user = f"{namespace}.{account}"
    text = credentials(note).kubeconfig(user, token, namespace=namespace)
    return write_kubeconfig(admin.with_name(f"{user}.yaml"), text)


def logs(name: str | None, program: str | None, lines: int) -> None:
    """Print the end of one program's log, or of every log."""
    folder = _pick(name, registry.known()).folder / "logs"
    found = {file.stem: file for file in sorted(folder.iterdir())}
    if program is not None and program not in found:
        raise CommandError(f"no log of {program!r}; there is {', '.join(found)}")
    for stem in found if program is None else [program]:
        text = found[stem].read_text(errors="replace").splitlines()
        print(f"==> {found[stem]} <==", *text[max(0, len(text) - lines) :], "", sep="\n")


def _relay(supervisor: "subprocess.Popen[str]") -> str | None:
    """Print what the supervisor says until it names the cluster that is ready."""
    assert supervisor.stdout is not None
    for line in supervisor.stdout:
        word, _, name = line.strip().partition(" ")
        if word == READY:
            return name
        print(line, end="", flush=True)
    return None


def _pick(name: str | None, notes: Mapping[str, Note]) -> Note:
    if name is None and len(notes) == 1:
        return next(iter(notes.values()))
    if name is not None and name in notes:
        return notes[name]
    if not notes:
        raise CommandError(f"no cluster is up: `{_US} up` starts one")
    problem = f"no cluster is called {name}" if name else "several clusters are up: name one"
    raise CommandError(f"{problem}; there is {', '.join(notes)}")


def _wait_gone(note: Note) -> None:
    """Wait until a cluster's processes are gone, and insist in the end."""
    everyone = [note.owner, *note.programs.values()]
    deadline = time.monotonic() + (patience_s(_DOWN_S) if note.owner.alive else 0)
    while any(who.alive for who in everyone):
        if time.monotonic() > deadline:
            for who in everyone:
                who.send(signal.SIGKILL)
        time.sleep(0.02)
    registry.sweep()  # of what a killed owner left


async def _request_token(note: Note, namespace: str, account: str) -> str:
    async with Api.connect(credentials(note)) as api:
        return await api.service_account_token(namespace, account)


def credentials(note: Note) -> Credentials:
    """Read the administrator's credentials from a run folder."""
    token = (note.folder / "tokens.csv").read_text().split(",", 1)[0]  # the first is the admin's
    authority = (note.folder / "pki" / "ca.crt").read_bytes()
    return Credentials(note.url, authority, {ADMIN: token})
