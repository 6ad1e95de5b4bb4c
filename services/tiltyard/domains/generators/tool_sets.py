"""Tools of everyday services for `tool_calls`: what each takes, and how people ask for it.

A parameter is drawn by the word behind its name, see `draw`; one that ends in '?' may stay unsaid, and has its default.
Invariant: a request says each argument in the form in which the tool wants it, so that only one call is right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

CITIES = ("Oslo", "Lisbon", "Quito", "Nairobi", "Hanoi", "Graz", "Turin", "Perth", "Cork", "Lima", "Kyoto", "Malmo")
NAMES = ("Ada Moss", "Jon Vale", "Mia Stone", "Leo Hart", "Ines Wood", "Omar Reed", "Tara Finch", "Nils Berg")
ROOMS = ("kitchen", "hall", "bedroom", "study", "garage", "bathroom", "attic", "cellar")
GOODS = ("paper", "cable", "lamp", "desk", "filter", "pump", "label", "crate", "brush", "valve")
TITLES = ("planning", "budget review", "site visit", "interview", "stand-up", "training", "handover", "retrospective")

Tool = tuple[str, str, dict[str, str], str]
"""Name, description, parameters, request."""
SETS: dict[str, tuple[Tool, ...]] = {
    "travel": (
        ("book_flight", "Book seats on a flight",
         {"origin": "city", "destination": "city", "day": "day", "seats": "1-6"},
         "book {seats} seat(s) on a flight from {origin} to {destination} on {day}"),
        ("reserve_hotel", "Reserve a hotel room",
         {"city": "city", "check_in": "day", "nights": "1-14", "breakfast": "bool?"},
         "reserve a hotel room in {city} from {check_in} for {nights} night(s){breakfast| with breakfast}"),
        ("rent_car", "Rent a car", {"city": "city", "days": "1-21", "size": "small|medium|large"},
         "rent a {size} car in {city} for {days} day(s)"),
        ("train_times", "Look up trains", {"origin": "city", "destination": "city", "after": "time"},
         "look up the trains from {origin} to {destination} that leave after {after}"),
        ("visa_rules", "Look up visa rules", {"nationality": "code", "destination": "city", "stay_days": "5-90"},
         "look up the visa rules for nationality {nationality} and a stay of {stay_days} days in {destination}"),
    ),
    "home": (
        ("set_light", "Set a light", {"room": "room", "brightness": "1-100", "colour": "white|warm|blue|red"},
         "set the {colour} light in the {room} to brightness {brightness}"),
        ("set_heating", "Set the heating",
         {"room": "room", "celsius": "15-24"}, "heat the {room} to {celsius} degrees"),
        ("lock_door", "Lock or unlock a door", {"door": "front|back|garden|garage", "locked": "bool"},
         "set the lock of the {door} door to {locked}"),
        ("start_timer", "Start a timer", {"label": "goods", "minutes": "1-180"},
         "start a timer of {minutes} minutes labelled {label}"),
        ("run_robot", "Send out the cleaning robot", {"rooms": "rooms", "mode": "quiet|normal|strong"},
         "send the robot in {mode} mode through these rooms, in this order: {rooms}"),
    ),
    "calendar": (
        ("add_event", "Add an event", {"title": "title", "day": "day", "start": "time", "minutes": "15-180"},
         "add the event '{title}' on {day} at {start}, {minutes} minutes long"),
        ("invite", "Invite people to an event", {"event_id": "id", "people": "people"},
         "invite to event {event_id} these people, in this order: {people}"),
        ("move_event", "Move an event", {"event_id": "id", "day": "day", "notify": "bool?"},
         "move event {event_id} to {day}{notify| and notify the others}"),
        ("set_reminder", "Set a reminder", {"text": "title", "day": "day", "time": "time"},
         "set a reminder with the text '{text}' for {day} at {time}"),
        ("find_slot", "Find a free slot", {"person": "person", "day": "day", "minutes": "15-180"},
         "find a free slot of {minutes} minutes for {person} on {day}"),
    ),
    "shop": (
        ("add_to_cart", "Put goods into the cart",
         {"item": "goods", "quantity": "1-40"}, "put {quantity} x {item} into the cart"),
        ("apply_coupon", "Apply a coupon", {"code": "code", "cart_id": "id"}, "apply coupon {code} to cart {cart_id}"),
        ("ship_order", "Ship an order", {"order_id": "id", "city": "city", "express": "bool?"},
         "ship order {order_id} to {city}{express| by express}"),
        ("refund", "Pay money back", {"order_id": "id", "amount": "money", "reason": "damaged|late|wrong item"},
         "refund {amount} for order {order_id}, reason: {reason}"),
        ("restock", "Order new stock", {"item": "goods", "quantity": "10-500", "supplier": "person"},
         "restock {quantity} x {item} from supplier {supplier}"),
    ),
    "finance": (
        ("transfer", "Transfer money", {"from_account": "id", "to_account": "id", "amount": "money"},
         "transfer {amount} from account {from_account} to account {to_account}"),
        ("loan_payment", "Work out a loan's payments",
         {"principal": "1000-90000", "annual_rate": "rate", "months": "6-120"},
         "work out the payments of a loan of {principal} at an annual rate of {annual_rate} over {months} months"),
        ("convert", "Convert a currency", {"amount": "money", "source": "EUR|USD|GBP|CHF", "target": "JPY|SEK|NOK|INR"},
         "convert {amount} from {source} to {target}"),
        ("freeze_card", "Freeze a card", {"card_id": "id", "reason": "lost|stolen|damaged"},
         "freeze card {card_id}, which is {reason}"),
        ("set_limit", "Set a spending limit", {"card_id": "id", "limit": "100-9000", "period": "day|week|month"},
         "limit card {card_id} to {limit} a {period}"),
    ),
    "numbers": (
        ("solve_quadratic", "Solve a x^2 + b x + c = 0", {"a": "1-9", "b": "int", "c": "int"},
         "solve the quadratic equation with a = {a}, b = {b} and c = {c}"),
        ("mean", "Mean of a list", {"values": "ints", "trim": "bool?"}, "take the mean of {values}{trim|, trimmed}"),
        ("distance", "Distance of two points", {"first": "pair", "second": "pair"},
         "find the distance between the points {first} and {second}"),
        ("convert_unit", "Convert a length", {"value": "1-900", "source": "m|km|cm", "target": "inch|foot|mile"},
         "convert {value} {source} to {target}"),
        ("sort_numbers", "Sort a list", {"values": "ints", "descending": "bool?"},
         "sort {values}{descending| from the largest down}"),
    ),
    "devops": (
        ("scale", "Set the number of replicas", {"service": "goods", "replicas": "1-30", "region": "eu|us|asia"},
         "scale service {service} in region {region} to {replicas} replicas"),
        ("restart", "Restart a service", {"service": "goods", "grace_seconds": "5-120"},
         "restart service {service} with {grace_seconds} seconds of grace"),
        ("open_ticket", "Open a ticket", {"title": "title", "severity": "1-4", "assignee": "person"},
         "open a ticket '{title}' of severity {severity} for {assignee}"),
        ("add_labels", "Label a ticket", {"ticket_id": "id", "labels": "rooms"},
         "label ticket {ticket_id}, in this order: {labels}"),
        ("rollback", "Go back to a release", {"service": "goods", "release": "code", "force": "bool?"},
         "roll service {service} back to release {release}{force| by force}"),
    ),
}  # fmt: skip


def schema(parameters: dict[str, str]) -> dict[str, Any]:
    """The JSON Schema of a tool's parameters."""
    properties = {name: _schema(drawn) for name, drawn in parameters.items()}
    required = [name for name, drawn in parameters.items() if not drawn.endswith("?")]
    return {"type": "object", "properties": properties, "required": required}


