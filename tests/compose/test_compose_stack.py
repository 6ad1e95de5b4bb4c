"""compose.yaml on a real Docker engine: built, trained on, crashed, scaled, drained, started again, and audited.

One story is told once for all tests (`support.compose_story`); with RESULTS its figures are written there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.compose_story import FIRST_S, IMAGE_MB, KILLED, LONG_RUNNING, SCALES, SECOND_S, Seen, told

pytestmark = pytest.mark.timeout(3600)  # the first of them waits for the story
HOLDS_TORCH = {"tiltyard/trainer", "tiltyard/engine"}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    with told(tmp_path_factory.mktemp("compose")) as found:
        pass
    if target := os.environ.get("RESULTS"):
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).write_text(json.dumps(rows(found), indent=1) + "\n")
    return found


def rows(seen: Seen) -> list[dict[str, Any]]:
    """The figures, as {measure, value, unit, target, holds}."""
    largest = max(mb for image, mb in seen.images_mb.items() if not seen.torch[image])
    found = [
        row("build and start to the first policy update", seen.first_s, "s", FIRST_S),
        row("of which the build", seen.build_s, "s"),
        row("second start to the next policy update", seen.second_s, "s", SECOND_S),
        row("largest image without torch, over the base", largest, "MB", IMAGE_MB),
        *(row(f"image {name}, over the base", mb, "MB") for name, mb in sorted(seen.images_mb.items())),
        *(row(f"{name} killed, ready again", after, "s") for name, after in seen.recovered_s.items()),
        row("drain of the whole stack", seen.drain_s, "s"),
        row("rollouts opened", seen.account["rollouts"], "rollouts"),
        row("rollouts lost or doubled", sum(seen.account["problems"].values()), "rollouts", 0),
    ]
    return found + [row(f"memory of {name} while it trains", mb, "MiB") for name, mb in sorted(seen.memory_mb.items())]


def row(measure: str, value: float, unit: str, target: float | None = None) -> dict[str, Any]:
    holds = None if target is None else value <= target
    return {"measure": measure, "value": round(value, 1), "unit": unit, "target": target, "holds": holds}


def test_it_starts_and_trains(seen: Seen) -> None:
    """From the base image alone everything is built and started, and a policy update follows in time."""
    assert seen.first_s <= FIRST_S
    assert seen.second_s <= SECOND_S


def test_people_reach_it(seen: Seen) -> None:
    """`docker compose run --rm cli publish` and `dlq` reach the running system."""
    assert "5 tasks published, 0 were there already" in seen.published
    assert "no dead letters" in seen.letters.lower()


def test_a_crashed_container_comes_back(seen: Seen) -> None:
    """A killed container is started again and gets ready by itself, and policies go on."""
    assert set(seen.recovered_s) == set(KILLED)
    assert seen.after_kill >= 1


def test_services_scale(seen: Seen) -> None:
    """`--scale` gives so many containers of a service, and all get ready."""
    assert seen.scaled == SCALES


def test_everything_drains(seen: Seen) -> None:
    """Told to stop, every container ends in good order before it would be killed."""
    assert set(seen.drained) == set(LONG_RUNNING)
    assert {name: codes for name, codes in seen.drained.items() if set(codes) != {0}} == {}
    assert {name: len(seen.drained[name]) for name in SCALES} == SCALES


def test_nothing_is_lost(seen: Seen) -> None:
    """After kills, a drain and a second start every rollout has one verdict, is in one group and is archived."""
    assert seen.account["rollouts"] > 100
    assert seen.account["problems"] == {}


def test_only_trainer_and_engine_hold_torch(seen: Seen) -> None:
    """No other image can import it, and no other image is large."""
    assert {image.split(":")[0] for image, has in seen.torch.items() if has} == HOLDS_TORCH
    assert {image: mb for image, mb in seen.images_mb.items() if not seen.torch[image] and mb > IMAGE_MB} == {}


def test_containers_have_no_rights_but_the_documented(seen: Seen) -> None:
    """As the engine sees it: no root file system can be written, nobody gains rights, and only the sandbox has some."""
    for name in LONG_RUNNING:
        host, config = seen.containers[name]["HostConfig"], seen.containers[name]["Config"]
        assert host["ReadonlyRootfs"] is True, name
        assert host["CapDrop"] == ["ALL"]
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert (host["Privileged"], host["NetworkMode"] == "host", host["PidMode"]) == (False, False, "")
        assert host["Memory"] > 0
        assert host["PidsLimit"] > 0
        assert bool(host["CapAdd"]) == (name == "sandbox")
        assert config["User"] == ("0:10001" if name == "sandbox" else "10001:10001")


def test_nothing_is_left(seen: Seen) -> None:
    """Taken down with its volumes, it leaves no container, network or volume."""
    assert seen.left == []
