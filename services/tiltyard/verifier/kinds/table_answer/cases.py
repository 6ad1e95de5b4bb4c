"""Cases about data: rows written as Python tuples, single values, and words about ties, sorting and files.

A query as the submission goes to the kind `sql` where the installation has it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from datetime import date
from typing import Any

from tiltyard.verifier.kinds.casework import task_of, text_of
from tiltyard.verifier.kinds.registry import FOLDER
from tiltyard.verifier.kinds.trials import Case, Ruling, Trial

CASE_KINDS = ("data",)
_QUERY = re.compile(r"\s*(?:select|with|attach|copy|insert|delete|update|drop|pragma|install|create)\b", re.IGNORECASE)
_SORTED = re.compile(r"(?<!no )\border(?:ed)?(?: by)?\b(?! (?:is )?not)|\bsorted\b|\branked\b", re.IGNORECASE)


def trials(case: Case) -> Sequence[Trial] | Ruling | None:
    """One task; words stand for a small table where the case shows none."""
    submission = text_of(case.submission)
    if _QUERY.match(submission) and (FOLDER / "sql").is_dir():
        return [_query(case, submission)]
    if found := _words(case):
        data, options, text = found
    else:
        data, options = _data(case)
        text = _shown(_parsed(case.submission))
    return [Trial(task=task_of(case, "table_answer", data, options=options), texts=(f"Answer: {text}",))]


def _query(case: Case, submission: str) -> Trial:
    setup = "CREATE TABLE t (x INTEGER); INSERT INTO t VALUES (1), (2), (3);"
    reference = (
        case.reference if isinstance(case.reference, str) and _QUERY.match(case.reference) else "SELECT x FROM t"
    )
    query = re.sub(r"<[^<>]*(?:path|file)[^<>]*>", "'/etc/hostname'", submission)
    return Trial(
        task=task_of(case, "sql", {"query": reference, "setups": [setup]}, reference=reference), texts=(query,)
    )


def _words(case: Case) -> tuple[dict[str, Any], dict[str, Any], str] | None:
    """What words describe: rows that tie at a limit, numbers sorted as text."""
    asked, words = case.task.casefold(), f"{case.task} {case.reference}".casefold()
    if "tie" in words and re.search(r"\btop \d+|\blimit \d+|\brank", words):
        rows = ["a", "b"]
        data = {"type": "list", "value": rows, "tied": ["c", "d"], "choose": 1}
        chosen = {"not": ["e"], "all": ["c", "d"], "both": ["c", "d"], "untied": ["e"]}
        last = next(
            (each for word, each in chosen.items() if word in text_of(case.submission).casefold().split()), ["d"]
        )
        return data, {"ordered": "any order" not in asked}, _shown(rows + last)
    if re.search(r"(?:numbers?|digits) (?:is |are )?stored as text|text column", words):
        data = {"type": "rows", "value": [["1"], ["10"], ["9"]], "sorted_by": 0}
        return data, {"ordered": True}, _shown([["1"], ["9"], ["10"]])
    return None


def _data(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    value = _parsed(case.reference)
    options: dict[str, Any] = {}
    if isinstance(value, list):
        options["ordered"] = bool(_SORTED.search(case.task)) and not re.search(
            r"\bno order|any order|unordered|order (?:is )?not|not ordered", case.task, re.IGNORECASE
        )
        options["distinct"] = bool(re.search(r"\bdistinct\b|\bunique\b|\bas a set\b", case.task, re.IGNORECASE))
        kind = "rows" if value and all(isinstance(row, list) for row in value) else "list"
    else:
        kind = _type(value)
    if found := re.search(r"(?:to|with) (\d) (?:decimal )?(?:places|decimals)", case.task):
        options["places"] = int(found[1])
    if found := re.search(r"(?:within|tolerance(?: of)?) ([\d.]+) ?(%?)", case.task):
        options["tolerance"] = float(found[1].rstrip(".")) / (100 if found[2] else 1)
    if re.search(r"\bEU\b|European|German", case.task):
        options |= {"order": "dmy", "mark": ","}
    return {"type": kind, "value": value}, options


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    try:
        date.fromisoformat(value)
    except ValueError:
        return "number" if re.fullmatch(r"-?\d+(?:\.\d+)?", value) else "text"
    return "date"


def _parsed(value: Any) -> Any:
    """Rows written as Python or JSON as lists; anything else as it is."""
    if isinstance(value, str) and value.strip()[:1] in ("[", "("):
        try:
            value = ast.literal_eval(value.replace("null", "None").replace("NULL", "None"))
        except (ValueError, SyntaxError):
            return value
    if isinstance(value, tuple | list):
        return [_parsed(each) if isinstance(each, tuple | list) else each for each in value]
    return value


def _shown(value: Any) -> str:
    return text_of(value)
