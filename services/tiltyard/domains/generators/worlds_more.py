"""Further worlds of `world_tasks`: a warehouse, flights, a help desk."""

from __future__ import annotations

import random

from .world_tasks import Goal, State, WorldKind, action, call, goal, ids, step

_GOODS = ("bolts", "nuts", "tape", "glue", "paint", "rope", "wire", "hooks", "nails", "foil")
_STAFF = ("Ada", "Jon", "Mia", "Leo", "Ines")
_CITIES = ("Oslo", "Lisbon", "Quito", "Graz", "Turin", "Perth", "Cork", "Lima")


# ------------------------------------------------------------ a warehouse


def _shelves(rng: random.Random, rows: int) -> State:
    return {
        "shelves": {
            key: {"goods": rng.choice(_GOODS), "pieces": rng.randint(0, 60), "minimum": rng.randint(5, 30)}
            for key in ids(rng, "s", rows)
        }
    }


def _refill(rng: random.Random, state: State) -> Goal | None:
    low = {
        key: row["minimum"] - row["pieces"] for key, row in state["shelves"].items() if row["pieces"] < row["minimum"]
    }
    chosen = dict(rng.sample(sorted(low.items()), min(len(low), rng.randint(1, 2))))
    calls = [call("deliver", shelf=key, pieces=missing) for key, missing in chosen.items()]
    names = " and ".join(f"shelf {key}" for key in chosen)
    return goal(
        f"Fill {names} up to its minimum, with not one piece more.", calls, *(f"shelves/{key}" for key in chosen)
    )


def _move(rng: random.Random, state: State) -> Goal | None:
    source, target = rng.sample(sorted(state["shelves"]), 2)
    pieces = state["shelves"][source]["pieces"] // 2
    if not pieces:
        return None
    calls = [call("remove", shelf=source, pieces=pieces), call("deliver", shelf=target, pieces=pieces)]
    text = f"Move half of the pieces of shelf {source} (rounded down) to shelf {target}."
    return goal(text, calls, f"shelves/{source}", f"shelves/{target}")


def _clear(rng: random.Random, state: State) -> Goal | None:
    goods = rng.choice(_GOODS)
    full = {key: row["pieces"] for key, row in state["shelves"].items() if row["goods"] == goods and row["pieces"]}
    calls = [call("remove", shelf=key, pieces=pieces) for key, pieces in full.items()]
    return goal(f"Take all {goods} off their shelves.", calls, *(f"shelves/{key}" for key in full))


WAREHOUSE = WorldKind(
    "You look after the shelves of a warehouse.",
    _shelves,
    (
        action(
            "deliver",
            "Put pieces on a shelf",
            {"shelf": "string", "pieces": "integer"},
            step("add", "shelves", "$shelf", "pieces", "$pieces"),
        ),
        action(
            "remove",
            "Take pieces off a shelf",
            {"shelf": "string", "pieces": "integer"},
            step("at_least", "shelves", "$shelf", "pieces", "$pieces"),
            step("add", "shelves", "$shelf", "pieces", {"minus": "$pieces"}),
        ),
        action(
            "set_minimum",
            "Set a shelf's minimum",
            {"shelf": "string", "pieces": "integer"},
            step("set", "shelves", "$shelf", "minimum", "$pieces"),
        ),
    ),
    {"refill": _refill, "move": _move, "clear": _clear},
)


# ------------------------------------------------------------ flights


def _flights(rng: random.Random, rows: int) -> State:
    flights = {
        key: {
            "from": rng.choice(_CITIES[:4]),
            "to": rng.choice(_CITIES[4:]),
            "seats": rng.randint(0, 9),
            "cents": price * 100,
        }
        for key, price in zip(ids(rng, "f", rows), rng.sample(range(40, 400), rows), strict=True)
    }
    first, *_ = flights
    booking = {"person": rng.choice(_STAFF), "flight": first, "seats": rng.randint(1, 3)}
    return {"flights": flights, "bookings": {ids(rng, "r", 1)[0]: booking}}


def _cheapest(rng: random.Random, state: State) -> Goal | None:
    one = rng.choice(sorted(state["flights"]))
    start, end = state["flights"][one]["from"], state["flights"][one]["to"]
    need = rng.randint(1, 4)
    fit = [
        key
        for key, row in state["flights"].items()
        if (row["from"], row["to"]) == (start, end) and row["seats"] >= need
    ]
    if not fit:
        return None
    key = min(fit, key=lambda each: int(state["flights"][each]["cents"]))
    number, who = f"n{rng.randint(100, 999)}", rng.choice(_STAFF)
    where = f"the cheapest flight from {start} to {end} that has them"
    text = f"Book {need} seat(s) for {who} on {where}; booking id {number}."
    made = call("book", booking_id=number, flight=key, person=who, seats=need)
    route = [each for each, row in state["flights"].items() if (row["from"], row["to"]) == (start, end)]
    return goal(text, [made], f"bookings/{number}", *(f"flights/{each}" for each in route))


