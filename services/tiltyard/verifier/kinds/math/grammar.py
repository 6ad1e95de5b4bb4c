"""From words to an expression: a small grammar of LaTeX and plain notation.

An expression is a tuple: ("n", Fraction, notation), ("c", name), ("v", name), ("f", name, arguments...) or an operator
with its operands: "+", "*", "/", "^", "neg", "!", "pm". Invariants: all words are used or `Unreadable` is raised, so
nothing of an answer is dropped; depth is bounded; nothing is computed.
Left out: relations, sets and intervals (`reading`), integrals, sums and limits.
"""

from __future__ import annotations

from typing import Any

from .tokens import Token, Unreadable

Expr = tuple[Any, ...]
MAX_DEPTH = 60
FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "arcsin",
        "arccos",
        "arctan",
        "ln",
        "log",
        "lg",
        "exp",
        "sqrt",
        "cbrt",
        "abs",
        "floor",
        "ceil",
        "min",
        "max",
        "gcd",
        "lcm",
    ]
)
_SAME = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}
_CONSTANTS = {"pi": "pi", "infty": "oo", "infinity": "oo", "inf": "oo"}
_GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "varepsilon",
        "theta",
        "lambda",
        "mu",
        "nu",
        "rho",
        "sigma",
        "tau",
        "phi",
        "varphi",
        "omega",
        "xi",
        "eta",
        "zeta",
        "kappa",
        "chi",
        "psi",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Sigma",
        "Phi",
        "Omega",
        "Psi",
        "ell",
    ]
)
_TIMES = ("*", "\\cdot", "\\times")
_CLOSERS = {
    "(": ")",
    "[": "]",
    "{": "}",
    "\\{": "\\}",
    "|": "|",
    "\\lfloor": "\\rfloor",
    "\\lceil": "\\rceil",
    "\\langle": "\\rangle",
}


