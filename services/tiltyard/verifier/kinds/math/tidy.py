"""One spelling for what is written in many: Unicode signs to LaTeX, layout commands away, text commands opened.

Invariants: total and linear in the text; idempotent but for Unicode's own compositions; no value changes.
Left out: what the signs mean (`grammar`).
"""

from __future__ import annotations

import re
import unicodedata

_SIGNS = {
    "\u2212": "-",
    "\u2013": "-",
    "\u2012": "-",
    "\ufe63": "-",
    "\uff0d": "-",
    "\u00d7": "\\times ",
    "\u22c5": "\\cdot ",
    "\u00b7": "\\cdot ",
    "\u2219": "\\cdot ",
    "\u00f7": "/",
    "\u2044": "/",
    "\u2215": "/",
    "\u221a": "\\sqrt ",
    "\u03c0": "\\pi ",
    "\u221e": "\\infty ",
    "\u2264": "\\le ",
    "\u2265": "\\ge ",
    "\u2a7d": "\\le ",
    "\u2a7e": "\\ge ",
    "\u2260": "\\ne ",
    "\u222a": "\\cup ",
    "\u2229": "\\cap ",
    "\u2208": "\\in ",
    "\u2205": "\\emptyset ",
    "\u00b1": "\\pm ",
    "\u2213": "\\mp ",
    "\u211d": "\\mathbb{R}",
    "\u2124": "\\mathbb{Z}",
    "\u00b0": "^\\circ ",
    "\u00ba": "^\\circ ",
    "\u2228": " or ",
    "\u2227": " and ",
    "\u20ac": " EUR ",
    "\u00a3": " GBP ",
    "\u00a5": " JPY ",
    "\u03b8": "\\theta ",
    "\u03b1": "\\alpha ",
    "\u03b2": "\\beta ",
    "\u03b3": "\\gamma ",
    "\u03bb": "\\lambda ",
    "\u03bc": "\u03bc",
    "\u00b5": "\u03bc",
    "\u2032": "'",
    "\u27e8": "\\langle ",
    "\u27e9": "\\rangle ",
    "\u201c": '"',
    "\u201d": '"',
    "\u2019": "'",
    "\u00a0": " ",
    "\u2009": " ",
    "\u202f": " ",
    "\u200b": "",
    "\u200e": "",
    "\u200f": "",
    "\u2060": "",
    "\ufeff": "",
    "\u00ad": "",
}
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n", strict=True))
_LOWERED = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_RAISED_RUN = re.compile(f"[{''.join(_RAISED)}]+")
_LOWERED_RUN = re.compile(f"[{''.join(_LOWERED)}]+")
_OPENED = re.compile(
    r"\\(?:text|textrm|textbf|textit|textnormal|mathrm|mathbf|mathit|mathsf|mbox|hbox|bm|boldsymbol|operatorname|pmb)"
    r"\s*\*?\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_LAYOUT = re.compile(
    r"\\(?:left|right|bigl|bigr|Bigl|Bigr|big|Big|bigg|Bigg|biggl|biggr|displaystyle|textstyle|limits|nolimits)(?![a-zA-Z])"
)
_SPACES = re.compile(
    r"(?<!\\)\\[,;:!> ]|\\q?quad(?![a-zA-Z])|~|\\(?:thinspace|enspace|hspace\{[^{}]*\}|hfill|phantom\{[^{}]*\})"
)
_DIGIT_GAP = re.compile(r"(?<=\d)(?:\\[,!;: ]|\{,\}|\\ )(?=\d{3}(?!\d))")
_RENAMED = {
    "dfrac": "frac",
    "tfrac": "frac",
    "cfrac": "frac",
    "leq": "le",
    "geq": "ge",
    "leqslant": "le",
    "geqslant": "ge",
    "neq": "ne",
    "lt": "<",
    "gt": ">",
    "land": " and ",
    "wedge": " and ",
    "lor": " or ",
    "vee": " or ",
    "varnothing": "emptyset",
    "dbinom": "binom",
    "tbinom": "binom",
    "ast": "*",
    "div": "/",
    "lbrace": "{",
    "rbrace": "}",
    "lbrack": "[",
    "rbrack": "]",
    "vert": "|",
    "lvert": "|",
    "rvert": "|",
    "degree": "^\\circ ",
    "textdegree": "^\\circ ",
    "euro": " EUR ",
    "pounds": " GBP ",
    "colon": ":",
    "percent": "%",
    "ldots": "dots",
    "cdots": "dots",
    "operatorname": "",
}
_COMMAND = re.compile(r"\\([a-zA-Z]+)")


def tidy(text: str) -> str:
    """`text` in one spelling."""
    text = _LOWERED_RUN.sub(lambda run: "_{" + "".join(_LOWERED[sign] for sign in run[0]) + "}", text)
    text = _RAISED_RUN.sub(lambda run: "^{" + "".join(_RAISED[sign] for sign in run[0]) + "}", text)
    text = "".join(_plain(sign) for sign in text)
    text = _DIGIT_GAP.sub("\ue000", text)  # a mark between groups of digits, see `tokens`
    text = _SPACES.sub(" ", _LAYOUT.sub("", text))
    for _ in range(3):  # text commands within each other
        text = _OPENED.sub(r" \1 ", text)
    return _COMMAND.sub(_renamed, text).strip()


def _plain(sign: str) -> str:
    if sign.isascii():
        return sign
    if sign in _SIGNS:
        return _SIGNS[sign]
    if "VULGAR FRACTION" in unicodedata.name(sign, ""):
        top, _, bottom = unicodedata.normalize("NFKC", sign).partition("\u2044")
        return f"\\frac{{{top}}}{{{bottom}}}"
    flat = unicodedata.normalize("NFKC", sign)
    return "".join(str(unicodedata.decimal(one, one)) if not one.isascii() else one for one in flat)


def _renamed(command: re.Match[str]) -> str:
    new = _RENAMED.get(command[1])
    if new is None or new == command[1]:
        return command[0]
    return f"\\{new}" if new.isalpha() and len(new) > 1 else new


_AROUND = re.compile(r"^(?:\$\$?|\\\(|\\\[|`+|\*\*|__)|(?:\$\$?|\\\)|\\\]|`+|\*\*|__)$")
_END = re.compile(r"[\s.;:!?,]+$")


def bare(text: str) -> str:
    """`text` without the dollars, fences, emphasis and closing stops around it."""
    before = None
    while before != text:
        before = text
        text = _AROUND.sub("", _ended(text.strip())).strip()
        text = inner if (inner := _wrapped(text)) is not None else text
    return text


def _ended(text: str) -> str:
    ending = _END.search(text)
    if ending is None or "!" in ending[0].strip()[:1]:  # a factorial is no stop
        return text
    return text[: ending.start()] if not text[: ending.start()].endswith("\\") else text


_WRAPPERS = ("\\boxed{", "\\fbox{", "\\text{", "\\mathrm{", "\\mathbf{", "\\textbf{", "\\displaystyle{")


def _wrapped(text: str) -> str | None:
    """What one command around all of the text holds."""
    for wrapper in _WRAPPERS:
        if text.startswith(wrapper) and closing(text, len(wrapper) - 1) == len(text) - 1:
            return text[len(wrapper) : -1]
    return None


def closing(text: str, start: int) -> int:
    """Where the brace that opens at `start` is closed; -1 when it never is."""
    depth, at = 0, start
    while at < len(text):
        if text[at] == "\\":
            at += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if not depth:
            return at
        at += 1
    return -1
