"""Lets papermill read a chapter as it is written; named in ``pyproject.toml`` as its entry point for ``book/``.

A module of its own, because papermill loads it while it is itself being imported.
"""

from __future__ import annotations

import os
from pathlib import Path

import jupytext
import nbformat

from gdd.base.checks import GddError


class ChapterHandler:
    """Reads ``book/....md`` as a notebook; papermill chooses it by the beginning of the path, so from the root only."""

    listdir, pretty_path = staticmethod(os.listdir), staticmethod(str)

    @staticmethod
    def read(path: str) -> str:
        """Text of the chapter as notebook JSON; a file that is a notebook already is passed on."""
        return nbformat.writes(jupytext.read(path))

    @staticmethod
    def write(content: str, path: str) -> None:
        """Write a notebook; a chapter's own text is never overwritten by its outputs."""
        if not path.endswith(".ipynb"):
            raise GddError(f"output {path}: the name of a notebook (.ipynb) is needed")
        Path(path).write_text(content, encoding="utf-8")
