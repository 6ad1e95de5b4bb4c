"""Finding the code in an action's text, and what can be said about it without running it.

Invariant: `ast.parse` on capped text is all that is ever done with untrusted code here, and its failures
(RecursionError, MemoryError, ValueError) count as code that can't be parsed. Left out: names bound in exotic ways
(`globals()[...]`, `setattr`) don't count as a definition.
"""

from __future__ import annotations

import ast
import warnings

from tiltyard.domains.interfaces import code_of, fenced_blocks

MAX_PARSE = 2048
"""Longest code that is parsed here, in characters; longer code goes to the sandbox unseen."""


def parse(code: str) -> ast.Module | str:
    """The tree of `code`, or one line that says why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except SyntaxError as err:
        return f"the code doesn't parse: {err.msg} (line {err.lineno})"
    except (RecursionError, MemoryError, ValueError, UnicodeEncodeError) as err:
        return f"the code doesn't parse: {type(err).__name__}"


def defines(tree: ast.Module, name: str) -> bool:
    """Is `name` bound at the module's level, by a definition, an assignment or an import?"""
    todo: list[ast.stmt] = list(tree.body)
    while todo:
        node = todo.pop()
        if name in _bound(node):
            return True
        for field in ("body", "orelse", "finalbody"):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                todo += getattr(node, field, [])
        for handler in getattr(node, "handlers", []):
            todo += handler.body
    return False


def _bound(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Import() | ast.ImportFrom():
            return {alias.asname or alias.name.split(".")[0] for alias in node.names}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=bound)):
            return {bound}
    return set()


def extract(text: str, function: str) -> str:
    """The code that `text` submits: the last block that defines `function`, else the last, else all of it."""
    for block in reversed(fenced_blocks(text)):
        if len(block) <= MAX_PARSE:
            tree = parse(block)
            if isinstance(tree, ast.Module) and defines(tree, function):
                return block
        elif f"def {function}" in block:
            return block
    return code_of(text)
