"""The whole run stays within its time budget, and every test file has its durations."""

from tests.architecture.durations import BUDGET_S, WORKERS, all_test_files, by_chain, makespan, read

_HOW = "stage,chain,file,seconds by hand (without a chain its file), or `make test durations`"


def test_every_test_file_has_a_row() -> None:
    """A new file costs time, and its row says how much."""
    rows = {row.file for row in read()}

    assert all_test_files() - rows == set(), f"add them to tests/durations.csv: {_HOW}"
    assert rows - all_test_files() == set(), "these files are gone: delete their rows"


def test_the_whole_run_stays_within_its_budget() -> None:
    """What does not fit goes into the soak, or takes the place of another test."""
    spans = {
        stage: makespan(chains.values(), WORKERS[stage])
        for stage, chains in by_chain(read()).items()
    }

    assert min(spans.values()) > 0
    assert sum(spans.values()) <= BUDGET_S, spans


def test_the_longest_chains_are_spread_over_the_workers() -> None:
    """The longest alone, the others one after the other."""
    assert makespan([10.0, 4.0, 5.0], 2) == 10.0
    assert makespan([4.0, 5.0, 10.0, 10.0], 2) == 15.0
