"""What tests of several modules share."""

import time

import pytest


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still; its only entry is the time in seconds, to be moved on by the test."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now
