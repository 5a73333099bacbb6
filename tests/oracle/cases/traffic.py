"""The traffic example of the D-CAPE thesis, section 3.1, tables 3.1 and 3.2.

Cars that passed sensor 2 and sensor 1 within two minutes. The thesis' last table prints the speed
of the other sensor: R1.MPH is 50, as its own join and select tables say.
"""

from oracle.cases.case import Case, Scene, rows, stream
from oracle.model import MINUTE, Range, Select, Source, expr, item

SCHEMA = {"carID": "string", "type": "string", "MPH": "int"}
SENSOR_1 = stream(
    "Sensor1",
    SCHEMA,
    [
        (0, "9034 TR", "Car", 55),
        (0, "FED 1", "Truck", 42),
        (60, "SOXFAN4", "Car", 50),
        (60, "8325 DL", "Car", 35),
        (60, "345 DGE", "Car", 65),
        (60, "UMASS1", "SUV", 45),
    ],
)
SENSOR_2 = stream(
    "Sensor2",
    SCHEMA,
    [
        (0, "1345 FD", "Car", 34),
        (60, "MV 1223", "Truck", 53),
        (120, "SOXFAN4", "Car", 65),
        (120, "1492 CC", "Car", 32),
        (180, "UMASS1", "SUV", 23),
        (240, "1353 DW", "SUV", 56),
    ],
)
BOTH = (Source("Sensor2", "R2", Range(2 * MINUTE)), Source("Sensor1", "R1", Range(2 * MINUTE)))

TRAFFIC = Scene(
    "traffic",
    (SENSOR_1, SENSOR_2),
    (
        Case(
            "join_of_both_sensors",
            Select(
                (
                    item("R1.carID"),
                    item("R1.type"),
                    item("R1.MPH"),
                    item("R2.type", "type2"),
                    item("R2.MPH", "MPH2"),
                ),
                BOTH,
                where=expr("R1.carID = R2.carID"),
            ),
            "SELECT R1.carID, R1.type, R1.MPH, R2.type AS type2, R2.MPH AS MPH2"
            " FROM Sensor2 AS R2 [RANGE 2 MINUTES], Sensor1 AS R1 [RANGE 2 MINUTES]"
            " WHERE R1.carID = R2.carID",
            rows(("SOXFAN4", "Car", 50, "Car", 65, 120), ("UMASS1", "SUV", 45, "SUV", 23, 180)),
        ),
        Case(
            "cars_that_turned_left",
            Select(
                (item("R1.carID"), item("R1.MPH")),
                BOTH,
                where=expr("R1.carID = R2.carID AND R1.type = 'Car'"),
            ),
            "SELECT R1.carID, R1.MPH"
            " FROM Sensor2 AS R2 [RANGE 2 MINUTES], Sensor1 AS R1 [RANGE 2 MINUTES]"
            " WHERE R1.carID = R2.carID AND R1.type = 'Car'",
            rows(("SOXFAN4", 50, 120)),
            other_spelling="SELECT R1.carID, R1.MPH\n"
            "FROM Sensor2 as R2 [Range 2min], Sensor1 as R1 [Range 2min]\n"
            'WHERE R1.carID = R2.carID AND R1.type = "Car";',
        ),
    ),
)
