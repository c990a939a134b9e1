"""The commands for a cluster in the README and on the pages of docs/ run as they stand there."""

from pathlib import Path
from typing import Final

import pytest

from e2e.fixtures.installation import Installation
from e2e.fixtures.page_commands import command_blocks, run_script
from tests.support.repository import ROOT

# On clusters of their own: e2e/install/test_helm.py (two pages) and e2e/sharing/test_guide.py.
_ELSEWHERE: Final = {"install", "autoscaling", "gpu-sharing"}
_PAGES: Final = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if command_blocks(page) and page.stem not in _ELSEWHERE
]
_README: Final = ROOT / "README.md"
# What the README leaves on a cluster that other tests use, too.
_UNDO: Final = """
kubectl delete trainjob yours --cascade=foreground
kubectl delete role,rolebinding trainer-kai-use-team-b
kubectl annotate queue team-b trainer-kai.dev/allow-delete=true
kubectl delete queue team-b
"""


@pytest.mark.parametrize("page", [_README, *_PAGES], ids=lambda page: page.stem)
async def test_the_commands_of_a_page_succeed(page: Path, installation: Installation) -> None:
    """A user can copy them in their order; the first that fails ends the test."""
    script = "\n".join(command_blocks(page)) + (_UNDO if page == _README else "")

    await run_script(installation.cluster, script)
