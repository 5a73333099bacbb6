"""Made-up outer joins and conditions on other rows, alone and below windows and aggregates.

Rows whose fate must be decided have [RANGE] or [NOW]; beside windows of rows, [NOW] alone.
"""

from dataclasses import replace

from hypothesis import strategies as st

from oracle.generate_expressions import comparison, made
from oracle.generate_queries import SHORT, SLIDES, Asked, Drawn, QueryMaker, Readable
from oracle.generate_streams import batch_sizes, stream_sets
from oracle.harness import Example
from oracle.model import Expr, Item, Now, Partner, Query, Range, Select, Source, Sub

STAYING = ("range", "none", "unbounded", "now")
ANY = (*STAYING, "rows", "partition")
FEWEST, MOST = 4, 7  # queries of a dataflow


class PartnerMaker(QueryMaker):
    """Draws queries whose rows are given by whom they meet."""

    def sides(self, *, both: bool = False) -> tuple[Readable, Readable]:
        """One item that ends, and one that it meets; `both` must end."""
        ours = self.base("a", Asked(("range", "now"), SHORT))
        kinds = ANY if isinstance(ours.item.window, Now) else STAYING
        theirs = self.base("b", Asked(("range", "now") if both else kinds, SHORT))
        return ours, theirs

    def tie(self, left: Readable, right: Readable) -> Expr:
        """Mostly an equality, sometimes with another comparison, sometimes without it."""
        refs = self.refs([left, right], times=True)
        if self.loose(left, right) and self.one_in(5):
            return comparison(self.draw, refs)
        (equal,) = self.joining([left, right], refs)
        if self.one_in(3):
            return made("boolean", "{0} AND {1}", equal, comparison(self.draw, refs))
        return equal

    def outer(self) -> Drawn:
        kind = self.pick(("LEFT", "RIGHT", "FULL"))
        ours, theirs = self.sides(both=kind == "FULL")
        pair = [theirs, ours] if kind == "RIGHT" else [ours, theirs]
        refs = self.refs(pair, times=True)
        select = Select(
            self.listed(self.scalars(refs, 3), 0),
            tuple(side.item for side in pair),
            where=self.maybe_condition(refs) if self.one_in(3) else None,
            on=(self.tie(*pair),),
            outer=kind,
        )
        return self.drawn(select)

    def asking(self) -> Drawn:
        negated = self.one_in(2)
        ours, theirs = self.sides()
        if not negated and self.one_in(3):
            ours = self.base("a", Asked(("none", "unbounded"), SHORT))
            theirs = self.base("b", Asked(STAYING, SHORT))
        refs = self.refs([ours], times=True)
        partner = Partner(theirs.item, self.tie(ours, theirs), negated=negated)
        if self.one_in(2):
            kind = self.pick(("integer", "ascii", "double"))
            one, other = (
                Expr(f"{r.item.label}.{name}", f"{r.item.label}.{name}", kind)
                for r, name in (
                    (r, self.pick([name for name, k in r.columns if k == kind]))
                    for r in (ours, theirs)
                )
            )
            inside = self.maybe_condition(self.refs([theirs], times=False))
            partner = Partner(theirs.item, inside, (one, other), negated)
        select = Select(
            self.listed(self.scalars(refs, 3), 0),
            (ours.item,),
            where=self.maybe_condition(refs),
            partner=partner,
        )
        return self.drawn(select)

    def counted(self, inner: Drawn) -> Query:
        """An aggregate over windows of what an outer join gives."""
        window = Range(self.pick(SHORT), self.pick(SLIDES))
        count = Item(Expr("count(*)", "count(*)", aggregate=True), "n0")
        return Select((count,), (Sub(inner.query, "q", window),))

    def joined_again(self, inner: Drawn) -> Query:
        """What an outer join gives, in a window of its own, beside another stream."""
        stream = self.pick(self.streams).name
        short = Range(self.pick(SHORT[:2]))
        return Select(
            (Item(Expr(f"q.{inner.columns[0][0]}", f"q.{inner.columns[0][0]}"), "n0"),),
            (Sub(inner.query, "q", short), Source(stream, "s", short)),
        )

    def query(self) -> Query:
        inner = self.pick((self.outer, self.asking))()
        shape = self.pick(("plain", "plain", "plain", "distinct", "counted", "joined"))
        match shape:
            case "distinct":
                assert isinstance(inner.query, Select)
                return replace(inner.query, distinct=True)
            case "counted":
                return self.counted(inner)
            case "joined":
                return self.joined_again(inner)
            case _:
                return inner.query


@st.composite
def partner_examples(draw: st.DrawFn) -> Example:
    """A dataflow of such queries alone."""
    streams = draw(stream_sets())
    batches = {s.name: draw(batch_sizes(len(s.rows))) for s in streams}
    maker = PartnerMaker(draw, streams)
    count = draw(st.integers(FEWEST, MOST))
    return Example(streams, batches, tuple(maker.query() for _ in range(count)))
