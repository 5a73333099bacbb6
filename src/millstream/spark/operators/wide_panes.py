"""Panes of many queries in one frame: how they are made, and how they are read again.

A file's layout says which bit stands for which pane stream and which columns are its own. Where
filters are few, each has columns of its own; where they are many, panes of the same set of filters
share theirs, and a reader that wants few streams takes of a pane what has its bit. Files of both
kinds lie side by side when queries come and go.
"""

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, LongType

from millstream.language.plan.nodes import AggregateCall
from millstream.language.plan.sql_text import sql
from millstream.language.share.predicate_index import BITS, bit_of, number_of, words_of
from millstream.language.share.shared_panes import (
    PanesTogether,
    WindowMember,
    WindowsTogether,
    pane_places,
)
from millstream.language.share.shared_plan import Place
from millstream.spark.frames import Frame, order_struct, spelling
from millstream.spark.operators.aggregates import names_of, partial, parts_of
from millstream.spark.reading import SegmentReader
from millstream.store.segments import Segment

HIDDEN = ("_ts", "_until", "_pos")

# -- made -----------------------------------------------------------------------------------------


def panes_of_many(plan: PanesTogether, rows: Frame) -> tuple[Frame, dict[str, Place]]:
    """Panes of all members at once: words of bits, keys, then the parts of all calls.

    Where members have panes of other lengths, each row counts once for each length.
    """
    several = len(plan.lengths) > 1
    length = "_length" if several else f"{plan.lengths[0]}L"
    data = rows.data
    keys = [("_pane", f"_ts - pmod(_ts, {length})")]
    if several:
        choices = ", ".join(f"{n}L" for n in plan.lengths)
        data = data.selectExpr("*", f"explode(array({choices})) AS _length")
        keys.append(("_length", "_length"))
    names = [f"k{i}" for i in range(len(plan.keys))]
    keys += [(name, sql(key)) for name, key in zip(names, plan.keys, strict=True)]
    leaf = rows.width - len(plan.words)  # the bits stand behind the rows' own columns
    order = order_struct(Frame(data, rows.hidden, leaf))
    if plan.by_sets:
        sets = [f"w{i}" for i in range(len(plan.words))]
        keys += [(name, sql(word)) for name, word in zip(sets, plan.words, strict=True)]
        grouped = partial(data, keys, plan.calls, order)
    else:
        present = tuple(AggregateCall("bit_or", word, "bigint") for word in plan.words)
        sets = [f"a{len(plan.calls) + i}_0" for i in range(len(plan.words))]
        grouped = partial(data, keys, (*plan.calls, *present), order)
    columns = [*_presence(plan, sets), *names, *names_of(plan.calls)]
    hidden = {
        "_ts": f"_pane + {length} - 1L",
        "_until": f"_pane + {length}",
        "_pos": "_latest",
    }
    frame = Frame(grouped, (), 0).select(hidden, columns)
    if plan.by_sets and several:  # a set may have members of one length alone
        words = [f"c{i} <> 0L" for i in range(words_of(len(plan.bits)))]
        frame = frame.where(" OR ".join(words))
    parts = [len(parts_of(call, "_ts")) for call in plan.calls]
    return frame, pane_places(plan, parts, words_of(len(plan.bits)))


def _presence(plan: PanesTogether, filters: Sequence[str]) -> list[str]:
    """The words of a pane's members from those of its rows' filters."""
    words = [["0L"] for _ in range(words_of(len(plan.bits)))]
    for length in plan.lengths:
        moves = [(f, number) for number, (f, pane) in enumerate(plan.bits) if pane == length]
        for word, text in gathered(dict(enumerate(filters)), moves).items():
            several = len(plan.lengths) > 1
            words[word].append(f"IF(_length = {length}L, {text}, 0L)" if several else text)
    return [" | ".join(parts[1:] or parts) for parts in words]


