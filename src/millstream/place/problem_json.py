"""The planning problem as JSON: reads what a user wrote, says exactly where it is wrong.

Turns text or parsed JSON into a checked `Problem` and back; never guesses a missing field.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

from millstream.cql.suggestions import nearest
from millstream.errors import UsageError
from millstream.place.problem import (
    Host,
    Link,
    Links,
    Operator,
    Problem,
    Query,
    Stream,
    Weights,
    check_problem,
)

SECTIONS = ("hosts", "links", "streams", "operators", "queries", "weights", "timeout_s")
NUMBER_HINT = "a number of at most 308 digits"


def read_json(path: Path) -> Any:
    """A file's JSON, or a `UsageError` with line and column."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}", detail=str(error.strerror or error)) from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{path} is not JSON",
            detail=f"line {error.lineno}, column {error.colno}: {error.msg}",
        ) from None
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply") from None
    except ValueError as error:  # Python reads no whole number of thousands of digits
        raise UsageError(f"{path} is not JSON that can be read", detail=str(error)) from None


def read_problem(path: Path) -> Problem:
    return problem_from_json(read_json(path))


def problem_from_json(document: Any) -> Problem:
    """A checked problem from parsed JSON."""
    fields = Fields("problem", document, SECTIONS)
    return check_problem(
        Problem(
            hosts=tuple(_host(item) for item in fields.items("hosts", required=True)),
            streams=tuple(_stream(item) for item in fields.items("streams", required=True)),
            operators=tuple(_operator(item) for item in fields.items("operators")),
            queries=tuple(_query(item) for item in fields.items("queries")),
            links=_links(fields.get("links")),
            weights=_weights(fields.get("weights")),
            timeout_s=fields.number("timeout_s", None),
        )
    )


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """What `problem_from_json` reads; absent means the default."""
    return {
        "hosts": [_present(asdict(host)) for host in problem.hosts],
        "links": _links_to_json(problem.links),
        "streams": [_present(asdict(stream)) for stream in problem.streams],
        "operators": [
            _present({**asdict(operator), "inputs": list(operator.inputs)}, memory=0.0)
            for operator in problem.operators
        ],
        "queries": [_present(asdict(query)) for query in problem.queries],
        "weights": asdict(problem.weights),
        **({} if problem.timeout_s is None else {"timeout_s": problem.timeout_s}),
    }


class Fields:
    """One JSON object being read: knows its place for messages."""

    def __init__(self, place: str, value: Any, known: tuple[str, ...]) -> None:
        if not isinstance(value, Mapping):
            raise UsageError(f"{place} must be an object, not {_kind(value)}")
        refuse_unknown(place, value, known)
        self.place = place
        self.value = value

    def get(self, name: str) -> Any:
        return self.value.get(name)

    def items(self, name: str, *, required: bool = False) -> list[tuple[str, Any]]:
        value = self.value.get(name)
        if value is None and not required:
            return []
        if value is None:
            raise UsageError(f"{self.place} lacks {name!r}")
        if not isinstance(value, list):
            raise UsageError(f"{name} must be a list, not {_kind(value)}")
        return [(f"{name}[{number}]", item) for number, item in enumerate(value)]

    def text(self, name: str, *, required: bool = True) -> str | None:
        value = self.value.get(name)
        if value is None and not required:
            return None
        if value is None:
            raise UsageError(f"{self.place} lacks {name!r}")
        if not isinstance(value, str):
            raise UsageError(f"{name} of {self.place} must be text, not {_kind(value)}")
        return value

    def word(self, name: str) -> str:
        value = self.text(name)
        assert value is not None
        return value

    def number(self, name: str, default: float | None = None) -> float | None:
        value = self.value.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UsageError(f"{name} of {self.place} must be a number, not {_kind(value)}")
        try:
            return float(value)
        except OverflowError:
            raise UsageError(f"{name} of {self.place} is too large", hint=NUMBER_HINT) from None

    def amount(self, name: str, default: float | None = None) -> float:
        value = self.number(name, default)
        if value is None:
            raise UsageError(f"{self.place} lacks {name!r}")
        return value


