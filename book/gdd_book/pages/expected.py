"""What a page says of its own outcome: checked where it is computed, and said where it does not hold.

A reader's parameters may give another outcome than the book's, which is no error. The book is not built from a page
that contradicts itself (`gdd_book.pages.notebooks.execute`).
"""

from __future__ import annotations

#: beginning of the line that says so
UNLIKE = "At these parameters it is not so that "


def expect(holds: bool, sentence: str) -> None:
    """Print that ``sentence``, of the page, does not hold here; nothing if it does."""
    if not holds:
        print(f"{UNLIKE}{sentence}.")
