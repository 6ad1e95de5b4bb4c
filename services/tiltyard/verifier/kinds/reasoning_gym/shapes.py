"""What an answer must look like before a scorer sees it.

Nine of reasoning-gym's scorers hand the answer to Python's `eval` or to sympy's parser, which evals too. They only get
text that names nothing and computes nothing large. For the others: where the right answer holds no letters, an answer
with letters is none. Invariant: linear in the text.
"""

from __future__ import annotations

import re

MAX_ANSWER = 10_000
"""Characters."""
_FACTOR = r"[0-9]{1,60}|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])|\*\*\(?-?[0-9]{1,2}\)?(?![0-9]|\s*\*\*)|\*(?!\*)|[-+/(). ]"
"""A number, a single letter, a small exponent that is no power itself, a sign."""
_POLYNOMIAL = rf"(?:{_FACTOR}|=)*"
_INTEGRAL = rf"(?:(?:sin|cos|tan|exp|log|sqrt|asin|acos|atan|pi)(?![a-zA-Z])|{_FACTOR})*"
_MATRIX = r"[-0-9\s\[\],.]*"
EVALUATED = {
    "string_insertion": r"[A-E\s\[\],'\"]*",
    "spiral_matrix": _MATRIX,
    "binary_matrix": _MATRIX,
    "number_sorting": r"[-0-9\s\[\],.'\"]*",
    "n_queens": r"[-0-9\s\[\],_Q'\"]*",
    "simple_integration": _INTEGRAL,
    "intermediate_integration": _INTEGRAL,
    "polynomial_multiplication": _POLYNOMIAL,
    "propositional_logic": r"[A-Z\s()∧∨→↔¬]*",
    "countdown": r"(?:\*(?!\*)|[-+/0-9() ])*",
    "puzzle24": r"(?:\*(?!\*)|[-+/0-9() ])*",
}
_PATTERNS = {name: re.compile(pattern) for name, pattern in EVALUATED.items()}
ONLY_EXACT = frozenset({"game_of_life_halting", "knights_knaves"})
"""Their scorers pay for wrong answers or for right ones among other words: only the data set's own answer counts."""


def misshapen(dataset: str, oracle: str, answer: str) -> str:
    """Why an answer can't be one of this data set; empty when it can."""
    if not answer:
        return "the answer is empty"
    if len(answer) > MAX_ANSWER:
        return f"the answer is longer than {MAX_ANSWER} characters"
    if any("\ud800" <= char <= "\udfff" or char == "\0" for char in answer):
        return "the answer isn't valid text"
    pattern = _PATTERNS.get(dataset)
    if pattern is not None and not pattern.fullmatch(answer):
        return "the answer holds what no answer of this kind holds"
    if oracle and not any(map(str.isalpha, oracle)) and any(map(str.isalpha, answer)):
        return "the answer holds letters, the right one doesn't"
    return ""


def same_text(left: str, right: str) -> bool:
    """Equal but for spaces at the ends of lines and between words."""
    return [line.split() for line in left.strip().splitlines()] == [line.split() for line in right.strip().splitlines()]