def refuse_unknown(place: str, value: Mapping[str, Any], known: Sequence[str]) -> None:
    """A misspelt field would otherwise mean that nothing was given."""
    unknown = sorted(str(name) for name in set(value) - set(known))
    if unknown:
        near = nearest(unknown[0], known)
        meant = f"did you mean {near}? " if near else ""
        raise UsageError(
            f"{place} has the unknown field {unknown[0]!r}",
            hint=f"{meant}known: {', '.join(known)}",
        )


def refuse_misspelt(place: str, value: Mapping[str, Any], known: Sequence[str]) -> None:
    """Where others may add fields of their own, only what looks like one of ours is a mistake."""
    near = {str(name) for name in set(value) - set(known) if nearest(str(name), known)}
    refuse_unknown(place, dict.fromkeys(near), known)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false"}
    return "null" if value is None else names.get(type(value), "a number")


def _host(item: tuple[str, Any]) -> Host:
    fields = Fields(*item, ("id", "cpu", "bandwidth_in", "bandwidth_out", "memory", "site"))
    return Host(
        id=fields.word("id"),
        cpu=fields.amount("cpu"),
        bandwidth_in=fields.amount("bandwidth_in", inf),
        bandwidth_out=fields.amount("bandwidth_out", inf),
        memory=fields.amount("memory", inf),
        site=fields.text("site", required=False) or "",
    )


def _stream(item: tuple[str, Any]) -> Stream:
    fields = Fields(*item, ("id", "rate", "host"))
    return Stream(fields.word("id"), fields.amount("rate"), fields.text("host", required=False))


def _operator(item: tuple[str, Any]) -> Operator:
    fields = Fields(*item, ("id", "inputs", "output", "cpu", "memory"))
    inputs = fields.get("inputs")
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise UsageError(f"inputs of {fields.place} must be a list of stream ids")
    return Operator(
        id=fields.word("id"),
        inputs=tuple(dict.fromkeys(inputs)),
        output=fields.word("output"),
        cpu=fields.amount("cpu"),
        memory=fields.amount("memory", 0.0),
    )


def _query(item: tuple[str, Any]) -> Query:
    fields = Fields(*item, ("id", "stream", "deliver_to", "latency_bound"))
    return Query(
        id=fields.word("id"),
        stream=fields.word("stream"),
        deliver_to=fields.text("deliver_to", required=False),
        latency_bound=fields.number("latency_bound"),
    )


def _links(value: Any) -> Links:
    if value is None:
        return Links()
    if isinstance(value, list):
        return Links(
            listed=tuple(_link((f"links[{number}]", item)) for number, item in enumerate(value))
        )
    return Links(bandwidth=Fields("links", value, ("bandwidth",)).amount("bandwidth", inf))


def _link(item: tuple[str, Any]) -> Link:
    fields = Fields(*item, ("from", "to", "bandwidth", "distance"))
    return Link(
        source=fields.word("from"),
        target=fields.word("to"),
        bandwidth=fields.amount("bandwidth", inf),
        distance=fields.amount("distance", 0.0),
    )


def _weights(value: Any) -> Weights:
    if value is None:
        return Weights()
    fields = Fields("weights", value, ("admit", "network", "cpu", "balance"))
    default = Weights()
    return Weights(
        admit=fields.amount("admit", default.admit),
        network=fields.amount("network", default.network),
        cpu=fields.amount("cpu", default.cpu),
        balance=fields.amount("balance", default.balance),
    )


def _links_to_json(links: Links) -> Any:
    if links.listed is None:
        return {} if links.bandwidth == inf else {"bandwidth": links.bandwidth}
    return [
        _present(
            {
                "from": link.source,
                "to": link.target,
                "bandwidth": link.bandwidth,
                "distance": link.distance,
            },
            distance=0.0,
        )
        for link in links.listed
    ]


def _present(fields: dict[str, Any], **defaults: Any) -> dict[str, Any]:
    """Without what says nothing: None, no text, infinity (JSON has none), the default."""
    return {
        name: value
        for name, value in fields.items()
        if value is not None
        and not (isinstance(value, str) and value == "")
        and value != inf
        and not (name in defaults and value == defaults[name])
    }
