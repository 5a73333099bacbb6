"""Deploys one query over real processors in network namespaces, by one planner after the other."""

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

from millstream_lab.namespaces import why_impossible
from millstream_lab.network.processors import compare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planner", action="append", help="baseline, optimal_tree, edge, ...")
    parser.add_argument("--seconds", type=float, default=15.0, help="of measuring each")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    reason = why_impossible()
    if reason:
        print(f"error: {reason}", file=sys.stderr)
        return 2

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind
    with tempfile.TemporaryDirectory() as folder:
        planners = given.planner or ["baseline", "optimal_tree"]
        found = compare(Path(folder), planners, seconds=given.seconds, progress=tell)
    if given.json:
        print(json.dumps([one.to_json() for one in found], indent=2))
        return 0
    print(
        f"{'planner':<14}{'bytes/s promised':>18}{'measured':>12}{'off':>8}{'way':>9}{'delay':>10}"
    )
    for one in found:
        print(
            f"{one.planner:<14}{one.promised_bytes_per_s:>18,.0f}"
            f"{one.measured_bytes_per_s:>12,.0f}{one.off:>8.1%}"
            f"{one.promised_delay_ms:>6g} ms{one.median_delay_ms or 0:>7.0f} ms"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
