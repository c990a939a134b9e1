"""What 515b908 left behind, as the upgrade on the chain begins with it."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from e2e.cluster.resources import Obj
from e2e.upgrade.leftovers import read

_NOW: Final = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_EVICTED_BY: Final = "trainer-kai.dev/evicted-by"


def _named(kind: str) -> dict[str, Obj]:
    return {it["metadata"]["name"]: it for it in read(_NOW).objects if it["kind"] == kind}


def test_the_newest_time_is_now_and_nothing_else_depends_on_it() -> None:
    """A day later all is a day later, to the second."""
    today, tomorrow = (
        json.dumps(read(_NOW + timedelta(days=it)).objects, sort_keys=True) for it in (0, 1)
    )

    assert max(_TIME.findall(today)) == "2030-01-02T03:04:05"
    assert max(_TIME.findall(tomorrow)) == "2030-01-03T03:04:05"
    assert _TIME.sub("", today) == _TIME.sub("", tomorrow)


def test_one_trainjob_was_caught_as_it_makes_room() -> None:
    """Suspended, with the note of that on the TrainJob alone, as that version wrote it."""
    noted = {name for name, it in _named("TrainJob").items() if _is_noted(it)}
    suspended = {name for name, it in _named("TrainJob").items() if it["spec"]["suspend"]}

    assert noted == suspended == {"lent"}
    assert not any(map(_is_noted, _named("PodGroup").values()))


def test_the_others_run_or_wait() -> None:
    """Two have pods on nodes, one of them a place for later; two have pods that wait."""
    pods = _named("Pod").values()
    of = {it["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"]: it for it in pods}
    kept = [
        name
        for name, it in _named("PodGroup").items()
        if "trainer-kai.dev/reserved" in it["metadata"]["annotations"]
    ]

    assert {name for name, it in of.items() if it["spec"].get("nodeName")} == {"plain", "staged"}
    assert {name for name, it in of.items() if not it["spec"].get("nodeName")} == {"waits", "claim"}
    assert [name.startswith("pg-staged-") for name in kept] == [True]


def _is_noted(obj: Obj) -> bool:
    return _EVICTED_BY in obj["metadata"].get("annotations", {})
