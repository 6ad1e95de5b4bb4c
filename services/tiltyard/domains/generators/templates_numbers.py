"""Templates over integers."""

from __future__ import annotations

from .templates import Template, t

NUMBERS: tuple[Template, ...] = (
    t("add_const", "int", "n", "returns {a} plus {n}", "{a} + {n}", lambda k, x: sum((x, k["n"]))),
    t("subtract_const", "int", "n", "returns {a} minus {n}", "{a} - {n}", lambda k, x: x + -k["n"]),
    t("multiply", "int", "n", "returns {a} multiplied by {n}", "{a} * {n}", lambda k, x: sum([x] * k["n"])),
    t("linear", "int", "n m", "returns {n} times {a} plus {m}", "{n} * {a} + {m}", lambda k, x: k["m"] + x * k["n"]),
    t("square_plus", "int", "n", "returns the square of {a} plus {n}", "{a} ** 2 + {n}", lambda k, x: x * x + k["n"]),
    t("power", "int", "n", "returns {a} to the power of {n}", "{a} ** {n}", lambda k, x: pow(x, k["n"])),
    t("is_multiple", "int", "n", "returns True if {a} is divisible by {n} and False otherwise",
      "{a} % {n} == 0", lambda k, x: x // k["n"] * k["n"] == x),
    t("remainder", "int", "n", "returns the remainder of {a} divided by {n}, as the % operator gives it",
      "{a} % {n}", lambda k, x: x - x // k["n"] * k["n"]),
    t("floor_divide", "int", "n", "returns {a} divided by {n}, rounded down to a whole number",
      "{a} // {n}", lambda k, x: divmod(x, k["n"])[0]),
    t("greater_than", "int", "n", "returns True if {a} is greater than {n} and False otherwise",
      "{a} > {n}", lambda k, x: k["n"] < x),
    t("less_than", "int", "m", "returns True if {a} is less than {m} and False otherwise",
      "{a} < {m}", lambda k, x: k["m"] > x),
    t("between", "int", "n m", "returns True if {a} is from {n} to {m} inclusive and False otherwise",
      "{n} <= {a} <= {m}", lambda k, x: x in range(k["n"], k["m"] + 1)),
    t("is_odd", "int", "", "returns True if {a} is odd and False otherwise",
      "{a} % 2 == 1", lambda k, x: bool(x & 1)),
    t("at_least", "int", "n", "returns the larger of {a} and {n}", "max({a}, {n})",
      lambda k, x: x if x > k["n"] else k["n"]),
    t("at_most", "int", "m", "returns the smaller of {a} and {m}", "min({a}, {m})",
      lambda k, x: x if x < k["m"] else k["m"]),
    t("count_digits", "nat", "", "returns the number of digits of the positive number {a}",
      "len(str({a}))", lambda k, x: len(list(f"{x:d}"))),
    t("last_digit", "nat", "", "returns the last digit of {a} as a number", "{a} % 10", lambda k, x: int(str(x)[-1])),
    t("sum_plus_const", "int int", "n", "returns the sum of {a} and {b} plus {n}",
      "{a} + {b} + {n}", lambda k, x, y: sum((x, y, k["n"]))),
    t("product_minus", "int int", "n", "returns the product of {a} and {b} minus {n}",
      "{a} * {b} - {n}", lambda k, x, y: y * x - k["n"]),
    t("distance", "int int", "", "returns the absolute difference of {a} and {b}",
      "abs({a} - {b})", lambda k, x, y: max(x, y) - min(x, y)),
)  # fmt: skip
