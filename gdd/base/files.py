"""Files that are written whole or not at all, whatever ends the process and whenever."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_whole(path: Path, previous: Path | None = None) -> Iterator[Path]:
    """Give a temporary path; what the block has left there is synced, then takes the place of ``path``.

    What was at ``path`` stays until then, and afterwards at ``previous``, if that is named. A block that fails leaves
    nothing behind. One that is killed leaves its temporary file, which the next one removes.

    *Checked:* tests/test_files.py, tests/test_killed.py.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")  # of this process: two may write the same file
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        if previous is not None:
            with suppress(FileNotFoundError):
                os.replace(path, previous)
        os.replace(part, path)
    finally:
        with suppress(OSError):  # it is there only if something failed
            part.unlink()


def _remove_leftovers(path: Path) -> None:
    """Remove what killed processes have left of ``path``; what a living one is writing stays."""
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        process = part.name.split(".")[-2]
        if not (process.isdigit() and _lives(int(process))):
            with suppress(OSError):
                part.unlink()


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True
