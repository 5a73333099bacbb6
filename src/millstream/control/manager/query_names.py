"""Names of queries in the texts of others: a text is made whole before anybody compiles it."""

from dataclasses import replace

from millstream.control.manager.events import Submit
from millstream.control.manager.state import ManagerState
from millstream.language.cql.views import whole_text


def made_whole(state: ManagerState, asked: Submit) -> Submit:
    """The same wish, its text with the definitions of the queries that it reads."""

    def find(name: str) -> str | None:
        query = state.queries.get(name)
        if query is None or name == asked.name or name in state.streams:
            return None
        return None if query.phase == "dropping" or query.dry_run else query.cql

    text = whole_text(asked.cql, find)
    return asked if text == asked.cql else replace(asked, cql=text)