def _schema(drawn: str) -> dict[str, Any]:
    if drawn.startswith("bool"):
        return {"type": "boolean", "default": False} if drawn.endswith("?") else {"type": "boolean"}
    if "|" in drawn:
        return {"type": "string", "enum": drawn.split("|")}
    if drawn in ("rooms", "people"):
        return {"type": "array", "items": {"type": "string"}}
    if drawn in ("ints", "pair"):
        return {"type": "array", "items": {"type": "integer"}}
    if drawn in ("money", "rate"):
        return {"type": "number"}
    if drawn == "day":
        return {"type": "string", "description": "YYYY-MM-DD"}
    return {"type": "integer"} if drawn == "int" or drawn[0].isdigit() else {"type": "string"}


def draw(rng: random.Random, drawn: str) -> Any:
    """An argument."""
    lists = {"city": CITIES, "person": NAMES, "room": ROOMS, "goods": GOODS, "title": TITLES}
    if drawn in lists:
        return rng.choice(lists[drawn])
    if drawn.startswith("bool"):
        return rng.random() < 0.5
    if "|" in drawn:
        return rng.choice(drawn.split("|"))
    made: dict[str, Callable[[], Any]] = {
        "rooms": lambda: rng.sample(ROOMS, rng.randint(2, 4)),
        "people": lambda: rng.sample(NAMES, rng.randint(2, 3)),
        "ints": lambda: [rng.randint(-99, 99) for _ in range(rng.randint(3, 6))],
        "pair": lambda: [rng.randint(-30, 30), rng.randint(-30, 30)],
        "money": lambda: rng.randint(100, 99999) / 100,
        "rate": lambda: rng.randint(10, 99) / 1000,
        "day": lambda: str(date(2026, 1, 1) + timedelta(days=rng.randint(0, 700))),
        "time": lambda: f"{rng.randint(6, 22):02}:{rng.choice((0, 15, 30, 45)):02}",
        "id": lambda: f"{rng.choice('ABCKTX')}{rng.randint(100, 9999)}",
        "code": lambda: "".join(rng.choices("BCDFGHJKLMNPRST", k=3)),
        "int": lambda: rng.randint(-50, 50),
    }
    if drawn in made:
        return made[drawn]()
    low, high = drawn.split("-")
    return rng.randint(int(low), int(high))
