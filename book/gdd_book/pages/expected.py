"""What a page says of its own outcome: checked where it is computed, and said where it does not hold.

The book is not built from a page that contradicts itself; a reader's parameters may give another outcome.
"""

#: beginning of the line that says so
UNLIKE = "At these parameters it is not so that "


def expect(holds: bool, sentence: str) -> None:
    """Print that ``sentence``, of the page, does not hold here; nothing if it does."""
    if not holds:
        print(f"{UNLIKE}{sentence}.")
