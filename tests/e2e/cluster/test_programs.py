"""How the programs are called, in what no run on the chain shows."""

import re
from pathlib import Path

import pytest

from e2e.cluster.programs import all_programs
from tests.support.cluster_layout import make_layout

PROGRAMS = all_programs(make_layout(Path("/run-folder")))
ADDRESS = re.compile(r"://([^:/,]+)|(\d+\.\d+\.\d+\.\d+)")
# Names and ranges that are written into objects; no process listens there or is called there.
WORDS = {
    "--service-account-issuer=https://kubernetes.default.svc",
    "--service-cluster-ip-range=10.0.0.0/16",
}
# what keeps a program from what it does by default
GIVEN = {
    "etcd": {  # listen on every address
        "--listen-client-urls=http://127.0.0.1:1",
        "--listen-peer-urls=http://127.0.0.1:2",
    },
    # And rotate the log: a mark is a place in it.
    "kube-apiserver": {"--bind-address=127.0.0.1", "--secure-port=3", "--audit-log-maxsize=0"},
    "kube-controller-manager": {"--secure-port=0"},
    "kube-scheduler": {"--secure-port=0"},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_names_loopback_addresses_only(name: str) -> None:
    """No other machine can reach a cluster, and it reaches none, by no default either."""
    program = PROGRAMS[name]
    parts = [program.ready_url or "", *(part for part in program.argv if part not in WORDS)]

    named = {a or b for part in parts for a, b in ADDRESS.findall(part)}

    assert named <= {"127.0.0.1"}
    assert set(program.argv) >= GIVEN.get(name, set())