def gathered(words: Mapping[int, str], moves: Iterable[tuple[int, int]]) -> dict[int, str]:
    """Words of bits, by number, from others: each move is a bit's number there and here.

    Bits that move alike go together.

    >>> gathered({0: "a", 1: "b"}, [(0, 1), (1, 2), (62, 0)])
    {0: '(shiftleft((a & 3L), 1) | (b & 1L))'}
    """
    masks: dict[tuple[int, int, int], int] = {}
    for source, target in moves:
        (own, bit), (word, _) = bit_of(source), bit_of(target)
        by = target % BITS - source % BITS
        masks[word, own, by] = masks.get((word, own, by), 0) | bit
    found: dict[int, list[str]] = {}
    for (word, own, by), mask in masks.items():
        text = words[own] if mask == (1 << BITS) - 1 else f"({words[own]} & {mask}L)"
        if by:
            text = f"shift{'left' if by > 0 else 'right'}({text}, {abs(by)})"
        found.setdefault(word, []).append(text)
    return {word: f"({' | '.join(texts)})" for word, texts in found.items()}


# -- read -----------------------------------------------------------------------------------------


def read_panes(
    plan: WindowsTogether,
    members: Sequence[WindowMember],
    segments: Sequence[Segment],
    reader: SegmentReader,
) -> Frame:
    """Panes with keys, the parts of all wanted calls, and whose they are."""
    files: dict[int, list[str]] = {}
    for s in segments:
        if s.file:
            assert s.tag is not None
            files.setdefault(s.tag, []).append(s.file)
    frames = [_of_layout(plan, members, tag, paths, reader) for tag, paths in files.items()]
    result = frames[0]
    for other in frames[1:]:
        result = result.union(other)
    if reader.carried and len(frames) > 1:  # a prepared plan has one piece
        result = Frame(result.data.coalesce(1), result.hidden, result.width)
    return result


def _of_layout(
    plan: WindowsTogether,
    members: Sequence[WindowMember],
    tag: int,
    paths: Sequence[str],
    reader: SegmentReader,
) -> Frame:
    layout = _Layout(plan, members, reader.layout(tag), reader)
    hidden = (*HIDDEN, *reader.carried)
    count = words_of(len(plan.present))
    variants = [
        [*layout.words(streams, count), *parts]
        for streams, parts in (layout.by_call() if plan.by_sets else layout.one_by_one())
    ]
    keys = [f"_k{i}" for i in range(len(layout.keys))]
    words = [f"_w{i}" for i in range(count)]
    parts = [f"_p{i}" for i in range(len(variants[0]) - count)]
    own = [*hidden, *(f"{wide} AS {k}" for wide, k in zip(layout.keys, keys, strict=True))]
    data = reader.wide(paths, dict.fromkeys(hidden, LongType()) | layout.types)
    data = data.selectExpr(*own, *_each(variants, [*words, *parts]))
    # panes of other lengths lie in the same files, and none of ours has a bit there
    data = data.where(" OR ".join(f"{word} <> 0L" for word in words))
    columns = [*keys, *parts, *words]
    if plan.by_sets:
        data = _taken_apart(data, words, len(plan.present))
        columns = [*keys, "_number", *parts]
    return Frame(data, hidden, 0).select({h: h for h in hidden}, columns)


def _each(variants: Sequence[Sequence[str]], names: Sequence[str]) -> list[str]:
    """The columns of a pane, or of each of several that stand in one row."""
    if len(variants) == 1:
        return [f"{text} AS {name}" for text, name in zip(variants[0], names, strict=True)]
    structs = (
        ", ".join(f"'{name}', {text}" for text, name in zip(texts, names, strict=True))
        for texts in variants
    )
    return [f"inline(array({', '.join(f'named_struct({s})' for s in structs)}))"]


def _taken_apart(data: DataFrame, words: Sequence[str], streams: int) -> DataFrame:
    """Each pane once for each stream whose bit it has, with the stream's number."""
    word, bit = words[0], "_number"
    if len(words) > 1:
        word, bit = f"array({', '.join(words)})[_number div {BITS}]", f"_number % {BITS}"
    each = data.selectExpr("*", f"explode(sequence(0, {streams - 1})) AS _number")
    return each.where(f"({word} & shiftleft(1L, {bit})) <> 0L")


