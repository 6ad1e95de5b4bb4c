"""What the gateway needs of an engine, asked of each engine we have: the fake one and the embedded one."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import anyio
import pytest
from support.waiting import until

from tiltyard.engine.serve import make_backend, running
from tiltyard.engine.settings import EngineSettings
from tiltyard.gateway.backend import HttpEngine, UpdateRefused
from tiltyard.gateway.fake import FakeEngine
from tiltyard.gateway.settings import GatewaySettings
from tiltyard.gateway.wire import EngineFault, PromptTooLong, RequestRefused, Sample, generate_body, sampling_params
from tiltyard.policy.tiny import make_random
from tiltyard_proto.messages import Sampling

pytestmark = pytest.mark.anyio
PROMPT = [5, 6, 7, 8]
CONTEXT = 512


class Subject:
    """An engine under test and where its weights are."""

    def __init__(self, client: HttpEngine, models: Path) -> None:
        self.client = client
        self.models = models

    async def sample(self, tokens: int, *, rid: str = "", salt: str = "a", **sampling: Any) -> Sample:
        params = sampling_params(Sampling(**sampling), tokens, ())
        body = generate_body(PROMPT, params, rid or uuid4().hex, salt)
        return await self.client.generate(body | {"sampling_params": params | {"ignore_eos": True}}, 0, 30.0)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two directories with different random weights: one and two."""
    root = tmp_path_factory.mktemp("models")
    make_random(root / "one", seed=1)
    make_random(root / "two", seed=2)
    yield root
    shutil.rmtree(root)


@asynccontextmanager
async def _fake(models: Path) -> AsyncIterator[str]:
    fake = FakeEngine(step_s=0.01, context_length=CONTEXT, model_path=str(models / "one"))
    fake.known_paths = {str(models / "one"), str(models / "two")}
    try:
        yield await fake.start()
    finally:
        await fake.stop()


@asynccontextmanager
async def _embedded(models: Path) -> AsyncIterator[str]:
    settings = EngineSettings(
        port=0, threads=1, dtype="float32", context_length=CONTEXT, api_key="user", admin_api_key="admin"
    )
    backend = make_backend(settings, models / "one")
    try:
        async with running(settings, models / "one", backend) as (_engine, url):
            yield url
    finally:
        backend.close()


@pytest.fixture(params=["fake", "embedded"])
async def subject(request: pytest.FixtureRequest, models: Path) -> AsyncIterator[Subject]:
    """Each engine in turn, fresh; the embedded one asks for keys."""
    start = _fake if request.param == "fake" else _embedded
    async with start(models) as url, aiohttp.ClientSession() as session:
        settings = GatewaySettings(engines=(url,), api_key="user", admin_key="admin")
        yield Subject(HttpEngine(url, session, settings), models)


def in_step(sample: Sample) -> bool:
    covered = [i for span in sample.spans for i in range(span.start, span.end)]
    return len(sample.ids) == len(sample.logprobs) and covered == list(range(len(sample.ids)))


async def test_generate(subject: Subject) -> None:
    """A sample has the asked length, finite log-probabilities and spans over all its tokens."""
    sample = await subject.sample(12)
    assert (len(sample.ids), sample.finish, sample.prompt_tokens) == (12, "length", 4)
    assert in_step(sample)
    assert all(value <= 0 for value in sample.logprobs)


async def test_greedy_is_repeatable_and_resumable(subject: Subject) -> None:
    """Temperature 0 gives the same tokens again, and a sample that is resumed from its ids ends the same."""
    whole = await subject.sample(10, temperature=0.0)
    assert (await subject.sample(10, temperature=0.0)).ids == whole.ids
    params = sampling_params(Sampling(temperature=0.0), 6, ()) | {"ignore_eos": True}
    rest = await subject.client.generate(generate_body([*PROMPT, *whole.ids[:4]], params, uuid4().hex, "a"), 0, 30.0)
    assert whole.ids[:4] + rest.ids == whole.ids


async def test_the_stop_token_is_part_of_the_sample(subject: Subject) -> None:
    """A stop token ends the sample as its last id."""
    wanted = (await subject.sample(3, temperature=0.0)).ids[0]
    params = sampling_params(Sampling(temperature=0.0), 9, {wanted})
    sample = await subject.client.generate(generate_body(PROMPT, params, uuid4().hex, "a"), 0, 30.0)
    assert (sample.ids, sample.finish) == ((wanted,), "stop")


