"""The Python API: declare streams, register queries, read their results.

with millstream.Session() as s:
    s.stream("requests", path="requests.csv", columns={...}, time="at")
    q = s.query("SELECT host FROM requests WHERE status >= 500")
    for row in q:
        print(row.host, row.ts)
"""

from millstream.app.session.query import QueryHandle, Row
from millstream.app.session.session import Session, attach

__all__ = ["QueryHandle", "Row", "Session", "attach"]
