"""Judge a query by its rows on hidden data, beside those of a reference query.

Both run in a child with limits, in duckdb without access to anything outside (`rules`). Score: 1 or 0; half-right rows
earn nothing. Left out: names of columns, how fast a query is, dialects other than duckdb's.
"""

from __future__ import annotations

from tiltyard.domains.interfaces import code_of
from tiltyard.verifier import limits
from tiltyard.verifier.kinds.base import BrokenTask, Finding, Probe, Rule
from tiltyard_proto.messages import Task

from .data import Data, Options
from .probes import probes

RULES = "tiltyard.verifier.kinds.sql.rules:check"
LIMITS = limits.Limits(cpu_s=6.0, memory_bytes=1 << 30)
"""For all setups together; a single submission ends long before."""
MAX_QUERY = 8192


class Sql(Rule[Data, Options]):
    """The kind."""

    name = "sql"
    version = "1"
    data = Data
    options = Options
    blocking = True

    def check(self, data: Data, options: Options, text: str) -> Finding:
        query = code_of(text).strip().rstrip(";").strip()
        if refusal := _refusal(query):
            return Finding(score=0.0, reasons=(refusal,))
        asked = {
            "query": data.query,
            "setups": list(data.setups),
            "submission": query,
            "order": options.order,
            "columns": options.columns,
            "tolerance": options.tolerance,
            "dialect": options.dialect,
        }
        found = limits.call(RULES, asked, LIMITS)
        if "broken" in found:
            raise BrokenTask(found["broken"])
        if "wrong" in found:
            return Finding(score=0.0, reasons=(found["wrong"],))
        return Finding(score=1.0, passed=True)

    def probes(self, task: Task) -> tuple[Probe, ...]:
        data = self.data_of(task)
        return probes(data.query)


def _refusal(query: str) -> str:
    """Why a text is no query worth parsing; empty when it is one."""
    if not query:
        return "there is no query"
    if len(query) > MAX_QUERY or "\0" in query:
        return f"the query is longer than {MAX_QUERY} characters or contains a NUL"
    if any("\ud800" <= char <= "\udfff" for char in query):
        return "the query isn't valid Unicode"
    if query.count("(") > 300 or query.upper().count("UNION") > 60 or query.upper().count("JOIN") > 60:
        return "the query nests or joins too much"
    return ""


KIND = Sql()
