"""Which column a name means: the items of one FROM, and where their columns lie in the row."""

from dataclasses import dataclass

from sqlglot.dialects.spark import Spark

from millstream.core.suggestions import did_you_mean
from millstream.language.cql.catalog import TIME, lookup
from millstream.language.plan.expressions import Column, Expr, Time
from millstream.language.plan.schema import Schema
from millstream.language.plan.sql_text import quoted

WORDS = frozenset(word for known in Spark.Tokenizer.KEYWORDS for word in known.split())


class NameLookupError(Exception):
    """A name that means nothing; `near` is the end of the message that offers another one."""

    def __init__(self, message: str, hint: str = "", near: str = "") -> None:
        super().__init__(message + near)
        self.message, self.hint, self.near = message + near, hint, near


class AmbiguousNameError(NameLookupError):
    """A name that means several things."""


ROW_TIME = Time()


@dataclass(frozen=True, slots=True)
class Named:
    """A visible column: its name and its position in the item's row."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Member:
    """An item of FROM. `offset` is where its columns begin in the joined row."""

    name: str | None
    columns: tuple[Named, ...]
    offset: int = 0
    time: Expr = ROW_TIME  # how its own time is read: the row's, or a column that carries it
    lateral: bool = False  # columns that were added to the rows of another item
    unnamed: bool = False  # columns that only a qualified name means


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean over one FROM.

    `merged` holds columns of JOIN ... USING: name to position, which shadow both sides.
    """

    members: tuple[Member, ...]
    row: Schema
    merged: tuple[Named, ...] = ()

    @property
    def joined(self) -> bool:
        return sum(not m.lateral for m in self.members) > 1

    def member(self, name: str) -> Member | None:
        found = lookup(name, [m.name or "" for m in self.members])
        return self.members[found[0]] if found else None

    def qualified(self, member: Member, name: str) -> Expr:
        if is_time(name) and not member.unnamed:
            return member.time
        found = lookup(name, [c.name for c in member.columns])
        if not found:
            names = [c.name for c in member.columns]
            if member.unnamed:
                raise NameLookupError(
                    f"unknown parameter :{name}",
                    f"parameters: {', '.join(f':{n}' for n in names)}",
                    did_you_mean(name, names),
                )
            told = f"columns of {member.name}: {', '.join([*names, TIME])}"
            bounds = name.lower() in ("window_start", "window_end")
            raise NameLookupError(
                f"unknown column {member.name}.{name}",
                BOUNDS_HINT if bounds else told,
                did_you_mean(name, [*names, TIME]),
            )
        if len(found) > 1:
            message = f"column {member.name}.{name} is ambiguous"
            raise AmbiguousNameError(message, "rename one of them")
        return Column(member.offset + member.columns[found[0]].position)

    def unqualified(self, name: str) -> Expr:
        """The column of a name; the time is the caller's to judge."""
        shared = lookup(name, [c.name for c in self.merged])
        if shared:
            return Column(self.merged[shared[0]].position)
        everything = [(m, c) for m in self.members if not m.unnamed for c in m.columns]
        found = lookup(name, [c.name for _, c in everything])
        if not found:
            raise self._unknown(name)
        if len(found) > 1:
            chosen = [everything[i] for i in found]
            spelled = [f"{spelt(m.name or '')}.{spelt(c.name)}" for m, c in chosen]
            raise AmbiguousNameError(f"column {name} is ambiguous", f"write {' or '.join(spelled)}")
        member, column = everything[found[0]]
        return Column(member.offset + column.position)

    def knows(self, name: str) -> bool:
        named = (m for m in self.members if not m.unnamed)
        return bool(lookup(name, [c.name for m in named for c in m.columns]))

    def _unknown(self, name: str) -> NameLookupError:
        named = [m for m in self.members if not m.unnamed]
        names = list(dict.fromkeys(c.name for m in named for c in m.columns))
        aliases = [m.name for m in named if m.name]
        if lookup(name, aliases):
            return NameLookupError(f"{name} is a stream, not a column", f"write {name}.column")
        hint = f"columns: {', '.join([*names, TIME])}" if len(names) <= 30 else ""
        if name.lower() in ("window_start", "window_end"):
            hint = BOUNDS_HINT
        near = did_you_mean(name, [*names, TIME])
        return NameLookupError(f"unknown column {name}", hint, near)


BOUNDS_HINT = (
    "a window's bounds are those of an aggregate; for plain rows compute them: "
    "timestamp_seconds(floor(unix_seconds(ts) / 10) * 10) AS begun, in a subquery in FROM"
)


def is_time(name: str) -> bool:
    return name.lower() == TIME


def spelt(name: str) -> str:
    """A name as it can be written in a text: in backquotes where it needs them.

    >>> spelt("speed"), spelt("two words"), spelt("order")
    ('speed', '`two words`', '`order`')
    """
    plain = name.isascii() and name.isidentifier() and name.upper() not in WORDS
    return name if plain else quoted(name)
