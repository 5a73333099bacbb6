"""Experiment dcape-t3.2: the thesis's traffic example on the real engine (section 3.1).

Two road sensors, the rows of table 3.1, its query in our CQL. Join, selection and projection are
taken as three queries, so that each row of table 3.2 has its figure. Errata: the speed in the last
row of table 3.2 is printed as 65, which is the other sensor's; the text projects the type where the
query projects the speed; '2 seconds' in section 3.2.2 are 2 minutes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from millstream.sim.plotting import mark_claim
from millstream_lab.claims import Claim, Row, Rows, about
from millstream_lab.experiment import EXPERIMENTS, Experiment, Progress

COLUMNS = {"minute": "long", "car_id": "string", "type": "string", "mph": "int"}
SENSOR_1 = (
    (0, "9034 TR", "Car", 55),
    (0, "FED 1", "Truck", 42),
    (1, "SOXFAN4", "Car", 50),
    (1, "8325 DL", "Car", 35),
    (1, "345 DGE", "Car", 65),
    (1, "UMASS1", "SUV", 45),
)
SENSOR_2 = (
    (0, "1345 FD", "Car", 34),
    (1, "MV 1223", "Truck", 53),
    (2, "SOXFAN4", "Car", 65),
    (2, "1492 CC", "Car", 32),
    (3, "UMASS1", "SUV", 23),
    (4, "1353 DW", "SUV", 56),
)
SENSORS = {"sensor1": SENSOR_1, "sensor2": SENSOR_2}
JOINED = (
    "FROM sensor2 [RANGE 2 MINUTES] AS r2, sensor1 [RANGE 2 MINUTES] AS r1 "
    "WHERE r1.car_id = r2.car_id"
)
CAR = "r1.type = 'Car'"
QUERIES = {
    "join": f"SELECT r1.car_id AS car_id, r1.type AS type, r1.mph AS mph, r2.mph AS mph_2 {JOINED}",
    "select": f"SELECT r1.car_id AS car_id, r1.type AS type, r1.mph AS mph, r2.mph AS mph_2 "
    f"{JOINED} AND {CAR}",
    "project": f"SELECT r1.car_id AS car_id, r1.mph AS mph {JOINED} AND {CAR}",
}
# (minute of the result, columns): the later of the two times, as the thesis's pairs '(1, 2)' say.
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "join": [(2, "SOXFAN4", "Car", 50, 65), (3, "UMASS1", "SUV", 45, 23)],
    "select": [(2, "SOXFAN4", "Car", 50, 65)],
    "project": [(2, "SOXFAN4", 50)],
}


def run_traffic(seed: int, quick: bool, progress: Progress) -> list[Row]:  # noqa: ARG001  (no chance)
    from millstream.app.session import Session  # noqa: PLC0415  (starts Spark)

    progress("the traffic example on Spark")
    rows: list[Row] = []
    with Session(master="local[1]") as session:
        for name in SENSORS:
            session.stream(name, columns=COLUMNS, time="timestamp_seconds(minute * 60)")
        found = {step: session.query(cql, step) for step, cql in QUERIES.items()}
        for name, sensed in SENSORS.items():
            session.push(name, [dict(zip(COLUMNS, row, strict=True)) for row in sensed])
            session.finish(name)
        for step, query in found.items():
            given = sorted(_plain(query.to_arrow().to_pylist()))
            rows += [{"operator": step, "row": "; ".join(map(str, row))} for row in given]
    return rows


def _wrong(step: str) -> Callable[[Rows], float]:
    """Rows that are missing or too many after a step."""
    wanted = ["; ".join(map(str, row)) for row in EXPECTED[step]]

    def count(rows: Rows) -> float:
        given = [str(row["row"]) for row in rows if row["operator"] == step]
        over = sum(max(0, given.count(text) - wanted.count(text)) for text in set(given))
        under = sum(max(0, wanted.count(text) - given.count(text)) for text in set(wanted))
        return float(over + under)

    return count


CLAIMS = tuple(
    Claim(
        f"table 3.2, after {step}: {'; '.join(map(str, EXPECTED[step]))}",
        about("rows missing or too many", _wrong(step), 0),
        beside=lambda rows, step=step: "; ".join(  # type: ignore[misc]
            row["row"] for row in rows if row["operator"] == step
        ),
    )
    for step in QUERIES
)


def _plain(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (round(row["ts"].timestamp() / 60), *(v for k, v in row.items() if k != "ts"))
        for row in rows
    ]


def plot(rows: Sequence[Row], figure: Any) -> None:
    axis = figure.subplots()
    steps = list(QUERIES)
    bars = axis.bar(steps, [sum(row["operator"] == step for row in rows) for step in steps], 0.5)
    axis.bar_label(bars)
    axis.set(ylabel="rows", xlabel="after")
    mark_claim(axis, "two rows after the join, one after selection and projection")


EXPERIMENTS.add(
    "dcape-t3.2",
    Experiment(
        "dcape-t3.2", "the traffic example on the real engine", "dcape", run_traffic, plot,
        CLAIMS, ("row",), real=True,
    ),
)  # fmt: skip
