"""The commands for a cluster in the README and on the pages of docs/ run as they stand there."""

import asyncio
import os
import re
from pathlib import Path
from typing import Final

import pytest

from e2e.cluster.binaries import ensure_built
from e2e.fixtures.installation import Installation
from tests.support.repository import ROOT

_BLOCK: Final = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
# On clusters of their own: e2e/install/test_helm.py and e2e/sharing/test_guide.py.
_ELSEWHERE: Final = {"install", "gpu-sharing"}
_PAGES: Final = [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if _BLOCK.search(page.read_text()) and page.stem not in _ELSEWHERE
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
    script = _script(page)
    tools = (str(ROOT / ".venv" / "bin"), str(ensure_built().folder / "bin"), os.environ["PATH"])
    environment = {"KUBECONFIG": str(installation.cluster.kubeconfig), "PATH": ":".join(tools)}

    process = await asyncio.create_subprocess_exec(
        "bash",
        "-exuo",
        "pipefail",
        "-c",
        script,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()

    assert process.returncode == 0, output.decode()


def _script(page: Path) -> str:
    return "\n".join(_BLOCK.findall(page.read_text())) + (_UNDO if page == _README else "")
