"""Documents with fields to extract: bank statements, orders, pay slips, reports, contracts.

A template is a layout, see `documents_layouts`; whole layouts are held out for evaluation. Levels differ in the number
of items, in what else stands around, in whether amounts and dates are written as in other countries, and in how often
a field is asked for that the document doesn't have.
Invariants: amounts add up; a date has one reading where the document says its country; all names are invented.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from tiltyard.domains.drafts import Draft, Request

from .documents_layouts import LAYOUTS, Style, style_of

FIRST = ("Norden", "Kestrel", "Alder", "Copperfield", "Sable", "Larkspur", "Juniper", "Quarry", "Ember", "Fennel")
LAST = ("Tools", "Foods", "Textiles", "Print", "Logistics", "Glass", "Paper", "Optics", "Seeds", "Marine")
FORMS = ("Ltd", "GmbH", "SA", "Inc", "AB", "Oy")
PEOPLE = ("Ada Moss", "Jon Vale", "Mia Stone", "Leo Hart", "Ines Wood", "Omar Reed", "Tara Finch", "Nils Berg")
GOODS = ("paper", "cable", "lamp", "desk", "chair", "filter", "pump", "label", "crate", "brush", "valve", "sensor")
CITIES = ("Oslo", "Lisbon", "Graz", "Turin", "Cork", "Malmo", "Ghent", "Porto")
_CENT = Decimal("0.01")
Items = tuple[dict[str, Any], ...]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """A field: how it's compared, what the document says (None: nothing), and its caption there."""

    type: str
    value: Any
    caption: str
    scheme: str = ""


