"""The picture of the demo: one table a moment, small, and with nothing of the machine in it."""

import re
from xml.etree import ElementTree as ET

from e2e.demo.recording import key_frames, picture
from e2e.demo.screen import Frame
from e2e.demo.status_rows import Ended, Row
from tests.support.repository import ROOT

_PICTURE = ROOT / "docs" / "demo.svg"


def _frame(after_s: float, state: str, message: str = "") -> Frame:
    return Frame(after_s, (Row("job", "team-a", "1/1", "1 of 1", state, message),))


def test_states_that_last_are_shown_with_their_last_message() -> None:
    """A state that is over at once is left out, and so is the time before the first row."""
    frames = [
        *(Frame(0, ()), _frame(1, "accepted"), _frame(1.1, "waits")),
        *(_frame(2, "waits", "NoCapacity"), _frame(5, "runs"), _frame(9, "Complete")),
    ]

    assert key_frames(frames) == [_frame(2, "waits", "NoCapacity"), _frame(5, "runs")]


def test_each_table_is_visible_in_its_turn_and_the_result_without_animation() -> None:
    """The times of a round are divided without a gap; a viewer without animation shows the last."""
    frames = [_frame(1, "waits"), _frame(5, "runs"), _frame(9, "Complete")]
    text = picture(frames, [Ended("job", "team-a", "4.0 s", "-", "-", "n1", "Complete")], "a title")

    assert "after 1.0 s" in _plain(text)
    assert "after 9.0 s: the result" in _plain(text)
    shown = re.findall(r"@keyframes k\d.* ([0-9.]+)% .*visible.* ([0-9.]+)% ", text)
    assert [begin for begin, _ in shown] == ["0.000", *(end for _, end in shown[:-1])]
    assert shown[-1][1] == "100.000"
    assert "#g2 { visibility: visible }" in text.partition("@media")[0]


def test_the_committed_picture_is_of_a_whole_run() -> None:
    """`make recording` wrote it: all TrainJobs are Complete, and it loads nothing."""
    text = _PICTURE.read_text()

    assert len(text.encode()) < 150_000
    plain = _plain(text)
    for job in ("night", "llm", "moe", "tune", "sft", "eval"):
        assert job in plain
    assert plain.count("Complete") >= 6
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"/(home|root|tmp|work)\b|@import|<script", text)


def _plain(text: str) -> str:
    """Return the words of a picture; it has to be well-formed."""
    words = ET.fromstring(text).itertext()
    return " ".join(words).replace("\N{NO-BREAK SPACE}", " ")
