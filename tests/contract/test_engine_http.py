"""The engine's HTTP contract (SGLang 0.5.23), over the real backend and over the fake one."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch

from tiltyard.engine.app import Engine
from tiltyard.engine.backend import Backend, FakeBackend
from tiltyard.engine.serve import running
from tiltyard.engine.settings import EngineSettings
from tiltyard.engine.torch_backend import TorchBackend
from tiltyard.policy.reference import forward, load_parameters
from tiltyard.policy.sampling import token_logprobs
from tiltyard.policy.tiny import make_random

pytestmark = pytest.mark.anyio
PROMPT = [40, 41, 42, 43, 44, 45]
LONG = {"max_new_tokens": 400, "ignore_eos": True}


class Served:
    """A running engine and a client for it."""

    def __init__(self, engine: Engine, url: str, session: aiohttp.ClientSession, models: dict[str, Path]) -> None:
        self.engine, self.url, self.session, self.models = engine, url, session, models

    async def post(self, path: str, body: Any, status: int = 200, **more: Any) -> Any:
        async with self.session.post(self.url + path, json=body, **more) as reply:
            raw = await reply.read()
            assert reply.status == status, (reply.status, raw)
            return json.loads(raw) if reply.content_type == "application/json" else raw.decode()

    async def get(self, path: str, status: int = 200) -> Any:
        async with self.session.get(self.url + path) as reply:
            raw = await reply.read()
            assert reply.status == status, (reply.status, raw)
            return json.loads(raw) if reply.content_type == "application/json" else raw.decode()

    async def generate(self, ids: Any = PROMPT, status: int = 200, **body: Any) -> Any:
        params = {"temperature": 1.0, "max_new_tokens": 8, "ignore_eos": True} | body.pop("params", {})
        return await self.post("/generate", {"input_ids": ids, "sampling_params": params, **body}, status)

    def start(self, **body: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.generate(**body))

    async def until(self, true: Callable[[], bool]) -> None:
        while not true():  # noqa: ASYNC110 - the state is a snapshot of another thread
            await asyncio.sleep(0.002)

    async def until_running(self, count: int) -> None:
        await self.until(lambda: self.engine.scheduler.load.running == count)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {name: make_random(root / name, seed=seed, scale=0.2) for seed, name in enumerate(("first", "second"))}


def make_backend(kind: str, model: Path, slow: bool = False) -> Backend:
    if kind == "fake":
        return FakeBackend(model)
    return TorchBackend(model, threads=2, lane_rows=2, max_total_tokens=8192)


@asynccontextmanager
async def serving(kind: str, models: dict[str, Path], **settings: Any) -> AsyncIterator[Served]:
    backend = make_backend(kind, models["first"])
    if isinstance(backend, FakeBackend):
        _slow_down(backend)
    async with (
        running(EngineSettings(port=0, **settings), models["first"], backend) as (engine, url),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
    ):
        yield Served(engine, url, session, models)
    if isinstance(backend, TorchBackend):
        backend.close()


def _slow_down(backend: FakeBackend) -> None:
    """Gives the fake a step time like that of a model, so that a long generation can be caught while it runs."""
    import time

    step = backend.step

    def slow_step() -> Any:
        time.sleep(0.002)
        return step()

    backend.step = slow_step  # type: ignore[method-assign]


@pytest.fixture(params=["torch", "fake"])
async def served(request: pytest.FixtureRequest, models: dict[str, Path]) -> AsyncIterator[Served]:
    async with serving(request.param, models) as one:
        yield one


async def test_reply_shape(served: Served) -> None:
    """A generation answers with ids, text and the meta information in SGLang's names."""
    reply = await served.generate(rid="a" * 32, return_logprob=True, return_prompt_token_ids=True)
    meta = reply["meta_info"]
    assert len(reply["output_ids"]) == meta["completion_tokens"] == 8
    assert meta["finish_reason"] == {"type": "length", "length": 8}
    assert (meta["id"], meta["prompt_tokens"], meta["cached_tokens"]) == ("a" * 32, 6, 0)
    assert meta["weight_version"] == "default"
    assert meta["weight_versions"] == [{"version": "default", "start": 0, "end": 8}]
    assert [entry[1] for entry in meta["output_token_logprobs"]] == reply["output_ids"]
    assert all(entry[0] < 0 and entry[2] is None for entry in meta["output_token_logprobs"])
    assert meta["num_retractions"] == 0
    assert meta["e2e_latency"] > 0
    assert reply["prompt_token_ids"] == PROMPT
    assert isinstance(reply["text"], str)


