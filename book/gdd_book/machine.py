"""What a run says of the machine: processor and cores in words, peak memory; no name of it or of its owner."""

from __future__ import annotations

import os
import platform
import re
import resource
import sys
from functools import cache
from pathlib import Path


@cache
def in_words() -> str:
    """Processor, cores and system."""
    info = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else []
    model = models[0] if models else platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"


def peak_memory() -> int:
    """Bytes that this process has held at most so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kibibytes everywhere else


def memory_in_words() -> str:
    """Peak memory for a person to read."""
    peak = peak_memory()
    return f"{peak / 1e9:.1f} GB" if peak >= 1e9 else f"{peak / 1e6:.0f} MB"
