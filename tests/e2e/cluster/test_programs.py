"""How the programs are called."""

import re
from pathlib import Path

import pytest

from e2e.cluster.programs import all_programs
from tests.support.cluster_layout import make_layout

RUN = Path("/run-folder")
PROGRAMS = all_programs(make_layout(RUN))
ADDRESS = re.compile(r"://([^:/,]+)|(\d+\.\d+\.\d+\.\d+)")

# Names and ranges that are written into objects; nobody listens there or is called there.
WORDS = {
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-cluster-ip-range=10.0.0.0/16",
}


def test_every_program_is_there_in_its_order() -> None:
    """Each comes after those it needs."""
    assert list(PROGRAMS) == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "jobset",
        "trainer",
        "kwok",
    ]
    assert [program.name for program in PROGRAMS.values()] == list(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_names_loopback_addresses_only(name: str) -> None:
    """Nobody outside this machine can reach a cluster, and it reaches nobody."""
    arguments = [part for part in PROGRAMS[name].argv if part not in WORDS]
    ready_url = PROGRAMS[name].ready_url or ""

    named = {a or b for part in [*arguments, ready_url] for a, b in ADDRESS.findall(part)}

    assert named <= {"127.0.0.1"}


# what keeps a program from listening on every address of the machine
BOUND = {
    "etcd": {
        "--listen-client-urls=http://127.0.0.1:1",
        "--listen-peer-urls=http://127.0.0.1:2",
    },
    "kube-apiserver": {"--bind-address=127.0.0.1", "--secure-port=3"},
    "kube-controller-manager": {"--secure-port=0"},
    "kube-scheduler": {"--secure-port=0"},
}


@pytest.mark.parametrize("name", BOUND)
def test_a_program_does_not_listen_elsewhere(name: str) -> None:
    """Where the default is every address, the address or the lack of a port is given."""
    assert set(PROGRAMS[name].argv) >= BOUND[name]


def test_what_answers_is_asked_whether_it_is_ready() -> None:
    """A program with a port of its own says when it is ready; the others have none."""
    assert {name: program.ready_url for name, program in PROGRAMS.items()} == {
        "etcd": "http://127.0.0.1:1/health",
        "kube-apiserver": "https://127.0.0.1:3/readyz",
        "kube-controller-manager": None,
        "kube-scheduler": None,
        "jobset": "http://127.0.0.1:5/readyz",
        "trainer": "http://127.0.0.1:7/readyz",
        "kwok": None,
    }


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_client_is_a_user_of_its_own(name: str) -> None:
    """Whoever talks to the API server does so with its own kubeconfig: the audit log tells them."""
    given = [part for part in PROGRAMS[name].argv if part.startswith("--kubeconfig=")]
    servers = {"etcd", "kube-apiserver"}

    assert given == ([] if name in servers else [f"--kubeconfig={RUN}/kubeconfigs/{name}.yaml"])


def test_the_audit_log_stays_one_file() -> None:
    """A place in the log is an offset: rotated away, the writes behind it would not be counted."""
    given = [part for part in PROGRAMS["kube-apiserver"].argv if part.startswith("--audit-log")]

    assert given == [f"--audit-log-path={RUN}/logs/audit.jsonl", "--audit-log-maxsize=0"]


def test_trainer_finds_its_certificate() -> None:
    """Trainer has no flag for it and looks below TMPDIR, which no other program is given."""
    given = {name: dict(program.environment) for name, program in PROGRAMS.items()}

    assert {name: environment for name, environment in given.items() if environment} == {
        "trainer": {"TMPDIR": f"{RUN}/trainer-tmp"}
    }