async def test_batches_and_copies_come_in_order(served: Served) -> None:
    """A list of prompts gives a list of replies in its order; n copies stand together."""
    replies = await served.generate([[50], [60, 61]], params={"n": 3})
    assert [reply["meta_info"]["prompt_tokens"] for reply in replies] == [1, 1, 1, 2, 2, 2]
    assert len({reply["meta_info"]["id"] for reply in replies}) == 6
    assert isinstance(await served.generate([[50]]), list)


async def test_stop_token_is_in_the_ids_only(served: Served) -> None:
    """A generation that meets a stop token ends with it in output_ids, and without it in the text."""
    whole = await served.generate(params={"temperature": 0})
    stop = whole["output_ids"][4]
    end = whole["output_ids"].index(stop) + 1
    reply = await served.generate(params={"temperature": 0, "ignore_eos": False, "stop_token_ids": [stop]})
    assert reply["output_ids"] == whole["output_ids"][:end]
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert len(reply["text"].encode()) < len(whole["text"].encode())


async def test_stop_string_ends_the_generation(served: Served) -> None:
    """A stop string ends the generation in the step that completes it; the text loses it unless asked to keep it."""
    tokens = served.engine._renderer.token_bytes
    whole = await served.generate(params={"temperature": 0, "max_new_tokens": 40})
    readable = [n for n, i in enumerate(whole["output_ids"]) if 32 < (tokens.table[i] or b"\0")[0] < 127 and n > 1]
    stop = tokens.table[whole["output_ids"][readable[0]]].decode()
    params = {"temperature": 0, "max_new_tokens": 40, "stop": [stop]}
    reply = await served.generate(params=params)
    assert reply["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert stop in tokens.text(reply["output_ids"])
    assert stop not in tokens.text(reply["output_ids"][:-1])
    assert stop not in reply["text"]
    kept = await served.generate(params=params | {"no_stop_trim": True})
    assert kept["text"].endswith(stop)


async def test_min_new_tokens_holds_stop_tokens_off(served: Served) -> None:
    """No stop token is sampled before min_new_tokens."""
    first = (await served.generate(params={"temperature": 0}))["output_ids"][0]
    reply = await served.generate(
        params={"temperature": 0, "ignore_eos": False, "stop_token_ids": [first], "min_new_tokens": 3}
    )
    assert first not in reply["output_ids"][:3]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input_ids": []}, "empty"),
        ({}, "should be provided"),
        ({"input_ids": [1] * 600}, "longer than the model's context length"),
        (
            {"input_ids": [1] * 500, "sampling_params": {"max_new_tokens": 100}},
            "exceeds the model's maximum context length",
        ),
        ({"input_ids": [320]}, "outside the vocabulary"),
        ({"input_ids": [-1]}, "outside the vocabulary"),
        ({"input_ids": [1], "sampling_params": {"temperature": -1}}, "temperature"),
        ({"input_ids": [1], "sampling_params": {"top_p": 0}}, "top_p"),
        ({"input_ids": [1], "sampling_params": {"frequency_penalty": 1.0}}, "not supported"),
        ({"input_ids": [1], "top_logprobs_num": 2}, "top_logprobs_num"),
        ({"input_ids": [[1], [2]], "rid": ["x", "x"]}, "Duplicate request ID"),
    ],
)
async def test_bad_requests_are_400_with_an_error_object(served: Served, body: Any, message: str) -> None:
    """A request that cannot be served is a 400 whose error is an object with a message."""
    reply = await served.post("/generate", body, 400)
    assert message in reply["error"]["message"]


@pytest.mark.parametrize("params", [{"no_such_field": 1}, {"max_new_tokens": "many"}, {"stop": 5}])
async def test_unknown_or_mistyped_parameters_are_400_with_a_string(served: Served, params: Any) -> None:
    """A sampling field that is unknown or of the wrong type is a 400 whose error is a string."""
    reply = await served.post("/generate", {"input_ids": [1], "sampling_params": params}, 400)
    assert isinstance(reply["error"], str)


