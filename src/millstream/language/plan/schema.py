"""Columns of a stream: a name for people and a Spark type, at a position.

Inside plans a column is its position; names live in schemas alone, so that an alias never changes
what a plan means.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: str  # as Spark's DDL spells it: bigint, string, decimal(10,2), array<int>


Schema = tuple[Field, ...]