class _Layout:
    """What the wanted streams have in files of one layout; `types` are those of columns in use."""

    def __init__(
        self,
        plan: WindowsTogether,
        members: Sequence[WindowMember],
        places: Mapping[str, Place],
        reader: SegmentReader,
    ) -> None:
        self._plan, self._places, self._reader = plan, places, reader
        self._calls = {m.panes.stream: m.node.calls for m in members}
        self.there = {s: number for number, s in enumerate(plan.present) if s in places}
        first = next(iter(self.there))
        columns, schema = places[first].columns, reader.schema(first)
        self._keys = len(members[0].node.keys)
        self.keys = [columns[f"c{i}"] for i in range(self._keys)]
        self.types: dict[str, DataType] = {
            columns[f"c{i}"]: schema[f"c{i}"].dataType for i in range(self._keys)
        }

    def words(self, streams: Iterable[str], count: int) -> list[str]:
        """The bits of these streams, in the order of the plan's."""
        moves, names = [], {}
        for stream in streams:
            place = self._places[stream]
            names[place.word] = f"c{place.word}"
            self.types[f"c{place.word}"] = LongType()
            moves.append((number_of(place.word, place.bit), self.there[stream]))
        found = gathered(names, moves)
        return [found.get(word, "0L") for word in range(count)]

    def one_by_one(self) -> list[tuple[list[str], list[str]]]:
        """All streams in one row, each call from a column of its own."""
        texts: list[str] = []
        for source in self._plan.sources:
            known = [s for s in source if s in self.there]
            stream = (known or list(source))[0]
            columns = self._columns(stream, source[stream])
            if not known:  # a query that came later: nothing of it in here
                texts += [f"CAST(NULL AS {spelling(type_)})" for _, type_ in columns]
                continue
            place = self._places[stream]
            # a pane of a set of filters holds the call for others as well
            mine = f"(c{place.word} & {place.bit}L) <> 0L"
            self.types |= {place.columns[own]: type_ for own, type_ in columns}
            texts += [f"IF({mine}, {place.columns[own]}, NULL)" for own, _ in columns]
        return [(list(self.there), texts)]

    def by_call(self) -> list[tuple[list[str], list[str]]]:
        """Streams that have each call in the same columns, if any, together."""
        groups: list[tuple[list[str], dict[int, list[str]]]] = []
        for stream in self.there:
            wide = self._places[stream].columns
            mine: dict[int, list[str]] = {}
            for number, source in enumerate(self._plan.sources):
                if stream in source:
                    found = self._columns(stream, source[stream])
                    mine[number] = [wide[own] for own, _ in found]
                    self.types |= {wide[own]: type_ for own, type_ in found}
            for streams, known in groups:
                if all(known.get(n, texts) == texts for n, texts in mine.items()):
                    streams.append(stream)
                    known.update(mine)
                    break
            else:
                groups.append(([stream], mine))
        return [(streams, self._texts(known)) for streams, known in groups]

    def _texts(self, known: Mapping[int, Sequence[str]]) -> list[str]:
        texts: list[str] = []
        for number, source in enumerate(self._plan.sources):
            stream, position = next(iter(source.items()))
            types = [spelling(type_) for _, type_ in self._columns(stream, position)]
            texts += known.get(number, [f"CAST(NULL AS {type_})" for type_ in types])
        return texts

    def _columns(self, stream: str, position: int) -> list[tuple[str, DataType]]:
        """The parts of a call, as the stream's own columns."""
        calls, schema = self._calls[stream], self._reader.schema(stream)
        start = self._keys + sum(len(parts_of(call, "_ts")) for call in calls[:position])
        names = [f"c{start + j}" for j in range(len(parts_of(calls[position], "_ts")))]
        return [(name, schema[name].dataType) for name in names]
