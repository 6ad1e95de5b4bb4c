"""What every backend promises to the scheduler, for the real one and the fake; and the prefix cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tiltyard.engine.backend import Backend, FakeBackend, Row
from tiltyard.engine.prefix_cache import PrefixCache
from tiltyard.engine.settings import EngineSettings
from tiltyard.engine.torch_backend import TorchBackend
from tiltyard.policy.kv import Prefix
from tiltyard.policy.sampling_settings import Sampling
from tiltyard.policy.tiny import make_random

GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("backends")
    made = {name: make_random(root / name, seed=seed, scale=0.2) for seed, name in enumerate(("first", "second"))}
    return made | {"other": make_random(root / "other", width=32)}


@pytest.fixture(params=["torch", "fake"])
def backend(request: pytest.FixtureRequest, models: dict[str, Path]) -> Iterator[Backend]:
    if request.param == "fake":
        yield FakeBackend(models["first"], max_total_tokens=200)
        return
    made = TorchBackend(models["first"], threads=2, lane_rows=1, max_total_tokens=400)
    yield made
    made.close()


def row(key: int, ids: tuple[int, ...] = (5, 6, 7), budget: int = 20, **more: Any) -> Row:
    return Row(key=key, ids=ids, budget=budget, sampling=GREEDY, **more)


def run(backend: Backend, rows: list[Row], steps: int) -> dict[int, list[int]]:
    """The tokens of each row after its first and `steps` further ones; all are dropped then."""
    tokens = {one.drawn.key: [one.drawn.token] for one in backend.admit(rows)}
    for _ in range(steps):
        for drawn in backend.step():
            tokens[drawn.key].append(drawn.token)
    backend.drop(list(tokens))
    return tokens


def test_every_row_gets_one_token_per_step(backend: Backend) -> None:
    """Admission gives each row its first token in order, each step one more."""
    rows = [row(3), row(1, (8, 9)), row(2)]
    assert [one.drawn.key for one in backend.admit(rows)] == [3, 1, 2]
    assert sorted(drawn.key for drawn in backend.step()) == [1, 2, 3]
    assert all(drawn.logprob < 0 for drawn in backend.step())


def test_rows_do_not_disturb_each_other(backend: Backend) -> None:
    """A row's greedy tokens are the same alone and among rows that come and go."""
    alone = run(backend, [row(1, (8, 9, 10))], 10)[1]
    backend.admit([row(7), row(8, (40,))])
    backend.step()
    tokens = [backend.admit([row(1, (8, 9, 10))])[0].drawn.token]
    for step in range(10):
        if step == 3:
            backend.drop([7])
        tokens += [drawn.token for drawn in backend.step() if drawn.key == 1]
    assert tokens == alone


def test_a_dropped_row_is_gone(backend: Backend) -> None:
    """A dropped row gets no more tokens and holds no memory; dropping it again is no error."""
    backend.admit([row(1), row(2)])
    backend.drop([1, 1, 99])
    assert [drawn.key for drawn in backend.step()] == [2]
    backend.drop([2])
    assert backend.step() == []
    assert backend.usage().running_tokens == 0


def test_room_is_bounded(backend: Backend) -> None:
    """Only as many rows as fit are taken, and all again when the others have left."""
    rows = [row(key, tuple(range(key + 3, key + 23)), budget=40) for key in range(8)]
    first = backend.room(rows)
    assert 0 < first < 8
    backend.admit(rows[:first])
    assert backend.room(rows[first:]) == 0
    backend.drop(list(range(first)))
    assert backend.room(rows) == first
    assert backend.row_tokens >= 60


def test_continuing_from_ids_gives_the_same(backend: Backend) -> None:
    """A row put together again from its ids goes on as the undisturbed one would."""
    whole = run(backend, [row(1)], 9)[1]
    again = run(backend, [row(1, (5, 6, 7, *whole[:4]), budget=16, position=4)], 5)[1]
    assert again == whole[4:]


