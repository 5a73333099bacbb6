"""What is wrong right now, as faults come, overlap and go."""

import numpy as np
import pytest

from millstream.core.errors import UsageError
from millstream.sim.cluster.hosts import Hosts
from millstream.sim.cluster.network import Network, NetworkModel
from millstream.sim.faults import KINDS, Fault, Weather

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def weather() -> Weather:
    return Weather(NAMES, Hosts.of(np.ones(4)), Network(NetworkModel(), 4))


def test_overlapping_partitions_part_what_either_parts(weather: Weather) -> None:
    first, second = Fault("partition", 0, 9, ("a", "b")), Fault("partition", 1, 5, ("b", "c"))
    weather.begin(first, 0.0)
    assert weather.network.connected(0, 1)
    assert not weather.network.connected(1, 2)
    weather.begin(second, 1.0)
    groups = [[m for m in range(4) if weather.network.connected(n, m)] for n in range(4)]
    assert groups == [[0], [1], [2], [3]]
    weather.end(first, 5.0)
    assert weather.network.connected(1, 2)
    assert weather.network.connected(0, 3)
    assert not weather.network.connected(0, 1)
    weather.end(second, 9.0)
    assert all(weather.network.connected(0, n) for n in range(4))


def test_a_host_struck_twice_is_up_when_both_have_passed(weather: Weather) -> None:
    long, short = Fault("crash", 0, 9, ("a",)), Fault("crash", 2, 4, ("a", "b"))
    weather.begin(long, 0.0)
    weather.begin(short, 2.0)
    weather.end(short, 4.0)
    assert weather.hosts.up.tolist() == [False, True, True, True]
    assert weather.hosts.down_since_s[0] == 0.0
    weather.end(long, 9.0)
    assert weather.hosts.up.all()


def test_slowness_multiplies_and_chances_combine(weather: Weather) -> None:
    for fault in (
        Fault("slow_host", 0, None, ("c",), factor=2.0),
        Fault("slow_host", 0, None, ("c", "d"), factor=3.0),
        Fault("loss", 0, probability=0.5),
        Fault("loss", 0, probability=0.5),
        Fault("clock", 0, None, ("a",), offset_s=5.0, drift=0.1),
        Fault("clock", 0, None, ("a", "b"), offset_s=-2.0),
        Fault("slow_link", 0, None, ("a", "b"), factor=10.0),
        Fault("cut_link", 0, None, ("a", "d")),
    ):
        weather.begin(fault, 0.0)
    assert weather.hosts.speed.tolist() == pytest.approx([1, 1, 1 / 6, 1 / 3])
    assert weather.probability("loss") == pytest.approx(0.75)
    assert weather.probability("repeat") == 0
    assert weather.clock("a") == pytest.approx((3.0, 0.1))
    assert weather.clock("c") == (0, 0)
    assert weather.network.latency_s(1, 0) == pytest.approx(1e-3)
    assert not weather.network.connected(3, 0)
    assert weather.network.connected(3, 1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "crash", "at_s": 5, "until_s": 5, "hosts": ("a",)}, "before it begins"),
        ({"kind": "loss", "at_s": 0, "probability": 1.5}, "probability"),
        ({"kind": "slow_host", "at_s": 0, "hosts": ("a",), "factor": 0}, "factor above 0"),
        ({"kind": "clock", "at_s": 0, "hosts": ("a",), "drift": -1}, "drift above -1"),
    ],
)
def test_senseless_faults_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Fault(**fields)  # type: ignore[arg-type]


def test_every_kind_is_known_by_name() -> None:
    assert len(set(KINDS)) == 8


def test_many_partitions_at_once(weather: Weather) -> None:
    for n in range(140):
        weather.begin(Fault("partition", 0, None, (NAMES[n % 2],)), 0.0)
    groups = [[m for m in range(4) if weather.network.connected(n, m)] for n in range(4)]
    assert groups == [[0], [1], [2, 3], [2, 3]]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "clock", "at_s": 0, "hosts": ("a",), "drift": 1e9}, "cannot drift"),
        (
            {"kind": "slow_link", "at_s": 0, "hosts": ("a", "b"), "bandwidth_mbps": -5},
            "bandwidth_mbps above 0",
        ),
    ],
)
def test_faults_beyond_nature_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Fault(**fields)  # type: ignore[arg-type]


def test_slow_clocks_never_stand_still_together(weather: Weather) -> None:
    for _ in range(2):
        weather.begin(Fault("clock", 0, None, ("a",), drift=-0.6), 0.0)
    assert -1 < weather.clock("a")[1] < -0.9
