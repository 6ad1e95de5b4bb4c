"""How values leave the sandbox: plain JSON, restricted to exact types.

Runs inside the sandbox, in front of a runner (see `guest`).

Only None, bool, int, float, str, list, tuple and dict pass, by exact type, so objects with tricks (equal to
everything, subclasses) don't. Floats, big integers, tuples and dicts are tagged; depth, items and length are bounded.
No imports: a fresh interpreter starts faster, and the submission can't replace what isn't looked up.
"""


def encode_value(value: object, depth: int = 0, budget: "list[int] | None" = None) -> str:
    """`value` as JSON text; ValueError when its type or size isn't allowed."""
    budget = [65536] if budget is None else budget
    budget[0] -= len(value) if type(value) is str else 1
    if depth > 20 or budget[0] < 0:
        raise ValueError("the result is too large")
    if value is None:
        return "null"
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is int:
        if value.bit_length() > 20000:
            raise ValueError("the result is too large")
        return repr(value) if value.bit_length() < 53 else f'{{"int": "{value:x}"}}'
    if type(value) is float:
        return f'{{"float": "{value!r}"}}'
    if type(value) is str:
        return _text(value)
    if type(value) is list:
        return "[" + ", ".join([encode_value(item, depth + 1, budget) for item in value]) + "]"
    if type(value) is tuple:
        return f'{{"tuple": {encode_value(list(value), depth, budget)}}}'
    if type(value) is dict:
        pairs = encode_value([[key, item] for key, item in value.items()], depth + 1, budget)
        return f'{{"dict": {pairs}}}'
    raise ValueError("the result has type " + type(value).__name__[:60])


def _text(value: str) -> str:
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return '"' + value + '"'
    units = []
    for char in value:
        code = ord(char)
        if code > 0xFFFF:  # as a surrogate pair, like JSON demands
            code -= 0x10000
            units.append(f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}")
        else:
            units.append(f"\\u{code:04x}")
    return '"' + "".join(units) + '"'


def describe(error: BaseException) -> str:
    """One short line about an exception, as JSON text; never raises."""
    try:
        return _text((type(error).__name__ + ": " + str(error))[:200])
    except BaseException:  # the submission's own `__str__` may raise anything
        return '"an exception that can not be described"'
