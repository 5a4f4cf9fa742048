"""Where runs keep their checkpoints, and how a run starts afresh without losing those that are there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

from gdd.data.sources import cache_folder

#: within `afresh`: what is called for every folder set aside, and the folders seen; None elsewhere
_AFRESH: ContextVar[tuple | None] = ContextVar("afresh", default=None)


def checkpoint_folder(name: str, parameters: Mapping[str, Any]) -> Path:
    """Folder where a run keeps its checkpoints: the same for the same parameters, so a second call resumes.

    It lies in ``GDD_CACHE``, else in the user's cache, and is not made here. The command line removes an experiment's
    own once its record is written.
    """
    text = json.dumps([name, dict(parameters)], sort_keys=True, default=list)
    root = Path(os.environ.get("GDD_CACHE") or cache_folder())
    folder = root / "checkpoints" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if _AFRESH.get() is not None:
        _set_aside_once(folder, *_AFRESH.get())
    return folder


@contextmanager
def afresh(say=lambda text: None) -> Iterator[None]:
    """Within this block every folder of checkpoints is empty when it is first asked for: an older one is renamed.

    ``say`` is called with a sentence for each folder that is set aside.
    """
    token = _AFRESH.set((say, set()))
    try:
        yield
    finally:
        _AFRESH.reset(token)


def _set_aside_once(folder: Path, say, seen: set[Path]) -> None:
    if folder not in seen and folder.is_dir():
        other = next(p for n in count(1) if not (p := folder.with_name(f"{folder.name}.aside{n}")).exists())
        folder.rename(other)
        say(f"old checkpoints set aside: {other}")
    seen.add(folder)
