"""What a process and its Java child cost: CPU seconds and the greatest resident memory."""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_s: float
    peak_mb: float


class Meter:
    """Measures this process and its children from its making on; Linux's /proc only."""

    def __init__(self) -> None:
        self._pids = [os.getpid(), *children(os.getpid())]
        for pid in self._pids:
            with suppress(OSError):  # 5 resets the peak of resident memory
                Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._cpu_s = self._total_cpu_s()

    def usage(self) -> Usage:
        return Usage(self._total_cpu_s() - self._cpu_s, sum(map(_peak_mb, self._pids)))

    def _total_cpu_s(self) -> float:
        return sum(map(_cpu_s, self._pids))


def family_cpu_s(pid: int) -> float:
    """CPU seconds of a process and of all that are below it now."""
    return sum(map(_cpu_s, [pid, *children(pid)]))


def children(pid: int) -> list[int]:
    """All processes below one."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _parent(int(entry.name)) == pid:
            found += [int(entry.name), *children(int(entry.name))]
    return found


def _fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[1]) if fields else -1


def _cpu_s(pid: int) -> float:
    fields = _fields(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS if fields else 0.0


def _peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)
