"""When a job on a cluster is over: results about the system itself never end, and need not."""

from types import SimpleNamespace
from typing import Any

from millstream.runs.cluster_run import ClusterRun, Output
from millstream.runs.display import Silent
from millstream.store.delivery import Result


class Client:
    """A manager whose one stream ends when it is told to."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names, self.ended = names, 0

    def streams(self) -> dict[str, Any]:
        return {"a": {"figures": {"ended": self.ended}}}

    def queries(self) -> list[dict[str, Any]]:
        return [{"name": name, "state": "running"} for name in self.names]


def run_of(**endless: bool) -> tuple[ClusterRun, Client]:
    client = Client(tuple(endless))
    job: Any = SimpleNamespace(streams=[SimpleNamespace(name="a")], queries=[])
    found = ClusterRun.__new__(ClusterRun)
    found.job, found.client = job, client  # type: ignore[assignment]
    found._shown, found._positions, found._input_over = Silent(), {}, False
    found.rejects = []
    found.results = [
        Output(name, Result(name, f"o:{name}", ()), (), endless=value)
        for name, value in endless.items()
    ]
    return found, client


def test_the_finite_results_decide() -> None:
    job, client = run_of(sums=False, watch=True)
    job._look()
    assert not job._over()
    client.ended = 1
    job._look()
    assert not job._over()  # what has been read is not all processed
    job.results[0].ended = True
    assert job._over()


def test_where_there_are_none_the_streams_do() -> None:
    job, client = run_of(watch=True)
    job._look()
    assert not job._over()
    client.ended = 1
    assert not job._over()
    job._look()
    assert job._over()
