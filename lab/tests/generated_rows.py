"""Rows made up, for claims of experiments that have no stored run which speaks of them."""

from millstream_lab.claims import Row
from millstream_lab.dcape.traffic import EXPECTED

MANAGER: list[Row] = [
    {
        "processors": 5,
        "phase": phase,
        "cpu": 0.3 if phase == "planning" else 0.01 + 0.001 * second,
        "bytes_in": 380.0 + 10 * second,
        "bytes_out": 700.0 + 20 * second,
        "memory_mb": 100.0 + second,
    }
    for phase in ("planning", "quiet")
    for second in range(5)
]
GENERATED: dict[str, list[Row]] = {
    "dcape-t3.2": [
        {"operator": step, "row": "; ".join(map(str, row))}
        for step, rows in EXPECTED.items()
        for row in rows
    ],
    "dcape-4.3": [
        {"requests_wanted": rate, "requests": rate, "rows_per_s": 30_000 - 3 * rate}
        for rate in (0, 10, 50, 1000)
    ],
    "dcape-4.4": [
        {"way": "told", "consumers": 12, "asked_per_s": 2.0, "cpu_share": 0.02},
        {"way": "polling", "consumers": 12, "asked_per_s": 550.0, "cpu_share": 0.25},
    ],
    "dcape-4.6": [
        {"connections": count, "rows_per_s": 12_000 + 600 * count} for count in (0, 2, 4, 8, 24)
    ],
    "dcape-4.8": MANAGER,
    "dcape-4.9": MANAGER,
    "dcape-4.10": MANAGER,
    "dcape-5.11": [
        {
            "run": f"{count} processors",
            "seed": 0,
            "processors": count,
            "minute": minute / 2,
            "rows_held_max": 1000 * minute // count,
            "died_at_minute": None,
        }
        for count in (1, 3, 5)
        for minute in range(1, 61)
    ],
    "placement-growth": [
        {"hosts": hosts, "policy": policy, "cpu_s": hosts / 20, "worst_ratio": 20.0}
        for hosts in (32, 100, 1000)
        for policy in ("flow_aware", "least_ratio")
    ],
    "sqpr-4a": [
        {"panel": panel, "hosts": 50, "limit_s": limit_s, "planner": planner, "submitted": count,
         "admitted": share * count}
        for panel, planner, share, limit_s in (
            *((panel, planner, share, None)
              for panel in ("tight", "literal", "solver")
              for planner, share in (("sqpr", 0.8), ("heuristic", 0.6), ("aggregate host", 0.7),
                                     ("proven bound", 0.9))),
            *(("solver", f"sqpr_milp, {limit_s:g} s", 0.75, limit_s)
              for limit_s in (5.0, 30.0, 60.0)),
        )
        for count in (500, 1000)
    ],
    "sqpr-4b": [
        {
            "panel": panel,
            "hosts": hosts,
            "planner": planner,
            "batch": batch,
            "limit_s": 30.0 if planner == "sqpr_milp" else None,
            "admitted": 700 + batch,
            "median_ms": 2.0,
        }
        for panel, hosts, planner in (
            ("fast", 50, "sqpr"), ("fast", 50, "heuristic"), ("solver", 50, "sqpr_milp"),
        )
        for batch in (1, 2, 4)
    ],
    "sqpr-4c": [
        {"hosts": 50, "streams": n, "zipf": zipf, "admitted": 500 + 200 * zipf - n / 10}
        for n in (250, 500, 1000)
        for zipf in (0.0, 0.5, 1.0, 1.5)
    ],
    "sqpr-5a": [
        {"hosts": hosts, "planner": planner, "admitted": taken * hosts, "ratio": ratio}
        for hosts in (25, 50, 100)
        for planner, taken, ratio in (("sqpr", 19, 1.1), ("aggregate host", 18, 1.0))
    ],
    "sqpr-5b": [
        {"hosts": 50, "cpu": cpu, "bandwidth": "1 Gbps", "planner": "sqpr", "admitted": 90 * cpu,
         "ratio": 1.0 + cpu / 100}
        for cpu in (7, 14, 21, 28)
    ],
    "sqpr-5c": [
        {"hosts": 50, "bandwidth": name, "arity": arity, "planner": planner,
         "admitted": 1000 - 100 * arity, "ratio": 1.0 + arity / 50}
        for name in ("60 Mbps", "1 Gbps")
        for arity in (2, 3, 4, 5)
        for planner in ("sqpr", "aggregate host")
    ],
    "sqpr-6a": [
        {"hosts": hosts, "in_model": hosts, "limit_s": 100.0, "planner": "sqpr_milp",
         "seconds": hosts / 50 + probe, "proven": probe < 3}
        for hosts in (15, 50, 100, 150)
        for probe in range(4)
    ],
    "sqpr-6b": [
        {"varied": varied, "arity": arity, "hosts": hosts, "in_model": hosts, "limit_s": 100.0,
         "planner": "sqpr_milp", "seconds": arity / 10 + hosts / 20, "proven": True}
        for varied, arity, hosts in (
            ("arity", 2, 50), ("arity", 3, 50), ("arity", 5, 50),
            ("hosts", 3, 25), ("hosts", 3, 50), ("hosts", 3, 100),
        )
    ],
    "sqpr-7a": [
        {"seed": seed, "planner": planner, "submitted": count, "admitted": count * share + seed}
        for seed in range(5)
        for planner, share in (("sqpr", 0.9), ("soda", 0.7))
        for count in (50, 150, 250)
    ],
}  # fmt: skip