class Parser:
    """Reads expressions off a list of words."""

    def __init__(self, words: list[Token]) -> None:
        self.words, self.at, self.depth, self.bars = words, 0, 0, 0

    def whole(self) -> Expr:
        """The expression that all words make. Unreadable: there is more, or less."""
        found = self.sum()
        if self.at < len(self.words):
            raise Unreadable(f"{self.words[self.at].text!r} is out of place")
        return found

    def peek(self) -> str:
        return self.words[self.at].text if self.at < len(self.words) else ""

    def take(self) -> Token:
        if self.at >= len(self.words):
            raise Unreadable("the expression ends too early")
        self.at += 1
        return self.words[self.at - 1]

    def expect(self, text: str) -> None:
        if self.take().text != text:
            raise Unreadable(f"{text!r} is missing")

    def sum(self) -> Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("the expression is nested too deep")
        left = self.product()
        while self.peek() in ("+", "-", "\\pm", "\\mp"):
            sign = self.take().text
            right = self.product()
            left = (
                ("pm", left, right) if sign in ("\\pm", "\\mp") else ("+", left, right if sign == "+" else neg(right))
            )
        self.depth -= 1
        return left

    def product(self) -> Expr:
        left = self.signed()
        while True:
            if self.peek() in _TIMES:
                self.take()
                left = ("*", left, self.signed())
            elif self.peek() == "/":
                self.take()
                left = ("/", left, self.signed())
            elif self.starts():
                left = self.beside(left)
            else:
                return left

    def beside(self, left: Expr) -> Expr:
        """Two factors without a sign between them; an integer before a fraction of integers is a mixed number."""
        word = self.words[self.at]
        right = self.power()
        if word.kind == "number":
            right = self.slashed(right)
        if (
            (word.text == "\\frac" or word.kind == "number")
            and left[0] == "n"
            and is_fraction(right)
            and left[2] == "plain"
        ):
            return ("+", left, right)
        if word.kind == "number":
            raise Unreadable("a number follows what it can't follow")
        return ("*", left, right)

    def slashed(self, top: Expr) -> Expr:
        """The fraction of a mixed number '2 1/2'; nothing else may be a number beside a factor."""
        if self.peek() == "/" and self.at + 1 < len(self.words) and self.words[self.at + 1].kind == "number":
            self.take()
            if is_fraction(found := ("/", top, self.atom())):
                return found
        raise Unreadable("a number follows what it can't follow")

    def starts(self) -> bool:
        """Does a factor begin here?"""
        if self.at >= len(self.words):
            return False
        word = self.words[self.at]
        if word.text == "|":
            return self.bars == 0
        return (
            word.kind in ("number", "name")
            or word.text in ("(", "{", "[", "\\lfloor", "\\lceil", "\\frac", "\\sqrt", "\\binom")
            or (word.kind == "command" and _known(word.text[1:]))
            or word.text.startswith("\\begin:")
        )

    def signed(self) -> Expr:
        if self.peek() in ("+", "-", "\\pm", "\\mp"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise Unreadable("the expression is nested too deep")
            sign = self.take().text
            inner = self.signed()
            self.depth -= 1
            if sign in ("\\pm", "\\mp"):
                return ("pm", ("n", 0, "plain"), inner)
            return neg(inner) if sign == "-" else inner
        return self.power()

    def power(self) -> Expr:
        base = self.postfix(self.atom())
        if self.peek() == "^":
            self.take()
            if self.peek() == "\\circ" or (self.peek() == "{" and self._after(1) == "\\circ"):
                return self._degrees(base)
            base = ("^", base, self.exponent())
        return self.postfix(base)

    def _after(self, count: int) -> str:
        return self.words[self.at + count].text if self.at + count < len(self.words) else ""

    def _degrees(self, base: Expr) -> Expr:
        if self.take().text == "{":
            self.take()
            self.expect("}")
        return ("/", ("*", base, ("c", "pi")), ("n", 180, "degree"))

    def exponent(self) -> Expr:
        if self.peek() in ("-", "+"):
            return neg(self.exponent()) if self.take().text == "-" else self.exponent()
        if self.peek() == "{":
            return self.group()
        base = self.atom()
        if self.peek() == "^":  # 2^3^2 is 2^(3^2)
            self.take()
            return ("^", base, self.exponent())
        return base

    def postfix(self, left: Expr) -> Expr:
        while self.peek() in ("!", "%"):
            left = ("!", left) if self.take().text == "!" else ("/", left, ("n", 100, "percent"))
        return left

    def group(self) -> Expr:
        """What stands in brackets."""
        opened = self.take().text
        bars, self.bars = self.bars, int(opened == "|")
        found = self.sum()
        self.bars = bars
        self.expect(_CLOSERS[opened])
        return found

    def atom(self) -> Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise Unreadable("the expression is nested too deep")
        found = self._atom()
        self.depth -= 1
        return found

    def _atom(self) -> Expr:
        text = self.peek()
        if text in ("(", "[", "{"):
            return self.group()
        if text == "|":
            return ("f", "abs", self.group())
        if text in ("\\lfloor", "\\lceil"):
            return ("f", "floor" if text == "\\lfloor" else "ceil", self.group())
        word = self.take()
        if word.kind == "number":
            return ("n", word.value, word.text)
        if word.kind == "name":
            return self.named(word.text)
        if word.kind == "command":
            return self.command(word.text[1:])
        raise Unreadable(f"{word.text!r} is out of place")

    def command(self, name: str) -> Expr:
        if name == "frac":
            return ("/", self.argument(), self.argument())
        if name == "binom":
            return ("f", "binom", self.argument(), self.argument())
        if name == "sqrt":
            return self.root()
        if name in FUNCTIONS:
            return self.applied(_SAME.get(name, name))
        if name in _CONSTANTS:
            return ("c", _CONSTANTS[name])
        if name in _GREEK:
            return self.variable(name)
        raise Unreadable(f"\\{name} isn't understood")

    def argument(self) -> Expr:
        """What belongs to a command: a group, or one digit, letter or command."""
        if self.peek() == "{":
            return self.group()
        word = self.words[self.at] if self.at < len(self.words) else None
        if word is not None and word.kind == "number" and word.text == "plain" and word.value >= 10:
            first, rest = str(word.value)[:1], str(word.value)[1:]  # \frac12
            self.words[self.at] = word._replace(value=type(word.value)(rest))
            return ("n", type(word.value)(first), "plain")
        return self.atom()

    def root(self) -> Expr:
        if self.peek() == "[":
            self.take()
            degree = self.sum()
            self.expect("]")
            return ("f", "root", self.argument(), degree)
        return ("f", "sqrt", self.argument())

    def applied(self, name: str) -> Expr:
        """A function with what it is applied to: a group, or the factors beside it up to the next function."""
        power: Expr | None = None
        base: Expr | None = None
        while self.peek() in ("^", "_"):
            if self.take().text == "^":
                power = self.exponent()
            else:
                base = self.argument()
        inner = self._inner()
        if power == neg(("n", 1, "plain")) and name in ("sin", "cos", "tan"):
            return ("f", f"a{name}", *inner)
        found: Expr = ("f", name, *inner, *([base] if base else []))
        return ("^", found, power) if power else found

    def _inner(self) -> list[Expr]:
        if self.peek() == "(":
            self.take()
            found = [self.sum()]
            while self.peek() == ",":
                self.take()
                found.append(self.sum())
            self.expect(")")
            return found
        inner = self.signed() if self.peek() == "-" else self.power()
        while self.starts() and not self._is_function():
            inner = self.beside(inner)
        return [inner]

    def _is_function(self) -> bool:
        word = self.words[self.at]
        return word.text.removeprefix("\\") in FUNCTIONS or word.text in ("(", "|")

    def named(self, name: str) -> Expr:
        """A run of letters: a function, a constant, one letter, or letters side by side."""
        lower = name.lower()
        if lower in FUNCTIONS and len(name) > 1:
            if lower in ("sqrt", "cbrt") and self.peek() != "(":
                return ("f", lower, self.argument())
            return self.applied(_SAME.get(lower, lower))
        if lower in _CONSTANTS:
            return ("c", _CONSTANTS[lower])
        if name in _GREEK:
            return self.variable(name)
        if len(name) > 4 or (len(name) > 2 and len(set(name)) < len(name)):
            raise Unreadable(f"the word {name!r} isn't understood")
        found = self.variable(name[0]) if len(name) == 1 else letter(name[0])
        for place, one in enumerate(name[1:], 2):
            found = ("*", found, self.variable(one) if place == len(name) else letter(one))
        return found

    def variable(self, name: str) -> Expr:
        """A letter with its index, if it has one."""
        if self.peek() != "_":
            return letter(name)
        self.take()
        index = self.argument()
        if index[0] not in ("n", "v"):
            raise Unreadable("an index isn't understood")
        return ("v", f"{name}_{index[1]}")


def letter(name: str) -> Expr:
    return ("c", name) if name in ("e", "i") else ("v", name)


def neg(inner: Expr) -> Expr:
    return ("neg", inner)


def is_fraction(found: Expr) -> bool:
    """Is it a positive proper fraction of two integers?"""
    return (
        found[0] == "/"
        and all(part[0] == "n" and part[2] == "plain" for part in found[1:])
        and found[1][1] < found[2][1]
    )


def _known(name: str) -> bool:
    return name in FUNCTIONS or name in _CONSTANTS or name in _GREEK


def parse(words: list[Token]) -> Expr:
    """The expression that the words make. Unreadable."""
    if not words:
        raise Unreadable("there is nothing to read")
    return Parser(list(words)).whole()


def letters(expr: Expr) -> frozenset[str]:
    """The variables of an expression."""
    if expr[0] == "v":
        return frozenset((expr[1],))
    return frozenset().union(*(letters(part) for part in expr[1:] if isinstance(part, tuple)))
