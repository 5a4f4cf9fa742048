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

    @classmethod
    def read(cls, path: str) -> str:
        """Text of the chapter as notebook JSON; a file that is a notebook already is passed on."""
        return nbformat.writes(jupytext.read(path))

    @classmethod
    def write(cls, content: str, path: str) -> None:
        """Write a notebook; a chapter's own text is never overwritten by its outputs."""
        if not path.endswith(".ipynb"):
            raise GddError(f"output {path}: the name of a notebook (.ipynb) is needed")
        Path(path).write_text(content, encoding="utf-8")

    @classmethod
    def listdir(cls, path: str) -> list[str]:
        """Files in a folder of the book."""
        return sorted(os.listdir(path))

    @classmethod
    def pretty_path(cls, path: str) -> str:
        """Name that messages show."""
        return path
