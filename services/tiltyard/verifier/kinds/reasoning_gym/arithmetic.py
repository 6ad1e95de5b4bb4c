"""Arithmetic with given numbers, checked exactly: each number is used once, and the result is the target.

Invariant: a bounded tree of the four operations on whole numbers; nothing is evaluated by Python.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from fractions import Fraction

from tiltyard.verifier.kinds.submission import parse

MAX_LENGTH = 300
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
}


def wrong(answer: str, numbers: Sequence[int], target: int) -> str:
    """What is wrong with an expression; empty when it uses the numbers and gives the target."""
    tree = parse(answer) if len(answer) <= MAX_LENGTH else "it is too long"
    if isinstance(tree, str) or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return "the answer is no expression"
    used: list[int] = []
    try:
        value = _value(tree.body[0].value, used)
    except (ValueError, ZeroDivisionError) as err:
        return f"the expression can't be evaluated: {err}"
    if sorted(used) != sorted(numbers):
        return f"the expression uses {sorted(used)}, given are {sorted(numbers)}"
    return "" if value == target else f"the expression doesn't give {target}"


def _value(node: ast.expr, used: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, used)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, used), _value(node.right, used))
    raise ValueError("only + - * / and whole numbers are known")
