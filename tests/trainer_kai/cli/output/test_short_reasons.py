"""Reasons in short form, as tables have them."""

import pytest

from tests.support.case import Case, ids
from trainer_kai.cli.output.short_reasons import SHORT_WIDTH, short_reason

# a reason and its sentence -> its short form
SHORT: list[Case[tuple[str, str], str]] = [
    Case(
        "a limit, with one unit",
        (
            "ExceedsLimit",
            (
                "Queue a has a limit of 16 GPU and uses 16 GPU; the PodGroup requests 8 GPU more. "
                "It can start when pods of queue a release 8 GPU"
            ),
        ),
        "limit 16 GPU, uses 16, needs 8",
    ),
    Case(
        "a limit with a note on its field, and terminating pods",
        (
            "ExceedsLimit",
            (
                "Queue a has a limit of 4 CPU (spec.resources.cpu.limit: 4000 is in millicores) "
                "and uses 4 CPU, and its terminating pods use 2 CPU; the PodGroup requests 1 CPU "
                "more. It"
            ),
        ),
        "limit 4 CPU, uses 4, needs 1",
    ),
    Case(
        "the head of a strict queue",
        (
            "WaitingForHead",
            (
                "Queue a starts its PodGroups in strict order, and default/big, which comes before "
                "it, waits (NoCapacity). It cannot start before default/big has started"
            ),
        ),
        "behind default/big",
    ),
    Case(
        "what is kept for it",
        (
            "NoCapacity",
            (
                "1 of 2 pods fits; 1 node has 8 GPU free. It is next in queue a: node-3 is kept "
                "since 2026-01-01T00:00:00Z, 8 of 16 GPU are there"
            ),
        ),
        "next in queue, 8 of 16 GPU kept for it",
    ),
    Case(
        "what is kept for another one",
        (
            "NoCapacity",
            (
                "0 of 1 pods fit; 2 nodes have 0 GPU free. 16 GPU are idle but kept for "
                "default/lim since 2026-01-01T00:00:00Z"
            ),
        ),
        "16 GPU are idle but kept for default/lim",
    ),
    Case(
        "what it lacks comes before what is kept for another one",
        (
            "NoCapacity",
            (
                "A pod requests 64 CPU, and none of the 4 nodes has 64 CPU free: 4 nodes have too "
                "little free (at most 62 CPU on one node). It can start when one of the nodes has "
                "64 CPU free. 8 GPU are idle but kept for default/lim since 2026-01-01T00:00:00Z"
            ),
        ),
        "needs 64 CPU; at most 62 CPU on one node",
    ),
    Case(
        "a quota",
        (
            "NonPreemptibleOverQuota",
            (
                "Queue a has a quota of 8 GPU, of which its non-preemptible pods use 4 GPU; the "
                "PodGroup is non-preemptible and requests 8 GPU more. It can"
            ),
        ),
        "quota 8 GPU, uses 4, needs 8",
    ),
    Case(
        "a quota that is exceeded unevictably",
        (
            "NonPreemptibleOverQuota",
            (
                "Queue a has a quota of 8 GPU and uses 12 GPU that cannot be reclaimed, because 1 "
                "PodGroup cannot be evicted (x); the PodGroup requests 4 GPU more. It can"
            ),
        ),
        "quota 8 GPU, 12 unreclaimable, needs 4",
    ),
    Case(
        "too little free for one pod",
        (
            "NoCapacity",
            (
                "A pod requests 0.5 CPU, 8 GPU, and none of the 4 nodes has 8 GPU free: 4 nodes "
                "have too little free (at most 4 GPU on one node). It can start"
            ),
        ),
        "needs 8 GPU; at most 4 GPU on one node",
    ),
    Case(
        "too little free for the rest of a gang",
        (
            "NoCapacity",
            (
                "2 of 5 pods fit; the next pod requests 8 GPU, and none of the 4 nodes then has 8 "
                "GPU free: 4 nodes have too little free (at most 4 GPU on one node). It can"
            ),
        ),
        "2 of 5 pods fit, the next needs 8 GPU",
    ),
    Case(
        "too little free for a gang on some nodes, and others do not match",
        (
            "NoCapacity",
            (
                "0 of 3 pods fit; the next pod requests 8 GPU, and none of the 5 nodes fits it: 4 "
                "nodes have too little free (at most 0 GPU on one node), 1 node is too small even "
                "when empty (it has 1 GPU). It can start when the nodes have enough free for 3"
            ),
        ),
        "0 of 3 pods fit, the next needs 8 GPU",
    ),
    Case(
        "a held queue",
        ("QueueHeld", "Queue a is held, so nothing starts in it (annotation x). It can start"),
        "queue a is held",
    ),
    Case(
        "no node matches",
        (
            "NoNodeMatches",
            (
                "A pod requests 8 GPU, and none of the 4 nodes fits it: 4 nodes do not match its "
                "selector (zone). It can start when"
            ),
        ),
        "4 nodes do not match its selector (zone)",
    ),
    Case(
        "missing pods",
        ("PodsMissing", "Pods are missing: 3 of 8 exist in sub-group node. It can start"),
        "3 of 8 pods exist",
    ),
    Case(
        "an earlier stage",
        ("WaitingForStage", "0 of 1 pods of replicatedJob data have succeeded. It can start"),
        "data have succeeded: 0 of 1",
    ),
    Case(
        "victims",
        (
            "WaitingForVictims",
            "4 pods are nominated to 2 nodes, where evicted pods are terminating",
        ),
        "4 pods are nominated to 2 nodes",
    ),
    Case("an unknown sentence", ("Other", "It waits for x. It can start when"), "It waits for x"),
    Case("a long one", ("Other", "x" * 80), "x" * 59 + "…"),
]


@pytest.mark.parametrize("case", SHORT, ids=ids)
def test_the_numbers_of_a_sentence_are_kept(case: Case[tuple[str, str], str]) -> None:
    """In at most 60 characters."""
    text = short_reason(*case.given)

    assert text == case.want
    assert len(text) <= SHORT_WIDTH
