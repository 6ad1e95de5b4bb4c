"""Limits: rule code in children that can't take more than their share, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from support import rules

from tiltyard.verifier import limits
from tiltyard.verifier.limits import Crashed, Limits, TimedOut, call
from tiltyard_proto.outcomes import Outcome

QUICK = Limits(cpu_s=0.3, memory_bytes=64 << 20, checks=3, wall_s=20.0)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    limits.close()


def target(function: object) -> str:
    return f"{rules.__name__}:{getattr(function, '__name__', '')}"


def test_a_call_is_answered_by_another_process() -> None:
    """Plain values go there and back; the child is another process that leads a group, and works on after a check."""
    value = {"a": [1, 2.5, None, "é", b"\x00"], "b": True}
    assert call(target(rules.echo), value) == value
    first = call(target(rules.number), None)
    assert first != os.getpid()
    assert call(target(rules.number), None) == first
    assert call(target(rules.group), None) != os.getpgid(0)


def test_a_child_is_replaced_after_its_checks() -> None:
    """After `checks` checks another child takes over."""
    numbers = [call(target(rules.number), None, QUICK) for _ in range(7)]
    assert len(set(numbers)) == 3
    assert numbers[0] == numbers[2] != numbers[3] == numbers[5] != numbers[6]


@pytest.mark.parametrize("bomb", [rules.spin, rules.power])
def test_time_is_up(bomb: object) -> None:
    """A loop in Python and one in native code end after their CPU seconds, and those are counted."""
    before, spent = time.monotonic(), limits.spent()
    with pytest.raises(TimedOut, match=r"0\.3 s of CPU") as caught:
        call(target(bomb), None, QUICK)
    assert caught.value.outcome is Outcome.VERIFIER_TIMEOUT
    assert time.monotonic() - before < 30
    assert limits.spent() - spent > 0.29


def test_waiting_ends_too() -> None:
    """What sleeps instead of working ends with the wall limit."""
    with pytest.raises(TimedOut, match=r"no end within 0\.5 s"):
        call(target(rules.sleep), None, Limits(wall_s=0.5))


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (rules.grow, "MemoryError"),
        (rules.recurse, "RecursionError"),
        (rules.fail, "what went wrong"),
        (rules.leave, "status 7"),
    ],
)
def test_a_failure_is_no_verdict(function: object, says: str) -> None:
    """Too much memory, a deep recursion, an exception and a dead child are said as such, and the next call works."""
    for _ in range(2):
        with pytest.raises(Crashed, match=says) as caught:
            call(target(function), None, QUICK)
        assert caught.value.outcome is Outcome.VERIFIER_FAILED
    assert call(target(rules.echo), 1, QUICK) == 1


def test_a_bomb_does_not_delay_its_neighbours() -> None:
    """While one check burns its time, others are answered."""
    failed: list[TimedOut] = []

    def burn() -> None:
        with pytest.raises(TimedOut) as caught:
            call(target(rules.sleep), None, Limits(wall_s=3.0))
        failed.append(caught.value)

    bomb = threading.Thread(target=burn)
    bomb.start()
    answers = [call(target(rules.echo), n) for n in range(50)]
    assert bomb.is_alive()
    assert answers == list(range(50))
    bomb.join()
    assert len(failed) == 1


def test_children_see_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a few named variables reach a child."""
    monkeypatch.setenv("TILTYARD_NKEY_SEED", "S")
    assert "TILTYARD_NKEY_SEED" not in call(target(rules.secret), None)


def test_nothing_is_left() -> None:
    """After closing, no child exists, and the next call has a new one."""
    child = call(target(rules.number), None)
    limits.close()
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert call(target(rules.number), None) != child


def test_a_killed_zygote_is_replaced() -> None:
    """Children go on without their zygote; when another is needed, a new zygote is started."""
    zygote = call(target(rules.parent), None, QUICK)
    os.kill(zygote, signal.SIGKILL)
    assert call(target(rules.echo), 1, QUICK) == 1
    assert len({call(target(rules.number), None, QUICK) for _ in range(6)}) > 1
    assert call(target(rules.parent), None, QUICK) != zygote


def test_a_missing_function_is_the_callers_mistake() -> None:
    """A module or function that isn't there is a ValueError, for each call anew."""
    for name in ("no.such.module:f", "support.rules:nothing"):
        with pytest.raises(ValueError, match="can't be loaded"):
            call(name, None)
