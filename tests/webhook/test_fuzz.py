"""Broken reviews for a moment; `make fuzz` sends them for a minute."""

from tests.webhook.fuzz import fuzz


async def test_whatever_is_sent_is_answered() -> None:
    """Without a 5xx, in time, and all the same afterwards."""
    result = await fuzz(0, seed=1, least=400)

    result.check()
    assert {
        "400",
        "denied with 400",
        "denied with 422",
        "patched",
        "allowed",
    } <= result.answers.keys()