def test_cached_prompts_are_reported_and_flushed(backend: Backend) -> None:
    """A prompt seen before is reported as cached, under its own extra key only, until a flush."""
    assert backend.admit([row(1, extra_key="a")])[0].cached_tokens == 0
    assert backend.admit([row(2, extra_key="a")])[0].cached_tokens == 2
    assert backend.admit([row(3, extra_key="b")])[0].cached_tokens == 0
    backend.flush()
    assert backend.usage().cached_tokens == 0
    assert backend.admit([row(4, extra_key="a")])[0].cached_tokens == 0


def test_new_weights_forget_prompts(backend: Backend, models: dict[str, Path]) -> None:
    """After a load the same prompt is computed anew and gives other tokens."""
    before = run(backend, [row(1)], 8)[1]
    backend.load(models["second"])
    admitted = backend.admit([row(2)])
    assert admitted[0].cached_tokens == 0
    backend.drop([2])
    assert run(backend, [row(3)], 8)[3] != before


@pytest.mark.parametrize("which", ["other", "absent"])
def test_unfit_weights_are_refused(backend: Backend, models: dict[str, Path], which: str, tmp_path: Path) -> None:
    """Weights of another shape, or none, are a ValueError, and the old ones go on."""
    before = run(backend, [row(1)], 5)[1]
    with pytest.raises(ValueError, match=r"another shape|is missing"):
        backend.load(models.get(which, tmp_path))
    assert run(backend, [row(2)], 5)[2] == before


def test_forbidden_ids_are_not_drawn_early(backend: Backend) -> None:
    """Ids forbidden until a number of tokens do not come before it."""
    free = run(backend, [row(1)], 0)[1][0]
    held = run(backend, [row(2, forbidden=frozenset({free}), forbidden_until=2)], 3)[2]
    assert free not in held[:2]


def test_scores_start_with_none(backend: Backend) -> None:
    """Scoring gives one value per position, the first of them None."""
    scores = backend.score((5, 6, 7, 8), 1)
    assert scores[0] is None
    assert len(scores) == 3
    assert all(score is not None and score < 0 for score in scores[1:])


def test_partly_shared_prompts_reuse_the_common_beginning(models: dict[str, Path]) -> None:
    """A prompt that begins like an earlier one reuses that part, and its tokens are as without."""
    fresh = TorchBackend(models["first"], prefix_cache_tokens=0)
    expected = run(fresh, [row(1, (5, 6, 7, 9, 9))], 6)[1]
    fresh.close()
    backend = TorchBackend(models["first"])
    run(backend, [row(1, (5, 6, 7, 8))], 1)
    admitted = backend.admit([row(2, (5, 6, 7, 9, 9))])
    assert admitted[0].cached_tokens == 3
    backend.drop([2])
    assert run(backend, [row(3, (5, 6, 7, 9, 9))], 6)[3] == expected
    backend.close()


def entry_sizes(cache: PrefixCache) -> list[int]:
    return [len(entry.ids) for entry in cache._entries.values()]


def test_cache_drops_the_least_recently_used() -> None:
    """The cache keeps at most its capacity of tokens, and what was used last."""
    cache = PrefixCache(10)
    for length in (4, 3, 2):
        cache.add(list(range(length)), "", Prefix(torch.zeros(1, 2, 1, length, 1)), torch.zeros(1, 2))
    assert cache.exact(range(4), "") is not None
    cache.add([7] * 3, "", Prefix(torch.zeros(1, 2, 1, 3, 1)), torch.zeros(1, 2))
    assert entry_sizes(cache) == [2, 4, 3]
    assert cache.tokens == 9
    cache.add([8] * 11, "", Prefix(torch.zeros(1, 2, 1, 11, 1)), torch.zeros(1, 2))
    assert cache.tokens == 9
    assert cache.longest([0, 1, 2, 9], "other") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [({"port": 70000}, "port"), ({"threads": -1}, "threads"), ({"lane_rows": 0}, "lane_rows")],
)
def test_settings_are_checked(change: dict[str, int], message: str) -> None:
    """A setting out of range names itself."""
    with pytest.raises(ValueError, match=message):
        EngineSettings(**change)  # type: ignore[arg-type]