def _cancel(rng: random.Random, state: State) -> Goal | None:
    key, booking = rng.choice(sorted(state["bookings"].items()))
    made = call("cancel", booking_id=key, flight=booking["flight"], seats=booking["seats"])
    return goal(
        f"Cancel booking {key}; its seats are free again.", [made], f"bookings/{key}", f"flights/{booking['flight']}"
    )


def _rebook(rng: random.Random, state: State) -> Goal | None:
    key, booking = rng.choice(sorted(state["bookings"].items()))
    fit = [
        each for each, row in state["flights"].items() if each != booking["flight"] and row["seats"] >= booking["seats"]
    ]
    if not fit:
        return None
    flight, number = rng.choice(fit), f"n{rng.randint(100, 999)}"
    calls = [
        call("cancel", booking_id=key, flight=booking["flight"], seats=booking["seats"]),
        call("book", booking_id=number, flight=flight, person=booking["person"], seats=booking["seats"]),
    ]
    text = f"Move booking {key} to flight {flight}: cancel it and book the same person and seats as {number}."
    return goal(text, calls, f"bookings/{key}", f"flights/{booking['flight']}", f"flights/{flight}")


FLIGHTS = WorldKind(
    "You look after bookings of flights. Seats are the free ones.",
    _flights,
    (
        action(
            "book",
            "Book seats",
            {"booking_id": "string", "flight": "string", "person": "string", "seats": "integer"},
            step("at_least", "flights", "$flight", "seats", "$seats"),
            step("add", "flights", "$flight", "seats", {"minus": "$seats"}),
            step(
                "insert", "bookings", "$booking_id", "", {"person": "$person", "flight": "$flight", "seats": "$seats"}
            ),
        ),
        action(
            "cancel",
            "Cancel a booking",
            {"booking_id": "string", "flight": "string", "seats": "integer"},
            step("is", "bookings", "$booking_id", "flight", "$flight"),
            step("is", "bookings", "$booking_id", "seats", "$seats"),
            step("add", "flights", "$flight", "seats", "$seats"),
            step("delete", "bookings", "$booking_id"),
        ),
    ),
    {"cheapest": _cheapest, "cancel_booking": _cancel, "rebook": _rebook},
)


# ------------------------------------------------------------ a help desk


def _desk(rng: random.Random, rows: int) -> State:
    tickets = {
        key: {
            "topic": rng.choice(_GOODS),
            "urgency": rng.randint(1, 5),
            "owner": rng.choice(("", *_STAFF)),
            "open": True,
        }
        for key in ids(rng, "t", rows)
    }
    return {"tickets": tickets}


def _assign(rng: random.Random, state: State) -> Goal | None:
    who = rng.choice(_STAFF)
    keys = [key for key, row in state["tickets"].items() if not row["owner"]]
    calls = [call("assign", ticket=key, person=who) for key in keys]
    text = f"Give every ticket without an owner to {who}."
    return goal(text, calls, f"people/{who}", *(f"tickets/{key}" for key in keys))


def _close(rng: random.Random, state: State) -> Goal | None:
    who, most = rng.choice(_STAFF), rng.randint(1, 3)
    keys = [key for key, row in state["tickets"].items() if row["owner"] == who and row["urgency"] <= most]
    calls = [call("close", ticket=key) for key in keys]
    text = f"Close all tickets of {who} with an urgency of at most {most}."
    return goal(text, calls, f"people/{who}", *(f"tickets/{key}" for key in keys))


def _raise(rng: random.Random, state: State) -> Goal | None:
    topic = rng.choice(_GOODS)
    keys = [key for key, row in state["tickets"].items() if row["topic"] == topic and row["urgency"] < 5]
    calls = [call("set_urgency", ticket=key, urgency=5) for key in keys]
    return goal(f"Set every ticket about {topic} to urgency 5.", calls, *(f"tickets/{key}" for key in keys))


DESK = WorldKind(
    "You look after the tickets of a help desk.",
    _desk,
    (
        action(
            "assign",
            "Give an open ticket to a person",
            {"ticket": "string", "person": "string"},
            step("is", "tickets", "$ticket", "open", True),
            step("set", "tickets", "$ticket", "owner", "$person"),
        ),
        action(
            "close",
            "Close an open ticket",
            {"ticket": "string"},
            step("is", "tickets", "$ticket", "open", True),
            step("set", "tickets", "$ticket", "open", False),
        ),
        action(
            "set_urgency",
            "Set a ticket's urgency",
            {"ticket": "string", "urgency": "integer"},
            step("set", "tickets", "$ticket", "urgency", "$urgency"),
        ),
    ),
    {"assign": _assign, "close_tickets": _close, "raise": _raise},
)