async def test_malformed_json_has_the_third_shape(served: Served) -> None:
    """A body that is not JSON is a 400 with object, message, type, param and code."""
    async with served.session.post(served.url + "/generate", data=b"{nonsense") as reply:
        body = await reply.json()
    assert reply.status == 400
    assert {key: body[key] for key in ("object", "type", "param", "code")} == {
        "object": "error",
        "type": "Bad Request",
        "param": None,
        "code": 400,
    }


async def test_unknown_top_level_fields_are_ignored(served: Served) -> None:
    """As in SGLang, a field nobody knows does no harm."""
    await served.generate(no_such_field=1)


async def test_duplicate_of_a_live_request_is_refused(served: Served) -> None:
    """An id in use is refused while its request lives, and free afterwards."""
    task = served.start(rid="dup", params=LONG)
    await served.until_running(1)
    reply = await served.generate(rid="dup", status=400)
    assert "Duplicate request ID" in reply["error"]["message"]
    await served.post("/abort_request", {"rid": "dup"})
    await task
    await served.generate(rid="dup")


async def test_queue_full_is_503(models: dict[str, Path]) -> None:
    """Beyond the queue limit the answer is 503 in the shape of the OpenAI routes."""
    async with serving("fake", models, max_queued_requests=2) as served:
        reply = await served.generate([[1], [2], [3]], status=503)
    assert reply == {
        "object": "error",
        "message": "The request queue is full.",
        "type": "503",
        "param": None,
        "code": 503,
    }


