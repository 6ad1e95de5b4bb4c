"""The worlds of `world_tasks`: a shop's orders, a bank, a library, meeting rooms, a warehouse, flights, a help desk.

Invariant: amounts are whole numbers (cents, pieces, seats), and every goal says who or what is meant by what is shown.
"""

from __future__ import annotations

import random

from .world_tasks import Goal, State, WorldKind, action, call, goal, ids, step
from .worlds_more import DESK, FLIGHTS, WAREHOUSE

PEOPLE = ("Ada", "Jon", "Mia", "Leo", "Ines", "Omar", "Tara", "Nils")
_ITEMS = ("lamp", "desk", "chair", "pump", "cable", "brush", "crate", "valve")
_BOOKS = ("Tides", "Glass Hill", "The Ferry", "Low Sun", "Paper Birds", "North Gate", "Salt", "Old Maps", "Embers")


# ------------------------------------------------------------ a shop's orders


def _orders(rng: random.Random, rows: int) -> State:
    keys = ids(rng, "o", rows)
    orders = {
        key: {
            "customer": rng.choice(PEOPLE[: 2 + rows // 2]),
            "item": rng.choice(_ITEMS),
            "cents": rng.randint(5, 400) * 100,
            "status": rng.choice(("pending", "pending", "delivered", "shipped", "delivered")),
        }
        for key in keys
    }
    return {"orders": orders}


def _cancel(rng: random.Random, state: State) -> Goal | None:
    who = rng.choice(PEOPLE)
    keys = [key for key, row in state["orders"].items() if row["customer"] == who and row["status"] == "pending"]
    calls = [call("cancel_order", order_id=key) for key in keys]
    return goal(f"Cancel every pending order of {who}.", calls, *(f"orders/{key}" for key in keys))


def _return(rng: random.Random, state: State) -> Goal | None:
    most = rng.randint(50, 300) * 100
    keys = [key for key, row in state["orders"].items() if row["status"] == "delivered" and row["cents"] > most]
    calls = [call("return_order", order_id=key) for key in keys]
    text = f"Return every delivered order that cost more than {most} cents."
    return goal(text, calls, *(f"orders/{key}" for key in keys))


def _swap(rng: random.Random, state: State) -> Goal | None:
    keys = [key for key, row in state["orders"].items() if row["status"] == "pending"]
    if not keys:
        return None
    key, item = rng.choice(keys), rng.choice(_ITEMS)
    if state["orders"][key]["item"] == item:
        return None
    return goal(
        f"Change the item of order {key} to {item}.", [call("change_item", order_id=key, item=item)], f"orders/{key}"
    )


_IS_PENDING = step("is", "orders", "$order_id", "status", "pending")
_SHOP = WorldKind(
    "You look after a shop. Only pending orders can be cancelled or changed, only delivered ones returned.",
    _orders,
    (
        action(
            "cancel_order",
            "Cancel a pending order",
            {"order_id": "string"},
            _IS_PENDING,
            step("set", "orders", "$order_id", "status", "cancelled"),
        ),
        action(
            "return_order",
            "Take a delivered order back",
            {"order_id": "string"},
            step("is", "orders", "$order_id", "status", "delivered"),
            step("set", "orders", "$order_id", "status", "returned"),
        ),
        action(
            "change_item",
            "Change a pending order's item",
            {"order_id": "string", "item": "string"},
            _IS_PENDING,
            step("set", "orders", "$order_id", "item", "$item"),
        ),
    ),
    {"cancel": _cancel, "return": _return, "change_item": _swap},
)


# ------------------------------------------------------------ a bank


def _accounts(rng: random.Random, rows: int) -> State:
    accounts = {
        key: {"owner": rng.choice(PEOPLE), "cents": rng.randint(10, 900) * 100, "frozen": rng.random() < 0.2}
        for key in ids(rng, "a", rows)
    }
    return {"accounts": accounts}


def _transfer(rng: random.Random, state: State) -> Goal | None:
    free = [key for key, row in state["accounts"].items() if not row["frozen"]]
    if len(free) < 2:
        return None
    source, target = rng.sample(free, 2)
    cents = rng.randint(1, state["accounts"][source]["cents"] // 100) * 100
    made = call("transfer", source=source, target=target, cents=cents)
    return goal(
        f"Move {cents} cents from account {source} to account {target}.",
        [made],
        f"accounts/{source}",
        f"accounts/{target}",
    )


def _empty(rng: random.Random, state: State) -> Goal | None:
    free = [key for key, row in state["accounts"].items() if not row["frozen"]]
    if len(free) < 2:
        return None
    source, target = rng.sample(free, 2)
    cents = state["accounts"][source]["cents"]
    calls = [call("transfer", source=source, target=target, cents=cents), call("close_account", account_id=source)]
    text = f"Close account {source}; what is on it goes to account {target} first."
    return goal(text, calls, f"accounts/{source}", f"accounts/{target}")


def _freeze(rng: random.Random, state: State) -> Goal | None:
    who = rng.choice(PEOPLE)
    keys = [key for key, row in state["accounts"].items() if row["owner"] == who and not row["frozen"]]
    calls = [call("freeze_account", account_id=key) for key in keys]
    return goal(f"Freeze all accounts of {who} that aren't frozen yet.", calls, *(f"accounts/{key}" for key in keys))


_BANK = WorldKind(
    "You look after a bank. Money moves only between accounts that aren't frozen; only an empty account can be closed.",
    _accounts,
    (
        action(
            "transfer",
            "Move money",
            {"source": "string", "target": "string", "cents": "integer"},
            step("is", "accounts", "$source", "frozen", False),
            step("is", "accounts", "$target", "frozen", False),
            step("at_least", "accounts", "$source", "cents", "$cents"),
            step("add", "accounts", "$source", "cents", {"minus": "$cents"}),
            step("add", "accounts", "$target", "cents", "$cents"),
        ),
        action(
            "freeze_account",
            "Freeze an account",
            {"account_id": "string"},
            step("set", "accounts", "$account_id", "frozen", True),
        ),
        action(
            "close_account",
            "Close an empty account",
            {"account_id": "string"},
            step("is", "accounts", "$account_id", "cents", 0),
            step("delete", "accounts", "$account_id"),
        ),
    ),
    {"transfer": _transfer, "freeze": _freeze, "close": _empty},
)


# ------------------------------------------------------------ a library


def _library(rng: random.Random, rows: int) -> State:
    titles = rng.sample(_BOOKS, min(rows, len(_BOOKS)))
    books = {
        key: {"title": title, "lent_to": rng.choice(("", "", *PEOPLE[:4])), "renewals": rng.randint(0, 2)}
        for key, title in zip(ids(rng, "b", len(titles)), titles, strict=True)
    }
    return {"books": books}


def _lend(rng: random.Random, state: State) -> Goal | None:
    keys = [key for key, row in state["books"].items() if not row["lent_to"]]
    if not keys:
        return None
    key, who = rng.choice(keys), rng.choice(PEOPLE)
    made = call("lend", book_id=key, person=who)
    return goal(f"Lend '{state['books'][key]['title']}' to {who}.", [made], f"books/{key}", f"people/{who}")


def _bring_back(rng: random.Random, state: State) -> Goal | None:
    who = rng.choice(PEOPLE[:4])
    keys = [key for key, row in state["books"].items() if row["lent_to"] == who]
    calls = [call("take_back", book_id=key) for key in keys]
    text = f"{who} brings back all books that {who} has."
    return goal(text, calls, f"people/{who}", *(f"books/{key}" for key in keys))


def _pass_on(rng: random.Random, state: State) -> Goal | None:
    keys = [key for key, row in state["books"].items() if row["lent_to"]]
    if not keys:
        return None
    key = rng.choice(keys)
    before = state["books"][key]["lent_to"]
    who = rng.choice([each for each in PEOPLE if each != before])
    text = f"'{state['books'][key]['title']}' comes back and goes straight to {who}."
    calls = [call("take_back", book_id=key), call("lend", book_id=key, person=who)]
    return goal(text, calls, f"books/{key}", f"people/{who}", f"people/{before}")


_LIBRARY = WorldKind(
    "You look after the books of a library. A book that is lent must be taken back before it is lent again.",
    _library,
    (
        action(
            "lend",
            "Lend a book",
            {"book_id": "string", "person": "string"},
            step("is", "books", "$book_id", "lent_to", ""),
            step("set", "books", "$book_id", "lent_to", "$person"),
        ),
        action(
            "take_back",
            "Take a book back; its renewals start anew",
            {"book_id": "string"},
            step("isnt", "books", "$book_id", "lent_to", ""),
            step("set", "books", "$book_id", "lent_to", ""),
            step("set", "books", "$book_id", "renewals", 0),
        ),
        action(
            "renew",
            "Count one more renewal",
            {"book_id": "string"},
            step("isnt", "books", "$book_id", "lent_to", ""),
            step("add", "books", "$book_id", "renewals", 1),
        ),
    ),
    {"lend": _lend, "bring_back": _bring_back, "pass_on": _pass_on},
)

WORLDS = {"shop": _SHOP, "bank": _BANK, "library": _LIBRARY, "warehouse": WAREHOUSE, "flights": FLIGHTS, "desk": DESK}
