"""Settings about certificates that cannot work are told before anything is made by them."""

from collections.abc import Mapping

import pytest

from tests.support.case import Case, ids
from trainer_kai.errors import ConfigError
from trainer_kai.service.config import load
from trainer_kai.service.settings import WebhookSettings

CASES: list[Case[Mapping[str, str], str]] = [
    Case("the usual ones", {}, ""),
    Case(
        "names and addresses", {"extra_hosts": "a.example.org, *.b.org ,10.0.0.7,2001:DB8::1,"}, ""
    ),
    Case("what is no name", {"extra_hosts": "a b"}, "a b should be a host name, or an IP address"),
    Case("an address in brackets", {"extra_hosts": "[::1]"}, "[::1] should be a host name"),
    Case("an address of a zone", {"extra_hosts": "fe80::1%eth0"}, "fe80::1%eth0 should be"),
    Case("a port", {"extra_hosts": "a.org:443"}, "a.org:443 should be a host name"),
    Case(
        "a life that is too short for the overlap",
        {"certificate_days": "0.2"},
        "certificate_days should be at least six times overlap_s",
    ),
    Case(
        "an authority that does not outlive its certificates",
        {"authority_days": "400"},
        "authority_days should be at least twice certificate_days",
    ),
    Case(
        "an overlap that is too short to see",
        {"overlap_s": "15"},
        "should be at least twice check_s",
    ),
    Case("files", {"source": "files", "certificate_file": "/a", "key_file": "/b"}, ""),
    Case("files of no name", {"source": "files"}, "should both be set with source files"),
    Case("one file", {"source": "files", "key_file": "/b"}, "should both be set"),
    Case(
        "files with another source",
        {"certificate_file": "/a", "key_file": "/b"},
        "should both be set",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_can_work(case: Case[Mapping[str, str], str]) -> None:
    environ = {f"TRAINER_KAI_TLS_{name.upper()}": text for name, text in case.given.items()}
    faults = ""
    try:
        load(WebhookSettings, [], environ)
    except ConfigError as error:
        faults = " ".join(map(str, error.faults))

    assert case.want in faults
    assert bool(case.want) == bool(faults)
