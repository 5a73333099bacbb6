"""The benchmark of sharing: what it tells first; no Spark."""

from millstream_bench.throughput.sharing import _told


def test_the_best_of_others_is_told_first() -> None:
    lines: list[str] = []
    side = {"seconds": 10.0, "cpu_s": 12.0, "peak_mb": 900.0}
    others = {
        "plain_best": {"seconds": 120.0, "cpu_s": 130.0},
        "flink": {"seconds": 45.0},
        "plain": {"seconds": 150.0, "cpu_s": 200.0, "scaled_from": 0.25},
    }
    found = _told(30, side, others, {"rows": 5, "queries": 30}, lines.append)
    assert found["ratios"] == {"plain_best": 12.0, "flink": 4.5, "plain": 15.0}
    assert found["targets"] == {"plain_best": 15.0, "flink": 6.0, "plain": 12.0}
    order = [words for line in lines for words in ("best setting", "Flink", "two files a batch")
             if words in line]  # fmt: skip
    assert order == ["best setting", "Flink", "two files a batch"]
    assert "120.0 s, CPU 130 s: 12.0 times as long (target 15)" in lines[1]
    assert "(scaled from 1/4 of the input)" in lines[3]
