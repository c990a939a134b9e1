"""Which webhook, policy or role refused a dry run, parsed from the API server's message."""

import re
from enum import Enum
from typing import Final, NamedTuple

from trainer_kai.kube.rest.errors import ErrorDetails

_DENIED: Final = re.compile(
    r'admission webhook "(?P<hook>[^"]+)" '
    r"(?:denied the request(?: without explanation)?:? ?|(?=does not support dry run))(?P<why>.*)",
    re.DOTALL,
)
_DENIED_BY_POLICY: Final = re.compile(
    r"\bpolicy ['\"](?P<policy>[^'\"]+)['\"](?: with binding '[^']*')? denied request: (?P<why>.*)",
    re.DOTALL,
)
_FAILED: Final = re.compile(r'failed calling webhook "(?P<hook>[^"]+)": (?P<why>.*)', re.DOTALL)
_NOT_ALLOWED: Final = re.compile(r'User "[^"]*" cannot ')
_UNTRUSTED: Final = re.compile(r"(?:tls|x509): .*", re.DOTALL)


class RefusedBy(Enum):
    """What refused a dry run."""

    OURS = "the webhook"
    OUR_POLICY = "the policy"
    OUR_OUTAGE = "the webhook does not respond"
    OTHER = "another webhook"
    OTHER_OUTAGE = "another webhook does not respond"
    ROLES = "the roles of the user"
    SERVER = "the API server"


class DryRunRefusal(NamedTuple):
    """What refused a dry run, the name of the webhook or policy, and its message."""

    by: RefusedBy
    name: str
    message: str

    @property
    def trust_error(self) -> str:
        """Return why the API server does not trust our webhook, or "" where it does."""
        match = _UNTRUSTED.search(self.message) if self.by is RefusedBy.OUR_OUTAGE else None
        return match.group() if match else ""


def parse_refusal(
    refusal: ErrorDetails, our_webhooks: frozenset[str], policies: frozenset[str] = frozenset()
) -> DryRunRefusal:
    """Return what refused a dry run; our webhooks and policies are known by their names."""
    text = " ".join(refusal.message.split())
    denied, failed = _DENIED.search(text), _FAILED.search(text)
    if failed:
        name, message = failed["hook"], failed["why"]
        return DryRunRefusal(
            RefusedBy.OUR_OUTAGE if name in our_webhooks else RefusedBy.OTHER_OUTAGE, name, message
        )
    if denied:
        name, message = denied["hook"], denied["why"] or "without a reason"
        return DryRunRefusal(
            RefusedBy.OURS if name in our_webhooks else RefusedBy.OTHER, name, message
        )
    denied_by_policy = _DENIED_BY_POLICY.search(text)
    if denied_by_policy and denied_by_policy["policy"] in policies:
        return DryRunRefusal(
            RefusedBy.OUR_POLICY, denied_by_policy["policy"], denied_by_policy["why"]
        )
    if refusal.status == 403 and _NOT_ALLOWED.search(text):
        return DryRunRefusal(RefusedBy.ROLES, "", text)
    return DryRunRefusal(RefusedBy.SERVER, "", text or f"{refusal.status} {refusal.reason}")