class Paper(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one document."""

    title: str
    facts: dict[str, Fact]
    items: tuple[dict[str, Any], ...] = ()
    columns: dict[str, str] = {}
    """By key of an item: its type."""
    noise: tuple[tuple[str, Any], ...] = ()
    """Captions and values that nobody asks for."""


def generate(request: Request) -> Iterator[Draft]:
    """Documents, endlessly. Options: `paper`, `items`, `noise` (lines), `foreign` and `absent` (shares)."""
    options = request.options
    layouts = [name for name in LAYOUTS if request.wants(name)]
    rng = random.Random(f"papers/{options['paper']}/{request.split}/{request.seed}/{sorted(options.items())}")
    while layouts:
        layout = rng.choice(layouts)
        paper = PAPERS[options["paper"]](rng, options["items"])
        style = style_of(rng, options["foreign"])
        yield _draft(rng, paper, layout, style, options)


def _draft(rng: random.Random, paper: Paper, layout: str, style: Style, options: dict[str, Any]) -> Draft:
    facts = dict(paper.facts)
    if rng.random() < options["absent"]:
        key = rng.choice(sorted(facts))
        facts[key] = msgspec.structs.replace(facts[key], value=None)
    noise = rng.sample(paper.noise, min(options["noise"], len(paper.noise)))
    shown = [(fact.caption, fact.value) for fact in facts.values() if fact.value is not None]
    text = LAYOUTS[layout](rng, paper.title, shown, noise, paper.items, style)
    fields: dict[str, Any] = {
        key: {"type": fact.type, "value": None if fact.value is None else str(fact.value), "mark": style.mark,
              "order": style.order, "scheme": fact.scheme}
        for key, fact in facts.items()
    }  # fmt: skip
    answer: dict[str, Any] = {key: None if fact.value is None else str(fact.value) for key, fact in facts.items()}
    if paper.items:
        columns = {key: {"type": kind, "mark": style.mark, "order": style.order} for key, kind in paper.columns.items()}
        rows = [{key: str(value) for key, value in item.items()} for item in paper.items]
        fields["items"], answer["items"] = {"type": "items", "columns": columns, "rows": rows}, rows
    return Draft(
        template=layout,
        fields={"document": text, "keys": _keys(paper)},
        data={"fields": fields},
        reference=json.dumps(answer),
        labels={"items": str(len(paper.items)), "layout": layout, "country": style.name},
    )


def _keys(paper: Paper) -> str:
    """What is asked for: keys, with the caption where the key alone doesn't say it."""
    keys = ", ".join(paper.facts)
    return f"{keys}, and items (a list of objects with {', '.join(paper.columns)})" if paper.items else keys


def _company(rng: random.Random) -> str:
    return f"{rng.choice(FIRST)} {rng.choice(LAST)} {rng.choice(FORMS)}"


def _day(rng: random.Random) -> date:
    return date(2021, 1, 1) + timedelta(days=rng.randint(0, 2000))


def _money(rng: random.Random, low: int, high: int) -> Decimal:
    return Decimal(rng.randint(low * 100, high * 100)) * _CENT


def _iban(rng: random.Random) -> str:
    """A German account number with right check digits."""
    account = "".join(rng.choices("0123456789", k=18))
    return f"DE{98 - int(account + '131400') % 97:02}{account}"


def _statement(rng: random.Random, items: int) -> Paper:
    start, opening = _day(rng), _money(rng, 100, 9000)
    booked = sorted(start + timedelta(days=rng.randint(0, 27)) for _ in range(items))
    rows: Items = tuple(
        {
            "date": day,
            "text": f"{rng.choice(LAST)} {rng.randint(100, 999)}",
            "amount": _money(rng, 1, 800) * rng.choice((1, -1)),
        }
        for day in booked
    )
    closing = opening + sum((row["amount"] for row in rows), Decimal(0))
    facts = {
        "holder": Fact(type="name", value=rng.choice(PEOPLE), caption="Account holder"),
        "iban": Fact(type="id", value=_iban(rng), caption="IBAN", scheme="iban"),
        "opening_balance": Fact(type="decimal", value=opening, caption="Opening balance"),
        "closing_balance": Fact(type="decimal", value=closing, caption="Closing balance"),
    }
    noise = (
        ("Branch", rng.choice(CITIES)),
        ("Overdraft limit", _money(rng, 500, 3000)),
        ("Page", 1),
        ("Printed", _day(rng)),
    )
    columns = {"date": "date", "text": "text", "amount": "decimal"}
    return Paper(title="Account statement", facts=facts, items=rows, columns=columns, noise=noise)


def _order(rng: random.Random, items: int) -> Paper:
    rows: Items = tuple(
        {"goods": goods, "quantity": rng.randint(1, 40), "price": _money(rng, 1, 90)}
        for goods in rng.sample(GOODS, items)
    )
    total = sum((row["quantity"] * row["price"] for row in rows), Decimal(0))
    facts = {
        "buyer": Fact(type="name", value=_company(rng), caption="Buyer"),
        "order_number": Fact(type="id", value=f"PO-{rng.randint(10000, 99999)}", caption="Order number"),
        "delivery_date": Fact(type="date", value=_day(rng), caption="Deliver by"),
        "total": Fact(type="decimal", value=total, caption="Total"),
    }
    noise = (
        ("Ordered on", _day(rng)),
        ("Supplier", _company(rng)),
        ("Deposit", _money(rng, 10, 90)),
        ("Contact", rng.choice(PEOPLE)),
    )
    columns = {"goods": "text", "quantity": "integer", "price": "decimal"}
    return Paper(title="Purchase order", facts=facts, items=rows, columns=columns, noise=noise)


def _payslip(rng: random.Random, items: int) -> Paper:
    names = (
        "income tax",
        "health insurance",
        "pension",
        "union fee",
        "parking",
        "canteen",
        "phone",
        "loan",
        "travel pass",
    )
    rows: Items = tuple(
        {"name": name, "amount": _money(rng, 5, 300)} for name in rng.sample(names, min(items, len(names)))
    )
    gross = _money(rng, 3000, 7000)
    facts = {
        "employee": Fact(type="name", value=rng.choice(PEOPLE), caption="Employee"),
        "paid_on": Fact(type="date", value=_day(rng), caption="Paid on"),
        "gross": Fact(type="decimal", value=gross, caption="Gross pay"),
        "net": Fact(type="decimal", value=gross - sum((row["amount"] for row in rows), Decimal(0)), caption="Net pay"),
    }
    noise = (
        ("Employer", _company(rng)),
        ("Gross pay last month", _money(rng, 3000, 7000)),
        ("Days of leave", rng.randint(0, 30)),
    )
    return Paper(
        title="Pay slip; deductions below",
        facts=facts,
        items=rows,
        columns={"name": "text", "amount": "decimal"},
        noise=noise,
    )


def _report(rng: random.Random, items: int) -> Paper:
    revenue, costs = _money(rng, 100000, 900000), _money(rng, 50000, 90000)
    facts = {
        "company": Fact(type="name", value=_company(rng), caption="Company"),
        "period_end": Fact(type="date", value=_day(rng), caption="Period ended"),
        "revenue": Fact(type="decimal", value=revenue, caption="Revenue"),
        "profit": Fact(type="decimal", value=revenue - costs, caption="Profit before tax"),
        "employees": Fact(type="integer", value=rng.randint(8, 900), caption="Employees at the end"),
    }
    noise = (
        ("Revenue of the year before", _money(rng, 100000, 900000)), ("Employees at the start", rng.randint(8, 900)),
        ("Costs", costs), ("Seat", rng.choice(CITIES)), ("Auditor", _company(rng)), ("Signed on", _day(rng)),
    )  # fmt: skip
    return Paper(title="Annual report, key figures", facts=facts, noise=noise)


def _contract(rng: random.Random, items: int) -> Paper:
    start = _day(rng)
    facts = {
        "landlord": Fact(type="name", value=rng.choice(PEOPLE[:4]), caption="Landlord"),
        "tenant": Fact(type="name", value=rng.choice(PEOPLE[4:]), caption="Tenant"),
        "start": Fact(type="date", value=start, caption="The lease starts on"),
        "rent": Fact(type="decimal", value=_money(rng, 400, 2500), caption="Monthly rent"),
        "deposit": Fact(type="decimal", value=_money(rng, 2600, 6000), caption="Deposit"),
        "notice_months": Fact(type="integer", value=rng.randint(1, 6), caption="Notice in months"),
    }
    noise = (
        ("Signed on", start - timedelta(days=rng.randint(3, 40))), ("Heating in advance", _money(rng, 50, 300)),
        ("Rent of the garage", _money(rng, 30, 120)), ("Rooms", rng.randint(1, 6)), ("Witness", rng.choice(PEOPLE)),
    )  # fmt: skip
    return Paper(title="Lease", facts=facts, noise=noise)


PAPERS: dict[str, Callable[[random.Random, int], Paper]] = {
    "statement": _statement,
    "order": _order,
    "payslip": _payslip,
    "report": _report,
    "contract": _contract,
}
