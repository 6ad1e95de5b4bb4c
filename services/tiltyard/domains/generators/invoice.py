"""Invoices as plain text with five fields to extract: vendor, number, date, currency and total.

A template is a layout: where the fields stand, how the date is written, which other amounts and dates distract.
Invariants: amounts add up; a date is shown in a way that has one reading; all names are invented.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

import msgspec

from tiltyard.domains.drafts import Draft, Request

_FIRST = ("Norden", "Kestrel", "Alder", "Brightwater", "Copperfield", "Sable", "Larkspur", "Juniper", "Quarry", "Ember")
_LAST = ("Tools", "Supplies", "Foods", "Textiles", "Print", "Logistics", "Glass", "Paper", "Optics", "Seeds")
_GOODS = ("paper", "cable", "lamp", "desk", "chair", "filter", "pump", "label", "crate", "brush", "valve", "sensor")
_CURRENCIES = ("EUR", "USD", "GBP", "CHF")
_PEOPLE = ("Ada Moss", "Jon Vale", "Mia Stone", "Leo Hart", "Ines Wood")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


@dataclass(frozen=True)
class Invoice:
    """The facts of one invoice; amounts in units of its currency."""

    vendor: str
    number: str
    day: date
    due: date
    currency: str
    lines: tuple[tuple[int, str, Decimal], ...]
    """Quantity, goods, price of the line."""
    tax: Decimal
    buyer: str

    @property
    def net(self) -> Decimal:
        return sum((price for _, _, price in self.lines), Decimal(0))

    @property
    def total(self) -> Decimal:
        return self.net + self.tax


def _draw(rng: random.Random) -> Invoice:
    cents = Decimal("0.01")
    lines = tuple(
        (quantity := rng.randint(1, 9), rng.choice(_GOODS), (Decimal(rng.randint(199, 9900)) * quantity * cents))
        for _ in range(rng.randint(1, 2))
    )
    net = sum((price for _, _, price in lines), Decimal(0))
    day = date(rng.randint(2021, 2026), rng.randint(1, 12), rng.randint(1, 28))
    return Invoice(
        vendor=f"{rng.choice(_FIRST)} {rng.choice(_LAST)}",
        number=rng.choice(("INV-{}", "R{}", "{}", "A-{}")).format(rng.randint(1000, 99999)),
        day=day,
        due=day + timedelta(days=rng.choice((10, 14, 30))),
        currency=rng.choice(_CURRENCIES),
        lines=lines,
        tax=(net * rng.choice((Decimal("0.05"), Decimal("0.1"), Decimal("0.2")))).quantize(cents),
        buyer=rng.choice(_PEOPLE),
    )


def _long(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def _goods(i: Invoice, pattern: str = "{q} x {g}  {p}") -> str:
    return "\n".join(pattern.format(q=q, g=g, p=p) for q, g, p in i.lines)


def _plain(i: Invoice) -> str:
    return (
        f"{i.vendor}\nInvoice {i.number}\nDate: {i.day}\nDue: {i.due}\nBill to: {i.buyer}\n{_goods(i)}\n"
        f"Net {i.net}\nTax {i.tax}\nTotal {i.currency} {i.total}"
    )


def _letter(i: Invoice) -> str:
    return (
        f"Dear {i.buyer},\nplease pay invoice no. {i.number} of {_long(i.day)} for\n{_goods(i)}\n"
        f"plus tax of {i.tax}. The amount due is {i.total} {i.currency}.\nKind regards\n{i.vendor}"
    )


def _receipt(i: Invoice) -> str:
    return (
        f"*** {i.vendor} ***\n{_long(i.day)}   no {i.number}\n{_goods(i, '{g} ({q})  {p}')}\n"
        f"subtotal {i.net}\ntax {i.tax}\nTO PAY {i.total} {i.currency}\nthank you {i.buyer}"
    )


def _table(i: Invoice) -> str:
    return (
        f"Supplier | {i.vendor}\nCustomer | {i.buyer}\nInvoice number | {i.number}\nInvoice date | {i.day}\n"
        f"Due date | {i.due}\n{_goods(i, '{g} | {q} | {p}')}\nTax | {i.tax}\nGrand total | {i.total} {i.currency}"
    )


def _mail(i: Invoice) -> str:
    return (
        f"From: {i.vendor}\nTo: {i.buyer}\nSubject: Invoice {i.number}\n\nInvoice date {_long(i.day)}, "
        f"payable by {_long(i.due)}.\n{_goods(i)}\nTotal with {i.tax} tax: {i.currency} {i.total}"
    )


def _ledger(i: Invoice) -> str:
    return (
        f"{i.day} {i.vendor} {i.number}\n{_goods(i, '  {g} {p}')}\n  tax {i.tax}\n  = {i.total} {i.currency}\n"
        f"booked for {i.buyer}"
    )


def _statement(i: Invoice) -> str:
    return (
        f"INVOICE\nNo: {i.number}\nIssued by: {i.vendor}\nIssued on: {_long(i.day)}\nCurrency: {i.currency}\n"
        f"{_goods(i)}\nSum {i.net}, tax {i.tax}, total {i.total}\nReceived by {i.buyer}"
    )


def _footer(i: Invoice) -> str:
    return (
        f"Delivered to {i.buyer}:\n{_goods(i)}\nAll prices in {i.currency}.\nNet: {i.net}\nTax: {i.tax}\n"
        f"Total: {i.total}\n--\n{i.vendor}, invoice {i.number}, {i.day}"
    )


LAYOUTS: dict[str, Callable[[Invoice], str]] = {
    "plain": _plain,
    "letter": _letter,
    "receipt": _receipt,
    "table": _table,
    "mail": _mail,
    "ledger": _ledger,
    "statement": _statement,
    "footer": _footer,
}


def _answer(i: Invoice) -> str:
    values = {
        "vendor": i.vendor,
        "number": i.number,
        "date": str(i.day),
        "currency": i.currency,
        "total": str(i.total),
    }
    return msgspec.json.format(msgspec.json.encode(values), indent=0).decode()


def _fields(i: Invoice) -> dict[str, dict[str, str]]:
    return {
        "vendor": {"type": "text", "value": i.vendor},
        "number": {"type": "text", "value": i.number},
        "date": {"type": "iso_date", "value": str(i.day)},
        "currency": {"type": "text", "value": i.currency},
        "total": {"type": "decimal", "value": str(i.total)},
    }


_EXAMPLE = Invoice(
    vendor="Old Mill Bakery",
    number="B-7731",
    day=date(2024, 11, 5),
    due=date(2024, 12, 5),
    currency="SEK",
    lines=((3, "oven", Decimal("610.50")),),
    tax=Decimal("61.05"),
    buyer="Tom Reed",
)
"""Shown in every prompt; none of its values are drawn for others."""


def generate(request: Request) -> Iterator[Draft]:
    """Invoices, endlessly, every layout in turn; the prompt starts with one worked example of layout `plain`."""
    rng = random.Random(f"invoice/{request.split}/{request.seed}")
    layouts = [name for name in LAYOUTS if request.wants(name)]
    while layouts:
        for name in layouts:
            invoice = _draw(rng)
            yield Draft(
                template=name,
                fields={"document": LAYOUTS[name](invoice)},
                shots=(({"document": _plain(_EXAMPLE)}, _answer(_EXAMPLE)),),
                data={"fields": _fields(invoice)},
                reference=_answer(invoice),
                labels={"lines": str(len(invoice.lines)), "layout": name},
            )
