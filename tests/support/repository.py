"""The files of this repository, as git sees them: tracked, or present and not ignored."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]


def project_files(root: Path = ROOT) -> tuple[Path, ...]:
    """Return every file of the repository below *root*, sorted."""
    listed = subprocess.run(
        [
            "git",
            "-c",
            f"safe.directory={root}",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    names = {root / name for name in listed.stdout.split("\0") if name}
    return tuple(sorted(path for path in names if path.is_file()))
