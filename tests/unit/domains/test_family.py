"""Families: how one file becomes many domains, and how packages offer them."""

from __future__ import annotations

from importlib.metadata import Distribution, EntryPoint
from pathlib import Path

import pytest

from tiltyard.domains import Draft, Request, bucket, load_all
from tiltyard.domains.family import read

FAMILY = """
name = "reason"
title = "Puzzles"
generator = "some.module:generate"
options = { size = 3, dataset = "" }
licence = "MIT"

[verifier]
kind = "last_number"
options = { tolerance = 0.1 }

[levels.easy]
options = { level = 0 }

[levels.hard]
options = { level = 2 }
curriculum = { prior_pass = 0.05 }

[[domain]]
name = "sums"
title = "Sums"
options = { dataset = "chain_sum" }

[[domain]]
name = "logic.knights"
options = { dataset = "knights" }
skip = ["hard"]
value = 2.0
[domain.levels.easy]
options = { level = 1 }
[domain.levels.cruel]
verifier = { options = { tolerance = 0.0 } }
"""


def test_domains_and_levels_multiply() -> None:
    """Every domain has every level but those it skips, and its own; the more special table wins, key by key."""
    found = {one.name: one for one in read(FAMILY, "f")}
    assert list(found) == [
        "reason.sums.easy",
        "reason.sums.hard",
        "reason.logic.knights.easy",
        "reason.logic.knights.cruel",
    ]
    hard = found["reason.sums.hard"]
    assert hard.options == {"size": 3, "dataset": "chain_sum", "level": 2}
    assert (hard.title, hard.level, hard.category, hard.licence) == ("Sums (hard)", "hard", "reason", "MIT")
    assert (hard.curriculum.prior_pass, found["reason.sums.easy"].curriculum.prior_pass) == (0.05, 0.3)
    easy, cruel = found["reason.logic.knights.easy"], found["reason.logic.knights.cruel"]
    assert (easy.options["level"], easy.value, easy.title) == (1, 2.0, "Puzzles (easy)")
    assert (easy.verifier.options, cruel.verifier.options) == ({"tolerance": 0.1}, {"tolerance": 0.0})


def test_levels_alone_make_a_family() -> None:
    """Without `[[domain]]` the levels follow the family's name."""
    assert [one.name for one in read(FAMILY.split("[[domain]]")[0], "f")] == ["reason.easy", "reason.hard"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("[domain.levels.easy]\noptions = { level = 1 }", "[domain.levels.easy]\nsise = 1"), r"knights\.easy.*sise"),
        (('skip = ["hard"]', 'skip = ["harder"]'), r"knights: `skip`.*harder"),
        (('name = "sums"', 'nam = "sums"'), "needs a `name`"),
        (('name = "sums"', 'name = "Sums"'), "dotted lower-case"),
        (("[levels.easy]", "[level.easy]"), "level"),
        (("[levels.easy]\noptions = { level = 0 }", "[levels]\neasy = 0"), "a table"),
    ],
)
def test_mistakes_in_families_are_named(change: tuple[str, str], says: str) -> None:
    """A mistake names the file, the domain or level, and the key."""
    assert change[0] in FAMILY
    with pytest.raises(ValueError, match=rf"my-file.*{says}"):
        read(FAMILY.replace(*change), "my-file")


class _Dist(Distribution):
    """An installed distribution by name only."""

    def __init__(self, name: str) -> None:
        self.called = name

    @property
    def metadata(self) -> dict[str, str]:  # type: ignore[override]
        return {"Name": self.called, "Version": "1.5"}

    def read_text(self, filename: str) -> None:
        return None

    def locate_file(self, path: object) -> Path:
        raise NotImplementedError


class _Offer(EntryPoint):
    """An entry point of a distribution whose object is at hand."""

    def __init__(self, name: str, value: Path, dist: str) -> None:
        super().__init__(name=name, value=f"{dist}:path", group="tiltyard.domains")
        vars(self).update(held=value, dist=_Dist(dist))

    def load(self) -> Path:
        held = vars(self)["held"]
        assert isinstance(held, Path)
        return held


def test_packages_offer_folders_and_clashes_name_both(tmp_path: Path) -> None:
    """A folder gives all its files; the same name from two distributions is an error that names them both."""
    (tmp_path / "reason.toml").write_text(FAMILY)
    assert "reason.sums.hard" in load_all([_Offer("reason", tmp_path, "puzzle-pack")])
    twice = [_Offer("reason", tmp_path, "puzzle-pack"), _Offer("reason", tmp_path, "other-pack")]
    with pytest.raises(ValueError, match=r"reason\.sums\.easy.*puzzle-pack 1\.5.*other-pack 1\.5"):
        load_all(twice)


def test_sources_are_held_out_like_templates() -> None:
    """What a template or a source holds out belongs to evaluation, everything else to training."""
    train = Request(split="train", seed=0, held_out=frozenset({"t"}), held_out_sources=frozenset({"s"}), options={})
    wanted = {pair: train.wants(*pair) for pair in (("t", "a"), ("u", "s"), ("u", "a"), ("t", "s"))}
    assert wanted == {("t", "a"): False, ("u", "s"): False, ("u", "a"): True, ("t", "s"): False}
    held = Request(split="eval", seed=0, held_out=frozenset({"t"}), held_out_sources=frozenset({"s"}), options={})
    assert all(held.wants(*pair) is not want for pair, want in wanted.items())
    assert Draft(template="x").source == ""


def test_buckets_are_stable_and_even() -> None:
    """A text's bucket is fixed by its content, and each holds about its share."""
    assert bucket("2 + 2") == bucket("2 + 2")
    counts = [sum(bucket(f"{i}") == f"b{n}" for i in range(2000)) for n in range(10)]
    assert min(counts) > 150
    assert max(counts) < 250