async def test_stream_is_cumulative(served: Served) -> None:
    """A streamed generation sends everything so far in each event, the final reply, and [DONE]."""
    body = {
        "input_ids": PROMPT,
        "stream": True,
        "return_logprob": True,
        "sampling_params": {"max_new_tokens": 6, "ignore_eos": True},
    }
    async with served.session.post(served.url + "/generate", json=body) as reply:
        assert reply.content_type == "text/event-stream"
        events = [line[6:] for line in (await reply.text()).split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert [len(chunk["output_ids"]) for chunk in chunks] == [1, 2, 3, 4, 5, 6]
    assert all(chunk["meta_info"]["finish_reason"] is None for chunk in chunks[:-1])
    assert all(b["output_ids"][: len(a["output_ids"])] == a["output_ids"] for a, b in itertools.pairwise(chunks))
    assert chunks[-1]["meta_info"]["finish_reason"]["type"] == "length"


async def test_stream_reports_errors_inside(served: Served) -> None:
    """A bad request that streams is a 200 with the error as an event."""
    async with served.session.post(served.url + "/generate", json={"input_ids": [], "stream": True}) as reply:
        assert reply.status == 200
        events = [line[6:] for line in (await reply.text()).split("\n\n") if line]
    error = json.loads(events[0])["error"]
    assert (error["type"], error["code"], error["retryable"]) == ("invalid_request_error", 400, False)
    assert events[1] == "[DONE]"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_lost_client_frees_its_row(served: Served, stream: bool) -> None:
    """When the client goes away its row leaves the batch."""
    task = served.start(params=LONG | {"max_new_tokens": 500}, stream=stream)
    await served.until_running(1)
    task.cancel()
    await served.until_running(0)
    await served.generate()


async def test_abort_by_prefix(served: Served) -> None:
    """An abort ends every request whose id begins with the given one, with what it has; others go on."""
    tasks = {rid: served.start(rid=rid, params=LONG, return_logprob=True) for rid in ("req-1", "req-10", "other")}
    await served.until_running(3)
    assert await served.post("/abort_request", {"rid": "req-1"}) == ""
    for rid in ("req-1", "req-10"):
        meta = (reply := await tasks[rid])["meta_info"]
        assert meta["finish_reason"] == {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
        assert 0 < len(reply["output_ids"]) == len(meta["output_token_logprobs"]) < 400
    assert (await tasks["other"])["meta_info"]["finish_reason"]["type"] == "length"
    assert await served.post("/abort_request", {"rid": "nobody"}) == ""


async def test_abort_in_the_queue_has_the_short_meta(models: dict[str, Path]) -> None:
    """A request aborted before it ran has no tokens, no status code and no cache figures."""
    async with serving("fake", models, max_running_requests=1) as served:
        running_task, queued = served.start(params=LONG, rid="one"), served.start(params=LONG, rid="two")
        await served.until(lambda: served.engine.scheduler.load.waiting == 1)
        waiting = "two" if served.engine.scheduler.load.running else "one"
        await served.post("/abort_request", {"abort_all": True})
        replies = [await running_task, await queued]
    short = next(r["meta_info"] for r in replies if not r["output_ids"])
    assert waiting
    assert short["finish_reason"] == {"type": "abort", "message": "Abort in waiting queue"}
    assert not {"cached_tokens", "num_retractions"} & set(short)


async def test_pause_abort_returns_when_nothing_runs(served: Served) -> None:
    """Pause in mode abort ends everything with partial output; new requests wait for continue."""
    task = served.start(params=LONG)
    await served.until_running(1)
    assert (await served.post("/pause_generation", {}))["status"] == "ok"
    assert (await task)["meta_info"]["finish_reason"]["type"] == "abort"
    await served.get("/ready", 503)
    held = served.start(rid="held")
    await served.until(lambda: "held" in served.engine._rids)
    await served.post("/abort_request", {"rid": "held"})
    assert (await served.post("/continue_generation", {}))["status"] == "ok"
    assert (await held)["meta_info"]["finish_reason"]["type"] == "length", "an abort of a held request is lost"
    await served.get("/ready", 200)


async def test_pause_in_place_freezes_and_resumes(served: Served) -> None:
    """In place, rows keep what they have, the cache cannot be flushed, and a pause does not change what comes out."""
    alone = await served.generate(params=LONG | {"temperature": 0})
    task = served.start(params=LONG | {"temperature": 0})
    await served.until_running(1)
    await served.post("/pause_generation", {"mode": "in_place"})
    assert served.engine.scheduler.load.running == 1
    assert "failed" in await served.post("/flush_cache", None, 400)
    await served.post("/continue_generation", {})
    assert (await task)["output_ids"] == alone["output_ids"]


async def test_pause_retract_recomputes(served: Served) -> None:
    """Retracted rows wait without memory, the cache can be flushed, and greedy output is unchanged."""
    alone = await served.generate(params=LONG | {"temperature": 0})
    task = served.start(params=LONG | {"temperature": 0}, return_logprob=True)
    await served.until_running(1)
    await served.post("/pause_generation", {"mode": "retract"})
    await served.until_running(0)
    assert served.engine.scheduler.load.waiting == 1
    assert "flushed" in (await served.post("/flush_cache", None)).lower()
    await served.post("/continue_generation", {})
    reply = await task
    assert reply["output_ids"] == alone["output_ids"]
    assert reply["meta_info"]["num_retractions"] == 1
    assert len(reply["meta_info"]["output_token_logprobs"]) == 400


async def test_bad_pause_mode_is_400(served: Served) -> None:
    """An unknown mode is refused."""
    await served.post("/pause_generation", {"mode": "gently"}, 400)
    await served.get("/ready")


async def test_update_renames_and_changes_the_output(served: Served) -> None:
    """New weights are used and named at once, and cached prompts of the old ones are not reused."""
    before = await served.generate(params={"temperature": 0}, extra_key="k")
    cached = await served.generate(params={"temperature": 0}, extra_key="k")
    assert cached["meta_info"]["cached_tokens"] == len(PROMPT) - 1
    path = str(served.models["second"])
    body = {"model_path": path, "weight_version": "7", "flush_cache": False}
    assert (await served.post("/update_weights_from_disk", body))["success"] is True
    info = await served.get("/model_info")
    assert (info["model_path"], info["served_model_name"], info["weight_version"]) == (path, path, "7")
    assert (await served.get("/v1/models"))["data"][0]["id"] == path
    after = await served.generate(params={"temperature": 0}, extra_key="k")
    assert after["meta_info"]["cached_tokens"] == 0
    assert after["meta_info"]["weight_versions"] == [{"version": "7", "start": 0, "end": 8}]
    assert after["output_ids"] != before["output_ids"]


async def test_update_from_nowhere_keeps_the_old_weights(served: Served) -> None:
    """A missing path is a 400; weights and names stay."""
    before = await served.generate(params={"temperature": 0})
    reply = await served.post("/update_weights_from_disk", {"model_path": "/no/such/dir", "weight_version": "8"}, 400)
    assert reply["success"] is False
    assert "/no/such/dir" in reply["message"]
    assert (await served.get("/model_info"))["weight_version"] == "default"
    assert (await served.generate(params={"temperature": 0}))["output_ids"] == before["output_ids"]


async def test_update_waits_for_running_requests(served: Served) -> None:
    """Without a pause an update waits for what runs, and what arrives meanwhile waits for the update."""
    task = served.start(params=LONG)
    await served.until_running(1)
    body = {"model_path": str(served.models["second"]), "weight_version": "2"}
    update = asyncio.create_task(served.post("/update_weights_from_disk", body))
    await served.until(lambda: served.engine.gate._updating)
    late = served.start()
    assert (await update)["success"] is True
    assert [span["version"] for span in (await task)["meta_info"]["weight_versions"]] == ["default"]
    assert [span["version"] for span in (await late)["meta_info"]["weight_versions"]] == ["2"]


@pytest.mark.parametrize("mode", ["in_place", "retract"])
async def test_update_in_mid_flight_marks_spans(served: Served, mode: str) -> None:
    """A request that lives through an update under a pause says which tokens came from which weights."""
    task = served.start(params=LONG)
    await served.until_running(1)
    await served.post("/pause_generation", {"mode": mode})
    body = {"model_path": str(served.models["second"]), "weight_version": "3", "flush_cache": mode == "retract"}
    assert (await served.post("/update_weights_from_disk", body))["success"] is True
    await served.post("/continue_generation", {})
    spans = (await task)["meta_info"]["weight_versions"]
    assert [span["version"] for span in spans] == ["default", "3"]
    assert spans[0]["start"] == 0
    assert 0 < spans[0]["end"] == spans[1]["start"] < 400
    assert spans[1]["end"] == 400


async def test_refused_flush_leaves_new_weights_live(served: Served) -> None:
    """In place with flush_cache the update answers 400, yet the new weights are live and only the name is old."""
    task = served.start(params=LONG)
    await served.until_running(1)
    await served.post("/pause_generation", {"mode": "in_place"})
    body = {"model_path": str(served.models["second"]), "weight_version": "4"}
    reply = await served.post("/update_weights_from_disk", body, 400)
    assert reply["message"].startswith("Weights were updated, but the cache was not flushed")
    assert (await served.get("/model_info"))["weight_version"] == "default"
    await served.post("/continue_generation", {})
    assert (await task)["meta_info"]["weight_versions"][-1]["version"] == "4"


async def test_version_can_be_renamed(served: Served) -> None:
    """/update_weight_version names the live weights; without abort running requests go on."""
    task = served.start(params=LONG)
    await served.until_running(1)
    body = {"new_version": "9", "abort_all_requests": False}
    assert (await served.post("/update_weight_version", body))["success"] is True
    assert (await task)["meta_info"]["finish_reason"]["type"] == "length"
    assert (await served.get("/model_info"))["weight_version"] == "9"


async def test_extra_keys_share_nothing(served: Served) -> None:
    """Equal prompts under different extra keys do not share a computed prompt; under the same one they do."""
    await served.generate(extra_key="a")
    assert (await served.generate(extra_key="b"))["meta_info"]["cached_tokens"] == 0
    assert (await served.generate(extra_key="a"))["meta_info"]["cached_tokens"] == len(PROMPT) - 1


async def test_information_routes(served: Served) -> None:
    """The information routes answer in SGLang's fields, and routes that SGLang dropped are 404."""
    assert (await served.get("/get_model_info"))["is_generation"] is True
    server = await served.get("/server_info")
    assert (server["max_req_input_len"], server["context_length"]) == (511, 512)
    assert server == await served.get("/get_server_info") | {"internal_states": server["internal_states"]}
    load = (await served.get("/v1/loads"))["loads"][0]
    assert (load["num_running_reqs"], load["num_waiting_reqs"], load["max_running_requests"]) == (0, 0, 128)
    for path in ("/health", "/health_generate", "/ready"):
        await served.get(path)
    for path in ("/get_weight_version", "/get_load"):
        await served.get(path, 404)


async def test_metrics_count(served: Served) -> None:
    """The counters under SGLang's names grow with what was generated."""
    await served.generate([PROMPT, PROMPT])
    text = await served.get("/metrics")
    assert "sglang:generation_tokens_total 16.0" in text
    assert "sglang:num_requests_total 2.0" in text
    assert "sglang:num_running_reqs" in text


async def test_health_is_503_while_paused(models: dict[str, Path]) -> None:
    """A paused engine fails its health check after the time-out."""
    async with serving("fake", models, health_timeout_s=0.2) as served:
        await served.post("/pause_generation", {"mode": "in_place"})
        await served.get("/health", 503)
        await served.post("/continue_generation", {})
        await served.get("/health")


async def test_keys_guard_the_routes(models: dict[str, Path]) -> None:
    """The api key guards generation, the admin key the control routes; health stays open."""
    async with serving("fake", models, api_key="user", admin_api_key="admin") as served:
        body = {"input_ids": [1], "sampling_params": {"max_new_tokens": 1}}
        assert await served.post("/generate", body, 401) == {"error": "Unauthorized"}
        await served.post("/generate", body, headers={"Authorization": "Bearer user"})
        await served.post("/flush_cache", None, 401, headers={"Authorization": "Bearer user"})
        await served.post("/flush_cache", None, 200, headers={"Authorization": "Bearer admin"})
        await served.get("/health")


async def test_scoring_gives_input_logprobs(models: dict[str, Path]) -> None:
    """max_new_tokens 0 scores the input at temperature 1; the first entry has no value."""
    async with serving("torch", models) as served:
        reply = await served.generate(return_logprob=True, logprob_start_len=2, params={"max_new_tokens": 0})
    entries = reply["meta_info"]["input_token_logprobs"]
    assert [entry[1] for entry in entries] == PROMPT[2:]
    assert entries[0][0] is None
    assert reply["output_ids"] == []
    config = served.engine.backend.config
    logits = forward(config, load_parameters(models["first"], torch.float32), torch.tensor([PROMPT]))[0, 2:-1]
    expected = token_logprobs(logits, torch.tensor(PROMPT[3:]))
    assert [entry[0] for entry in entries[1:]] == pytest.approx(expected.tolist(), abs=1e-4)


async def test_late_joiners_change_nothing(models: dict[str, Path]) -> None:
    """Greedy output in float32 is the same alone and in a batch that others join and leave."""
    async with serving("torch", models) as served:
        prompts = [[n, n + 1, n + 2] for n in range(10, 80, 7)] + [PROMPT] * 4
        params = {"temperature": 0, "max_new_tokens": 60}
        alone = [(await served.generate(prompt, params=params))["output_ids"] for prompt in prompts]
        await served.post("/flush_cache", None)
        tasks: list[Awaitable[Any]] = []
        for number, prompt in enumerate(prompts):
            tasks.append(served.start(ids=prompt, params=params | {"max_new_tokens": 60 - number}))
            await served.until(lambda: served.engine.scheduler.load.running > 0)
        together = [(await task)["output_ids"] for task in tasks]
    assert together == [ids[: 60 - number] for number, ids in enumerate(alone)]


async def test_sampling_follows_the_model(models: dict[str, Path]) -> None:
    """First tokens of many samples are distributed as the model's softmax, and carry its log-probabilities."""
    async with serving("torch", models) as served:
        replies = await served.generate(
            return_logprob=True, params={"n": 2000, "max_new_tokens": 1, "temperature": 0.8}
        )
    counts = torch.bincount(torch.tensor([reply["output_ids"][0] for reply in replies]), minlength=320)
    config = served.engine.backend.config
    logits = forward(config, load_parameters(models["first"], torch.float32), torch.tensor([PROMPT]))[0, -1] / 0.8
    probabilities = logits.softmax(-1)
    deviation = (counts - 2000 * probabilities) / (2000 * probabilities * (1 - probabilities)).clamp(min=1).sqrt()
    assert deviation.abs().max() < 5
    value, token, _ = replies[0]["meta_info"]["output_token_logprobs"][0]
    assert value == pytest.approx(logits.log_softmax(-1)[token].item(), abs=1e-4)


async def test_seed_repeats(models: dict[str, Path]) -> None:
    """Requests with the same sampling_seed give the same tokens in whatever batch."""
    async with serving("torch", models) as served:
        first = await served.generate(params={"sampling_seed": 5, "max_new_tokens": 20})
        others = served.start(params=LONG)
        second = await served.generate(params={"sampling_seed": 5, "max_new_tokens": 20})
        await others
    assert first["output_ids"] == second["output_ids"]


async def test_more_than_fits_waits(models: dict[str, Path]) -> None:
    """Requests beyond the memory limit wait their turn, and all of them end."""
    async with serving("torch", models) as served:
        replies = await served.generate([[n, n] for n in range(3, 60)], params={"max_new_tokens": 300})
    assert [reply["meta_info"]["completion_tokens"] for reply in replies] == [300] * 57
