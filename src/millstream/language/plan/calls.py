"""Aggregates that take more than one value: how their arguments travel as one expression.

An aggregate has one argument in a plan. Where it needs several (the value and what it is ordered
by, a pair, a percentage), they are packed under names; constants are packed as constants, so that
they are part of the fingerprint. Rewrites that wrap an argument wrap the pack, and `unpacked` looks
through that.
"""

from millstream.language.plan.expressions import Call, Expr, Literal

PACKED = "args"
# Aggregates whose value hangs on the order of rows: by time and position, ties among them.
BY_ORDER = frozenset({"first", "last", "array_agg", "string_agg", "max_by", "min_by"})


def packed(**parts: Expr) -> Call:
    """Several arguments as one."""
    named = (e for name, part in parts.items() for e in (Literal(name, "name"), part))
    return Call(PACKED, tuple(named))


def unpacked(argument: Expr | None) -> dict[str, Expr]:
    """The arguments by name; empty where nothing is packed.

    >>> unpacked(packed(v=Literal("1", "int")))
    {'v': Literal(text='1', type='int')}
    """
    match argument:
        case Call("if", (condition, inner, missing)):  # of shared jobs: only for a member's rows
            return {
                name: part if isinstance(part, Literal) else Call("if", (condition, part, missing))
                for name, part in unpacked(inner).items()
            }
        case Call(name, args) if name == PACKED:
            names = (a.text for a in args[::2] if isinstance(a, Literal))
            return dict(zip(names, args[1::2], strict=True))
        case _:
            return {}


def spoken(function: str, parts: dict[str, str]) -> str:
    """The call as people read it, from the texts of its parts.

    >>> spoken("string_agg", {"v": "k", "separator": "','", "k0": "v", "d0": "DESC NULLS LAST"})
    "string_agg(k, ',' ORDER BY v DESC NULLS LAST)"
    """
    plain = [text for name, text in parts.items() if name[0] not in "kd"]
    keys = [f"{parts[f'k{i}']} {parts[f'd{i}']}" for i in range(len(parts)) if f"k{i}" in parts]
    ordered = f" ORDER BY {', '.join(keys)}" if keys else ""
    return f"{function}({', '.join(plain)}{ordered})"
