"""Numbers that the paper prints, each with its place in the paper: ``book/paper_values.yml``, read only here."""

import pandas as pd
import yaml

from gdd.base.checks import GddError, shown
from gdd_book import checkout

PATH = checkout.BOOK / "paper_values.yml"


def table(name: str) -> pd.DataFrame:
    """One table of the paper, a row each; ``attrs`` hold ``place`` and ``unit``; GddError for an unknown name."""
    rows = _known("table", name)
    frame = pd.DataFrame(rows.pop("rows"))
    frame.attrs = rows
    return frame


def fact(name: str) -> dict:
    """One number of the paper's text: ``value``, ``unit``, ``place``; GddError for an unknown name."""
    return _known("fact", name)


def _known(kind: str, name: str) -> dict:
    known = yaml.safe_load(checkout.text(PATH))[f"{kind}s"]
    if not isinstance(name, str) or name not in known:
        raise GddError(f"paper {kind} {shown(name)} is not known; choose from {', '.join(known)}")
    return known[name]