async def test_refusals(subject: Subject) -> None:
    """Too long and senseless requests are told apart, and the engine goes on."""
    params = sampling_params(Sampling(), CONTEXT, ())
    with pytest.raises(PromptTooLong):
        await subject.client.generate(generate_body(PROMPT, params, uuid4().hex, "a"), 0, 30.0)
    with pytest.raises(RequestRefused):
        await subject.client.generate(generate_body([], params, uuid4().hex, "a"), 0, 30.0)
    assert (await subject.sample(2)).finish == "length"


async def test_abort_ends_one_request(subject: Subject) -> None:
    """An aborted request comes back with what it had; its neighbour runs to its end; unknown ids are no error."""
    await subject.client.abort(uuid4().hex)
    rids, ended = [uuid4().hex, uuid4().hex], {}

    async def run(rid: str) -> None:
        ended[rid] = await subject.sample(400, rid=rid)

    async with anyio.create_task_group() as tasks:
        for rid in rids:
            tasks.start_soon(run, rid)
        while rids[0] not in ended:
            await subject.client.abort(rids[0])
            await anyio.sleep(0.005)
    assert (ended[rids[0]].finish, len(ended[rids[0]].ids) < 400) == ("abort", True)
    assert in_step(ended[rids[0]])
    assert (ended[rids[1]].finish, len(ended[rids[1]].ids)) == ("length", 400)


async def test_update_names_path_and_version(subject: Subject) -> None:
    """After an update the engine reports the new path and version, its samples carry it, and it still flushes."""
    before = await subject.client.info()
    assert before.model_path == str(subject.models / "one")
    await subject.client.pause("retract")
    assert await subject.client.ready() is False
    assert await subject.client.update_weights(str(subject.models / "two"), "7")
    assert await subject.client.flush()
    await subject.client.resume()
    await subject.client.resume()
    assert await subject.client.ready()
    after = await subject.client.info()
    assert (after.version, after.model_path) == ("7", str(subject.models / "two"))
    assert {span.version for span in (await subject.sample(3)).spans} == {7}


async def test_a_failed_update_keeps_the_old_weights(subject: Subject) -> None:
    """A path without weights is refused; version and tokens stay what they were."""
    greedy = await subject.sample(5, temperature=0.0)
    before = await subject.client.info()
    with pytest.raises(UpdateRefused, match="nowhere"):
        await subject.client.update_weights(str(subject.models / "nowhere"), "8")
    assert await subject.client.info() == before
    assert (await subject.sample(5, temperature=0.0)).ids == greedy.ids


@pytest.mark.parametrize("mode", ["retract", "in_place", "abort"])
async def test_a_pause_in_the_middle(subject: Subject, mode: Any) -> None:
    """A request that meets a pause and an update ends whole with both versions, or early with the first one."""
    await subject.client.update_weights(str(subject.models / "one"), "1")
    got: list[Sample] = []

    async def run() -> None:
        got.append(await subject.sample(300))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        await subject.sample(3)  # sent later and done: the first one runs by now
        await subject.client.pause(mode)
        if mode == "abort":
            await until(lambda: bool(got))
        assert await subject.client.update_weights(str(subject.models / "two"), "2")
        assert await subject.client.flush() or mode == "in_place"
        await subject.client.resume()
    assert in_step(got[0])
    if mode == "abort":
        assert (got[0].finish, len(got[0].ids) < 300) == ("abort", True)
        assert {span.version for span in got[0].spans} <= {1}
    else:
        assert (got[0].finish, len(got[0].ids)) == ("length", 300)
        assert [span.version for span in got[0].spans] == [1, 2]


async def test_set_version_leaves_requests_alone(subject: Subject) -> None:
    """Naming the live weights ends no request."""
    got: list[Sample] = []

    async def run() -> None:
        got.append(await subject.sample(200))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await subject.client.set_version("9")
    assert (got[0].finish, (await subject.client.info()).version) == ("length", "9")


async def test_abort_all(subject: Subject) -> None:
    """Every running request ends early."""
    got: list[Sample] = []

    async def run() -> None:
        got.append(await subject.sample(400))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(run)
        while len(got) < 3:
            await subject.client.abort_all()
            await anyio.sleep(0.005)
    assert [sample.finish for sample in got] == ["abort"] * 3


async def test_nobody_there() -> None:
    """A dead engine is a fault on every call, told with the reason."""
    async with aiohttp.ClientSession() as session:
        client = HttpEngine("http://127.0.0.1:9", session, GatewaySettings(control_s=1.0))
        for call in (client.info, client.ready, client.flush, client.resume, client.abort_all):
            with pytest.raises(EngineFault, match="ClientConnectorError"):
                await call()
