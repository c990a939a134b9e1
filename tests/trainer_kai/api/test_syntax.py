"""Names and labels are taken and refused as the API server does."""

from collections.abc import Callable

import pytest

from tests.support.case import Case, ids
from trainer_kai.api.syntax import (
    annotation_faults,
    dns_label_fault,
    dns_subdomain_fault,
    label_faults,
    label_name_fault,
    label_value_fault,
)

Ask = Callable[[str], str | None]

# (question, text) -> whether it is right
CASES: list[Case[tuple[Ask, str], bool]] = [
    Case("a DNS label", (dns_label_fault, "a-1"), True),
    Case("a DNS label of one digit", (dns_label_fault, "0"), True),
    Case("the longest DNS label", (dns_label_fault, "a" * 63), True),
    Case("a DNS label that is too long", (dns_label_fault, "a" * 64), False),
    Case("an empty DNS label", (dns_label_fault, ""), False),
    Case("a DNS label with a capital", (dns_label_fault, "A"), False),
    Case("a DNS label with a dot", (dns_label_fault, "a.b"), False),
    Case("a DNS label that begins with a dash", (dns_label_fault, "-a"), False),
    Case("a DNS label that ends with a dash", (dns_label_fault, "a-"), False),
    Case("a DNS label with a line break", (dns_label_fault, "a\n"), False),
    Case("a DNS name", (dns_subdomain_fault, "a.b-c.d"), True),
    Case("the longest DNS name", (dns_subdomain_fault, "a" * 253), True),
    Case("a DNS name that is too long", (dns_subdomain_fault, "a" * 254), False),
    Case("a DNS name with an empty part", (dns_subdomain_fault, "a..b"), False),
    Case("a DNS name with a bad part", (dns_subdomain_fault, "a.-b"), False),
    Case("a label", (label_name_fault, "App_1.x"), True),
    Case("a label with a prefix", (label_name_fault, "kai.scheduler/queue"), True),
    Case("a label with two prefixes", (label_name_fault, "a/b/c"), False),
    Case("a label with a bad prefix", (label_name_fault, "A.b/c"), False),
    Case("a label with an empty prefix", (label_name_fault, "/c"), False),
    Case("a label with a prefix only", (label_name_fault, "a.b/"), False),
    Case("a label that is too long", (label_name_fault, "a.b/" + "c" * 64), False),
    Case("a label that begins with a dot", (label_name_fault, ".a"), False),
    Case("a value", (label_value_fault, "A_1.b"), True),
    Case("an empty value", (label_value_fault, ""), True),
    Case("the longest value", (label_value_fault, "a" * 63), True),
    Case("a value that is too long", (label_value_fault, "a" * 64), False),
    Case("a value with a space", (label_value_fault, "a b"), False),
    Case("a value that ends with a dash", (label_value_fault, "a-"), False),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_spelling(case: Case[tuple[Ask, str], bool]) -> None:
    """What is wrong is quoted, and what is right has no message."""
    ask, text = case.given

    fault = ask(text)

    assert (fault is None) is case.want
    assert fault is None or repr(text) in fault


def test_every_fault_of_labels_is_found_with_its_name() -> None:
    """Of names and of values, all at once."""
    found = label_faults({"-a": "b c", "ok": "ok"}, "metadata.labels")

    assert [fault.path for fault in found] == ["metadata.labels[-a]"] * 2


def test_annotations_may_be_long_but_not_endless() -> None:
    """A capital in a prefix is taken, as the API server takes it; 256 KiB in all are the limit."""
    assert list(annotation_faults({"Example.ORG/a": "x" * 1000}, "a")) == []
    (fault,) = annotation_faults({"a": "x" * 256 * 1024}, "metadata.annotations")
    assert str(fault) == "metadata.annotations: 262145 bytes in total; at most 262144 are allowed"
