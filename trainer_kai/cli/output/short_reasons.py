"""Each reason in short form, for tables: the numbers of its sentence, in at most 60 characters.

The sentences are those of `scheduler.core.messages` and of `why`. A sentence of another version
that no pattern knows is cut after its first part.
"""

import re
from functools import lru_cache
from typing import Final

from trainer_kai.api.reasons import UnschedulableReason
from trainer_kai.cli.output.table import truncated

SHORT_WIDTH: Final = 60

_NOTE: Final = re.compile(r" \((?:spec\.|label )[^()]*\)")  # which field has a number
_SENTENCE_END: Final = re.compile(r"\. (?=[A-Z])|\.$")
_BOUND: Final = r"(?P<bound>.+?)"
_LACK: Final = r".*?nodes?(?: then)?(?: does not)? ha(?:s|ve) (?!too little|enough)(.+?) free"
_PATTERNS: Final[tuple[tuple[UnschedulableReason, str, str], ...]] = (
    (
        UnschedulableReason.EXCEEDS_LIMIT,
        (
            rf"a limit of {_BOUND} and uses (?P<uses>.+?)"
            r"(?:, and its terminating pods use .+?)?; .*?requests (?P<needs>.+?) more"
        ),
        "limit {bound}, uses {uses}, needs {needs}",
    ),
    (
        UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA,
        (
            rf"a quota of {_BOUND}, of which its non-preemptible pods use (?P<uses>.+?); "
            r".*?requests (?P<needs>.+?) more"
        ),
        "quota {bound}, uses {uses}, needs {needs}",
    ),
    (
        UnschedulableReason.NON_PREEMPTIBLE_OVER_QUOTA,
        (
            rf"a quota of {_BOUND} and uses (?P<uses>.+?) that cannot be reclaimed.*?"
            r"requests (?P<needs>.+?) more"
        ),
        "quota {bound}, {uses} unreclaimable, needs {needs}",
    ),
    (UnschedulableReason.QUEUE_HELD, r"^Queue (.+?) is held", "queue {0} is held"),
    (UnschedulableReason.WAITING_FOR_HEAD, r", and (.+?), which comes before it", "behind {0}"),
    (UnschedulableReason.PODS_MISSING, r"missing: (\d+ of \d+) exist", "{0} pods exist"),
    (
        UnschedulableReason.WAITING_FOR_STAGE,
        r"(\d+ of \d+) pods of replicatedJob (.+?)(?:\. |$)",
        "{1}: {0}",
    ),
    (UnschedulableReason.PREEMPTION_DELAY, r"evicted for it before ([^,]+),", "evicts from {0}"),
    (UnschedulableReason.WAITING_FOR_VICTIMS, r"^(.+?), where evicted pods", "{0}"),
    (UnschedulableReason.NO_NODE_MATCHES, r"\bfits? it: (.+?)(?:\. |$)", "{0}"),
    *(
        row
        for reason in (UnschedulableReason.FRAGMENTED, UnschedulableReason.NO_CAPACITY)
        for row in (
            (
                reason,
                r"It is next in queue .+?, ([\d.]+ of [\d.]+ GPU) (?:is|are) there",
                "next in queue, {0} kept for it",
            ),
            (reason, r"GPU free.*?([\d.]+ GPU (?:is|are) idle but kept for \S+)", "{0}"),
            (reason, rf"^(\d+ of \d+) pods fits?; {_LACK}", "{0} pods fit, the next needs {1}"),
            (
                reason,
                r"^(\d+ of \d+) pods fits?; the next pod requests (.+?), and",
                "{0} pods fit, the next needs {1}",
            ),
            (reason, rf"{_LACK}: .*?\((.+?)\)[.,]", "needs {0}; {1}"),
            (reason, r"\bfits? it: (.+?)(?:\. |$)", "{0}"),
        )
    ),
)


@lru_cache(maxsize=1024)  # many workloads of a queue wait for the same
def short_reason(title: str, message: str) -> str:
    """Return what a reason says in a table, without its title."""
    text = _NOTE.sub("", " ".join(message.split()))
    for reason, pattern, template in _PATTERNS:
        found = re.search(pattern, text) if reason == title else None
        if found is not None:
            named = _with_one_unit(found.groupdict())
            return truncated(template.format(*found.groups(), **named), SHORT_WIDTH)
    return truncated(_SENTENCE_END.split(text, maxsplit=1)[0], SHORT_WIDTH)


def _with_one_unit(amounts: dict[str, str]) -> dict[str, str]:
    """Name the unit of amounts once: "16 GPU", "16", "8"."""
    units = {text.partition(" ")[2] for text in amounts.values()}
    if len(units) != 1 or "," in "".join(amounts.values()):
        return amounts
    first, *others = amounts.items()
    return dict([first, *((name, text.partition(" ")[0]) for name, text in others)])
