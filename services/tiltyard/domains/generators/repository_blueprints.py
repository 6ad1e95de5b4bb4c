"""The repositories that `repositories` draws from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One fault: `good` in the file `path` becomes `bad`; the hidden tests named in `breaks` then fail."""

    path: str
    good: str
    bad: str
    symptom: str
    breaks: tuple[str, ...]


@dataclass(frozen=True)
class Blueprint:
    """One repository."""

    name: str
    package: str
    about: str
    files: Mapping[str, str]
    faults: tuple[Fault, ...]
    tests: str
    names: Mapping[str, tuple[str, ...]]
    """Words, in code and prose alike, and others that may stand in their place."""


SHOP = Blueprint(
    "shop",
    "shop",
    "a shop's cart and prices",
    {
        "shop/__init__.py": '"""A shop."""\n',
        "shop/prices.py": (
            '"""Prices in cents."""\n\nDISCOUNT_FROM = <b>\n\n\ndef unit_price(prices, item):\n'
            '    """The price of an item; KeyError for one that isn\'t sold."""\n    return prices[item]\n\n\n'
            'def line_total(price, count):\n    """Price of some pieces; from <b> pieces on <p> percent less, rounded '
            'down to whole cents."""\n    total = price * count\n    if count >= DISCOUNT_FROM:\n'
            "        total = total * (100 - <p>) // 100\n    return total\n"
        ),
        "shop/cart.py": (
            '"""The cart: item to count."""\n\nfrom shop.prices import line_total, unit_price\n\n\n'
            'def add(cart, item, count=1):\n    """A new cart with so many more of an item; ValueError below 1 piece."""\n'
            "    if count < 1:\n        raise ValueError('count')\n    changed = dict(cart)\n"
            "    changed[item] = changed.get(item, 0) + count\n    return changed\n\n\n"
            'def remove(cart, item):\n    """A new cart without an item; the same when it isn\'t in it."""\n'
            "    return {name: count for name, count in cart.items() if name != item}\n\n\n"
            'def total(cart, prices):\n    """What the whole cart costs; shipping of <c> cents unless it\'s empty."""\n'
            "    goods = sum(line_total(unit_price(prices, item), count) for item, count in cart.items())\n"
            "    return goods + <c> if cart else 0\n"
        ),
    },
    (
        Fault(
            "shop/prices.py",
            "count >= DISCOUNT_FROM",
            "count > DISCOUNT_FROM",
            "a customer who takes exactly <b> pieces gets no discount",
            ("test_discount_at_limit",),
        ),
        Fault(
            "shop/prices.py",
            "(100 - <p>) // 100",
            "<p> // 100",
            "large orders cost far too little",
            ("test_discount_at_limit", "test_discount_above"),
        ),
        Fault(
            "shop/cart.py",
            "if name != item",
            "if name == item",
            "removing an item removes all the others",
            ("test_remove",),
        ),
        Fault(
            "shop/cart.py",
            "changed.get(item, 0) + count",
            "count",
            "adding an item twice counts only the second time",
            ("test_add_twice",),
        ),
        Fault(
            "shop/cart.py",
            "return goods + <c> if cart else 0",
            "return goods + <c>",
            "an empty cart isn't free",
            ("test_empty_is_free",),
        ),
        Fault(
            "shop/cart.py",
            "if count < 1",
            "if count < 0",
            "it is possible to add zero pieces of an item",
            ("test_add_nothing",),
        ),
    ),
    "import pytest\nfrom shop.cart import add, remove, total\nfrom shop.prices import line_total\n\n\n"
    "def test_add_twice():\n    assert add(add({}, 'tea'), 'tea', 3) == {'tea': 4}\n\n\n"
    "def test_add_nothing():\n    with pytest.raises(ValueError):\n        add({}, 'tea', 0)\n\n\n"
    "def test_remove():\n    assert remove({'a': 1, 'b': 2}, 'a') == {'b': 2}\n    assert remove({'b': 2}, 'a') == {'b': 2}\n\n\n"
    "def test_empty_is_free():\n    assert total({}, {}) == 0\n\n\n"
    "def test_total():\n    assert total({'a': 2, 'b': 1}, {'a': 150, 'b': 99}) == 399 + <c>\n\n\n"
    "def test_no_discount():\n    assert line_total(33, <b> - 1) == 33 * (<b> - 1)\n\n\n"
    "def test_discount_at_limit():\n    assert line_total(33, <b>) == 33 * <b> * (100 - <p>) // 100\n\n\n"
    "def test_discount_above():\n    assert line_total(7, <b> + 5) == 7 * (<b> + 5) * (100 - <p>) // 100\n",
    {
        "shop": ("store", "market", "kiosk"),
        "cart": ("basket", "trolley"),
        "prices": ("tariff", "rates"),
        "item": ("product", "article"),
        "count": ("number", "pieces"),
        "line_total": ("row_total", "position_price"),
        "unit_price": ("single_price", "price_of"),
    },
)
BANK = Blueprint(
    "bank",
    "bank",
    "accounts with a limit and interest",
    {
        "bank/__init__.py": '"""A bank."""\n',
        "bank/errors.py": (
            '"""What can go wrong."""\n\n\nclass Refused(Exception):\n    """The account does not allow it."""\n\n\n'
            'class Overdrawn(Refused):\n    """More than the limit would be taken."""\n'
        ),
        "bank/account.py": (
            '"""An account in whole cents."""\n\nfrom bank.errors import Overdrawn, Refused\n\n\nclass Account:\n'
            '    """May go <c> cents below zero; every move is kept in `moves`."""\n\n'
            "    def __init__(self, balance=0):\n        self.balance = balance\n        self.moves = []\n\n"
            '    def deposit(self, cents):\n        """Pay in; Refused unless it is more than 0."""\n'
            "        if cents <= 0:\n            raise Refused('amount')\n        self.balance += cents\n"
            "        self.moves.append(cents)\n\n"
            '    def withdraw(self, cents):\n        """Take out; a fee of <a> cents when the balance ends below zero."""\n'
            "        if cents <= 0:\n            raise Refused('amount')\n        if self.balance - cents < -<c>:\n"
            "            raise Overdrawn(str(cents))\n        self.balance -= cents\n        self.moves.append(-cents)\n"
            "        if self.balance < 0:\n            self.balance -= <a>\n            self.moves.append(-<a>)\n"
        ),
        "bank/interest.py": (
            '"""Interest."""\n\n\ndef interest(balance, days):\n    """<p> percent a year of 360 days, rounded down; 0 for '
            'balances below 0."""\n    if balance < 0:\n        return 0\n    return balance * <p> * days // 36000\n\n\n'
            'def compound(balance, years):\n    """The balance after so many whole years, interest added each year."""\n'
            "    for _ in range(years):\n        balance += interest(balance, 360)\n    return balance\n"
        ),
    },
    (
        Fault(
            "bank/account.py",
            "self.balance - cents < -<c>",
            "self.balance - cents <= -<c>",
            "nobody can use the last cent of the limit",
            ("test_limit_is_usable",),
        ),
        Fault(
            "bank/account.py",
            "        if self.balance < 0:\n",
            "        if self.balance <= 0:\n",
            "taking out everything costs a fee",
            ("test_empty_costs_no_fee",),
        ),
        Fault(
            "bank/account.py",
            "self.moves.append(-cents)",
            "self.moves.append(cents)",
            "the list of moves shows what was taken out as paid in",
            ("test_moves", "test_fee"),
        ),
        Fault(
            "bank/errors.py",
            "class Overdrawn(Refused)",
            "class Overdrawn(Exception)",
            "programs that catch Refused stop when an account is overdrawn",
            ("test_overdrawn_is_refused",),
        ),
        Fault(
            "bank/interest.py",
            "days // 36000",
            "days // 36500",
            "interest is a little too low",
            ("test_interest", "test_compound"),
        ),
        Fault(
            "bank/interest.py",
            "range(years)",
            "range(1, years)",
            "after one year there is no interest",
            ("test_compound",),
        ),
        Fault(
            "bank/interest.py",
            "if balance < 0",
            "if balance > 0",
            "savers get no interest",
            ("test_interest", "test_compound", "test_no_interest_on_debt"),
        ),
    ),
    "import pytest\nfrom bank.account import Account\nfrom bank.errors import Overdrawn, Refused\n"
    "from bank.interest import compound, interest\n\n\n"
    "def test_deposit():\n    a = Account(5)\n    a.deposit(10)\n    assert a.balance == 15\n"
    "    with pytest.raises(Refused):\n        a.deposit(0)\n\n\n"
    "def test_limit_is_usable():\n    a = Account()\n    a.withdraw(<c>)\n    assert a.balance == -<c> - <a>\n\n\n"
    "def test_overdrawn():\n    a = Account()\n    with pytest.raises(Overdrawn):\n        a.withdraw(<c> + 1)\n"
    "    assert a.balance == 0\n\n\n"
    "def test_overdrawn_is_refused():\n    with pytest.raises(Refused):\n        Account().withdraw(1000)\n\n\n"
    "def test_empty_costs_no_fee():\n    a = Account(50)\n    a.withdraw(50)\n    assert a.balance == 0\n\n\n"
    "def test_moves():\n    a = Account()\n    a.deposit(30)\n    a.withdraw(10)\n    assert list(a.moves) == [30, -10]\n\n\n"
    "def test_fee():\n    a = Account(5)\n    a.withdraw(6)\n    assert list(a.moves) == [-6, -<a>]\n\n\n"
    "def test_interest():\n    assert interest(36000, 180) == 180 * <p>\n    assert interest(36000 * 100, 1) == 100 * <p>\n\n\n"
    "def test_no_interest_on_debt():\n    assert interest(-36000, 360) == 0\n\n\n"
    "def test_compound():\n    once = 10000 + 100 * <p>\n    assert compound(10000, 1) == once\n"
    "    assert compound(10000, 2) == once + once * <p> // 100\n    assert compound(10000, 0) == 10000\n",
    {
        "bank": ("vault", "fund", "exchange"),
        "account": ("wallet", "ledger"),
        "Account": ("Wallet", "Ledger"),
        "deposit": ("pay_in", "credit"),
        "withdraw": ("take_out", "debit"),
        "moves": ("entries", "history"),
        "compound": ("grow", "accrue"),
        "cents": ("amount", "pence"),
    },
)
TEXT = Blueprint(
    "text",
    "textkit",
    "helpers for texts",
    {
        "textkit/__init__.py": '"""Helpers for texts."""\n\nfrom textkit.wrap import wrap\n\n__all__ = ["wrap"]\n',
        "textkit/wrap.py": (
            '"""Filling lines."""\n\n\ndef wrap(text, width=<b>):\n    """Lines of at most `width` characters, broken between '
            'words; a longer word has its own line."""\n    lines = []\n    for word in text.split():\n'
            "        if lines and len(lines[-1]) + 1 + len(word) <= width:\n            lines[-1] += ' ' + word\n"
            "        else:\n            lines.append(word)\n    return lines\n"
        ),
        "textkit/slug.py": (
            '"""Names for addresses."""\n\n\ndef slug(title, limit=<c>):\n    """Small letters and digits, anything else '
            'one \'-\', none at the ends, at most `limit` characters."""\n    out = ""\n    for char in title.lower():\n'
            '        if char.isalnum():\n            out += char\n        elif out and not out.endswith("-"):\n'
            '            out += "-"\n    return out[:limit].strip("-")\n'
        ),
        "textkit/table.py": (
            '"""Plain tables."""\n\n\ndef table(rows):\n    """Rows of cells as lines, each column as wide as its widest cell, '
            'two blanks between, none at the end."""\n    if not rows:\n        return ""\n'
            "    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]\n"
            "    lines = ['  '.join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]\n"
            "    return '\\n'.join(lines)\n"
        ),
    },
    (
        Fault(
            "textkit/wrap.py", "<= width", "< width", "lines are broken one character too early", ("test_wrap_exact",)
        ),
        Fault(
            "textkit/wrap.py",
            "+ 1 + len(word)",
            "+ len(word)",
            "some lines are one character too long",
            ("test_wrap_over",),
        ),
        Fault(
            "textkit/wrap.py",
            "text.split()",
            "text.split(' ')",
            "doubled blanks appear at the ends of lines",
            ("test_wrap_blanks",),
        ),
        Fault(
            "textkit/slug.py",
            'elif out and not out.endswith("-")',
            "elif out",
            "several signs in a row give several dashes",
            ("test_slug_signs",),
        ),
        Fault(
            "textkit/slug.py",
            "title.lower()",
            "title",
            "slugs keep capital letters",
            ("test_slug", "test_slug_signs", "test_slug_limit"),
        ),
        Fault(
            "textkit/table.py",
            ".rstrip() for row in rows",
            " for row in rows",
            "lines of tables end in blanks",
            ("test_table",),
        ),
        Fault(
            "textkit/table.py",
            'if not rows:\n        return ""',
            "if not rows:\n        return None",
            "an empty table is no text",
            ("test_table_empty",),
        ),
    ),
    "from textkit import wrap\nfrom textkit.slug import slug\nfrom textkit.table import table\n\n\n"
    "def test_wrap_exact():\n    assert wrap('ab cd ef', 5) == ['ab cd', 'ef']\n\n\n"
    "def test_wrap_over():\n    assert wrap('abc de', 5) == ['abc', 'de']\n\n\n"
    "def test_wrap_long():\n    assert wrap('a abcdefgh b', 4) == ['a', 'abcdefgh', 'b']\n    assert wrap('', 4) == []\n\n\n"
    "def test_wrap_blanks():\n    assert wrap('a  b', 9) == ['a b']\n\n\n"
    "def test_slug():\n    assert slug('Red Car 2') == 'red-car-2'\n\n\n"
    "def test_slug_signs():\n    assert slug('--Oh, what?! A day...') == 'oh-what-a-day'\n\n\n"
    "def test_slug_limit():\n    assert slug('Abc def', 4) == 'abc'\n    assert len(slug('X' * 200)) == <c>\n\n\n"
    "def test_table():\n    assert table([['a', 'bb'], ['ccc', 4]]) == 'a    bb\\nccc  4'\n\n\n"
    "def test_table_empty():\n    assert table([]) == ''\n",
    {
        "textkit": ("wording", "letters", "typing_aid"),
        "wrap": ("fill", "fold"),
        "slug": ("handle", "short_name"),
        "table": ("grid", "sheet"),
        "width": ("room", "columns"),
        "title": ("heading", "caption"),
        "rows": ("records", "entries"),
    },
)
PLAN = Blueprint(
    "plan",
    "planner",
    "a planner of jobs and times",
    {
        "planner/__init__.py": '"""A planner."""\n',
        "planner/times.py": (
            '"""Times of day in minutes."""\n\n\ndef minutes(text):\n    """\'8:05\' as 485; ValueError for what is no time '
            'of day."""\n    hours, _, rest = text.partition(":")\n    if not hours.isdigit() or len(rest) != 2 or not '
            "rest.isdigit():\n        raise ValueError(text)\n    if int(hours) > 23 or int(rest) > 59:\n"
            "        raise ValueError(text)\n    return int(hours) * 60 + int(rest)\n\n\n"
            'def clock(count):\n    """485 as \'8:05\'; goes on with 0:00 after midnight."""\n'
            "    count %= 1440\n    return f'{count // 60}:{count % 60:02d}'\n"
        ),
        "planner/slots.py": (
            '"""Free times. A slot is a pair of minutes (from, to)."""\n\n\ndef overlap(a, b):\n    """Do two slots share a '
            'minute? One that ends when the other begins does not."""\n    return a[0] < b[1] and b[0] < a[1]\n\n\n'
            'def merge(slots):\n    """Slots in order, those that overlap or touch joined, as a list of tuples."""\n'
            "    found = []\n    for start, end in sorted(slots):\n        if found and start <= found[-1][1]:\n"
            "            found[-1] = (found[-1][0], max(found[-1][1], end))\n        else:\n"
            "            found.append((start, end))\n    return found\n\n\n"
            'def free(slots, day):\n    """What is left of `day` between the slots, of at least <a> minutes."""\n'
            "    at, found = day[0], []\n    for start, end in merge(slots):\n        if start - at >= <a>:\n"
            "            found.append((at, start))\n        at = max(at, end)\n    if day[1] - at >= <a>:\n"
            "        found.append((at, day[1]))\n    return found\n"
        ),
        "planner/order.py": (
            '"""The order of jobs."""\n\n\ndef order(needs):\n    """Jobs so that each comes after those that it needs, else by '
            'name; ValueError for a circle."""\n    left, found = dict(needs), []\n    while left:\n'
            "        ready = sorted(job for job, before in left.items() if all(one in found for one in before))\n"
            "        if not ready:\n            raise ValueError('circle')\n        found.append(ready[0])\n"
            "        del left[ready[0]]\n    return found\n"
        ),
    },
    (
        Fault("planner/times.py", "int(rest) > 59", "int(rest) > 60", "a time like 7:60 is taken", ("test_no_time",)),
        Fault(
            "planner/times.py", "    count %= 1440\n", "", "times after midnight are shown as 24:10", ("test_midnight",)
        ),
        Fault(
            "planner/times.py", "{count % 60:02d}", "{count % 60}", "five past eight is shown as 8:5", ("test_clock",)
        ),
        Fault(
            "planner/slots.py",
            "a[0] < b[1] and",
            "a[0] <= b[1] and",
            "slots that only touch count as overlapping",
            ("test_touching",),
        ),
        Fault(
            "planner/slots.py",
            "start <= found[-1][1]",
            "start < found[-1][1]",
            "touching slots aren't joined",
            ("test_merge",),
        ),
        Fault(
            "planner/slots.py",
            "max(found[-1][1], end)",
            "end",
            "a short slot inside a long one cuts the long one off",
            ("test_merge_inside", "test_free"),
        ),
        Fault(
            "planner/order.py",
            "found.append(ready[0])",
            "found.append(ready[-1])",
            "jobs that could come in any order don't come by name, or the planner stops with an error",
            ("test_order", "test_order_names"),
        ),
        Fault(
            "planner/order.py",
            "raise ValueError('circle')",
            "return found",
            "a circle of jobs goes unnoticed",
            ("test_circle",),
        ),
    ),
    "import pytest\nfrom planner.order import order\nfrom planner.slots import free, merge, overlap\n"
    "from planner.times import clock, minutes\n\n\n"
    "def test_minutes():\n    assert minutes('8:05') == 485\n    assert minutes('23:59') == 1439\n\n\n"
    "def test_other_texts():\n    for text in ('24:00', '7', 'x:10', '7:5'):\n        with pytest.raises(ValueError):\n"
    "            minutes(text)\n\n\n"
    "def test_no_time():\n    with pytest.raises(ValueError):\n        minutes('7:60')\n\n\n"
    "def test_clock():\n    assert clock(485) == '8:05'\n\n\n"
    "def test_midnight():\n    assert clock(1450) == '0:10'\n\n\n"
    "def test_touching():\n    assert overlap((1, 3), (3, 5)) is False\n    assert overlap((3, 5), (1, 3)) is False\n\n\n"
    "def test_overlap():\n    assert overlap((1, 4), (3, 5)) is True\n\n\n"
    "def test_merge():\n    assert merge([(5, 6), (1, 3), (3, 4)]) == [(1, 4), (5, 6)]\n\n\n"
    "def test_merge_inside():\n    assert merge([(1, 90), (2, 30), (95, 99)]) == [(1, 90), (95, 99)]\n\n\n"
    "def test_free():\n    assert free([(10, 60), (20, 30)], (0, 100)) == [(0, 10), (60, 100)]\n\n\n"
    "def test_free_short():\n    assert free([(<a> - 1, 50)], (0, 50 + <a>)) == [(50, 50 + <a>)]\n\n\n"
    "def test_order():\n    assert order({'c': ['a'], 'a': [], 'b': ['c']}) == ['a', 'c', 'b']\n\n\n"
    "def test_order_names():\n    assert order({'z': [], 'y': [], 'x': []}) == ['x', 'y', 'z']\n\n\n"
    "def test_circle():\n    with pytest.raises(ValueError):\n        order({'a': ['b'], 'b': ['a']})\n",
    {
        "planner": ("diary", "calendar", "agenda"),
        "minutes": ("to_minutes", "parse_time"),
        "clock": ("as_clock", "show_time"),
        "slots": ("spans", "blocks"),
        "overlap": ("collide", "intersect"),
        "merge": ("join_up", "unite"),
        "free": ("gaps", "openings"),
        "order": ("sequence", "arrange"),
    },
)
BLUEPRINTS = (SHOP, BANK, TEXT, PLAN)
