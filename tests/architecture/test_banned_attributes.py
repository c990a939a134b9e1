"""What the import linter cannot see: impure attributes of modules that are otherwise pure.

Ruff bans these by name. A snippet is checked as if it stood in a room, under the house's settings.
"""

import re
import subprocess
import sys

import pytest

from tests.support.case import Case, ids
from tests.support.repository import ROOT

RUFF = (sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise")

# (module, imported, used) -> names refused
CASES: list[Case[tuple[str, str, str], set[str]]] = [
    Case(
        "the core draws a number",
        ("scheduler/core/new.py", "import numpy as np", "np.random.default_rng(7)"),
        {"numpy.random"},
    ),
    Case(
        "the core draws a number by another name",
        ("scheduler/core/new.py", "from numpy.random import default_rng", "default_rng(7)"),
        {"numpy.random"},
    ),
    Case(
        "a policy looks at the clock",
        ("scheduler/policies/new.py", "import datetime as dt", "dt.datetime.now(dt.UTC)"),
        {"datetime.datetime.now"},
    ),
    Case(
        "a rule looks at the calendar",
        ("trainer_kai/policy/new.py", "from datetime import date", "date.today()"),
        {"datetime.date.today"},
    ),
    Case(
        "the core computes",
        ("scheduler/core/new.py", "import numpy as np", "np.zeros(7)"),
        set(),
    ),
    Case(
        "a rule parses a time it was given",
        ("trainer_kai/policy/new.py", "import datetime as dt", "dt.datetime.fromisoformat"),
        set(),
    ),
    Case(
        "a test draws a number",
        ("tests/new.py", "import numpy as np", "np.random.default_rng(7)"),
        set(),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_impure_attributes_are_refused(case: Case[tuple[str, str, str], set[str]]) -> None:
    """Chance and clocks are banned by name in the product, and only there."""
    module, imported, used = case.given

    done = subprocess.run(
        [*RUFF, "--stdin-filename", module, "-"],
        cwd=ROOT,
        input=f"{imported}\n\nVALUE = {used}\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.stderr == ""
    assert set(re.findall(r"TID251 `([\w.]+)` is banned", done.stdout)) == case.want
