"""The simulated engine as a process: SGLang's HTTP API with canned answers, drawn latencies and, when asked, faults.

`python engine.py PORT MODEL_DIR [--latency KIND:NUMBERS] [--answers TEXT,TEXT] [--tokens N] [--faults SHARE]
[--refuse SHARE]`. It speaks HTTP itself, on a bare asyncio protocol, so that the machine's time goes to what is tested:
an answer costs some 40 us. `POST /simulate {"refuse": 0}` mends an engine that refuses.
Pauses, weight updates, flushes and aborts are those of SGLang 0.5.23 as the gateway uses them (`gateway.fake` is the
one that is held against it). Invariant: an answer is one of a few texts, drawn at random whatever the
prompt says, filled up with line ends in front, and ends with the stop token.
Left out: streaming, batches, keys, and a model.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from rig.latency import Latency, parse

from tiltyard.policy.chat import ChatRenderer

ANSWERS = "echo 1,echo 2"
"""Commands where the task has a sandbox; and half of them end in the number that tasks ask for."""
OK, BAD_REQUEST, FAULT, PAUSED = 200, 400, 500, 503


class Params(msgspec.Struct):
    """What is read of `sampling_params`."""

    max_new_tokens: int = 16


class Ask(msgspec.Struct):
    """What is read of a body of `/generate`."""

    rid: str
    input_ids: list[int]
    sampling_params: Params


_ask = msgspec.json.Decoder(Ask).decode


class Answer:
    """One canned answer: its tokens, and the part of the reply that doesn't change."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        entries = [[-0.5 - 0.001 * (token % 7), token, None] for token in ids]
        self.ids_json = msgspec.json.encode(ids)
        self.entries_json = msgspec.json.encode(entries)

    def reply(self, rid: str, prompt: int, versions: tuple[str, str]) -> bytes:
        """The body of `/generate`; `versions` are those at the begin and the end."""
        count = len(self.ids)
        half = count if versions[0] == versions[1] else count // 2
        spans = b'{"version":"%b","start":0,"end":%d}' % (versions[0].encode(), half)
        if half < count:
            spans += b',{"version":"%b","start":%d,"end":%d}' % (versions[1].encode(), half, count)
        return (
            b'{"text":"","output_ids":%b,"meta_info":{"id":"%b","finish_reason":{"type":"stop","matched":%d},'
            b'"prompt_tokens":%d,"completion_tokens":%d,"weight_version":"%b","weight_versions":[%b],'
            b'"output_token_logprobs":%b}}'
            % (
                self.ids_json,
                rid.encode(),
                self.ids[-1],
                prompt,
                count,
                versions[1].encode(),
                spans,
                self.entries_json,
            )
        )


class Engine:
    """The state of the engine; one for all connections."""

    def __init__(
        self,
        model: Path,
        latency: Latency,
        seed: int,
        faults: float,
        refuse: float,
        answers: Sequence[str],
        tokens: int,
    ) -> None:
        chat = ChatRenderer(model)
        self.stop = min(chat.eos_ids)
        self.vocab_size = chat.vocab_size
        filler = chat.encode("\n")[:1]
        self.answers = [self._answer(chat, text, filler, tokens) for text in answers]
        self.latency = latency
        self.faults = faults
        self.refuse = refuse
        self.chance = random.Random(seed)
        self.version, self.path = "default", str(model)
        self.paused = False
        self.running: dict[str, asyncio.Event] = {}
        """Requests in flight, each with the event that cuts it short."""
        self.resumed = asyncio.Event()
        self.resumed.set()

    def _answer(self, chat: ChatRenderer, text: str, filler: list[int], tokens: int) -> Answer:
        ids = chat.encode(text)
        return Answer(filler * max(0, tokens - len(ids) - 1) + ids + [self.stop])

    async def generate(self, body: bytes) -> tuple[int, bytes]:
        ask = _ask(body)
        if self.faults and self.chance.random() < self.faults:
            return FAULT, b'{"error":{"message":"simulated fault"}}'
        if not ask.input_ids or max(ask.input_ids) >= self.vocab_size or ask.rid in self.running:
            return BAD_REQUEST, b'{"error":{"message":"bad request"}}'
        answer = self.chance.choice(self.answers)
        if len(answer.ids) > ask.sampling_params.max_new_tokens:
            return BAD_REQUEST, b'{"error":{"message":"max_new_tokens is smaller than the canned answer"}}'
        begun, cut = self.version, asyncio.Event()
        self.running[ask.rid] = cut
        try:
            if await self._cut(cut, self.latency.draw(self.chance)):
                return OK, _aborted(ask.rid, self.version)
            while self.paused:
                await self.resumed.wait()
        finally:
            del self.running[ask.rid]
        if (
            self.refuse and self.chance.random() < self.refuse
        ):  # as late as an answer, or all first endings are refusals
            return BAD_REQUEST, b'{"error":{"message":"simulated refusal"}}'
        return OK, answer.reply(ask.rid, len(ask.input_ids), (begun, self.version))

    @staticmethod
    async def _cut(cut: asyncio.Event, seconds: float) -> bool:
        """Wait; True when the request was aborted meanwhile."""
        if seconds <= 0:
            return cut.is_set()
        try:
            async with asyncio.timeout(seconds):
                await cut.wait()
        except TimeoutError:
            return False
        return True

    # ------------------------------------------------------------ control

    async def control(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Every other route."""
        given: dict[str, Any] = msgspec.json.decode(body) if body else {}
        if path == "/model_info":
            info = {"model_path": self.path, "served_model_name": "simulated", "weight_version": self.version}
            return OK, msgspec.json.encode(info)
        if path == "/ready":
            return (PAUSED if self.paused else OK), b"{}"
        if path == "/abort_request":
            self._abort("" if given.get("abort_all") else given["rid"])
        elif path == "/pause_generation":
            if given["mode"] == "abort":
                self._abort("")
            self.paused = True
            self.resumed.clear()
        elif path == "/continue_generation":
            self.paused = False
            self.resumed.set()
        elif path == "/update_weights_from_disk":
            self.version, self.path = given["weight_version"], given["model_path"]
        elif path == "/update_weight_version":
            self.version = given["new_version"]
        elif path == "/simulate":
            self.refuse = given["refuse"]
        elif path == "/flush_cache":
            return (OK, b"{}") if self.paused or not self.running else (BAD_REQUEST, b"{}")
        else:
            return 404, b"{}"
        return OK, b'{"success":true,"message":""}'

    def _abort(self, prefix: str) -> None:
        for rid, cut in self.running.items():
            if rid.startswith(prefix):
                cut.set()


def _aborted(rid: str, version: str) -> bytes:
    meta = {"id": rid, "finish_reason": {"type": "abort", "message": "Aborted"}, "weight_version": version}
    return msgspec.json.encode({"text": "", "output_ids": [], "meta_info": meta | {"output_token_logprobs": []}})


class Connection(asyncio.Protocol):
    """One client: requests with Content-Length, one after another, kept alive."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.buffer = bytearray()
        self.busy: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self.busy is not None:
            self.busy.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if self.busy is None:
            self._next()

    def _next(self) -> None:
        """Begin on the next request when it is whole."""
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self.buffer[:end]).decode("latin-1")
        length = next((int(line[15:]) for line in head.split("\r\n") if line[:15].lower() == "content-length:"), 0)
        if len(self.buffer) < end + 4 + length:
            return
        body = bytes(self.buffer[end + 4 : end + 4 + length])
        del self.buffer[: end + 4 + length]
        self.busy = asyncio.get_running_loop().create_task(self._answer(head.split(" ", 2)[1], body))

    async def _answer(self, path: str, body: bytes) -> None:
        try:
            status, reply = await (
                self.engine.generate(body) if path == "/generate" else self.engine.control(path, body)
            )
        except (msgspec.MsgspecError, KeyError) as error:
            status, reply = BAD_REQUEST, msgspec.json.encode({"error": {"message": str(error)}})
        self.transport.write(
            b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (status, len(reply), reply)
        )
        self.busy = None
        self._next()


async def serve(port: int, engine: Engine) -> None:
    """On loopback, until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(engine), "127.0.0.1", port, backlog=4096)
    print('{"event": "engine_listens"}', flush=True)
    await server.serve_forever()


def main() -> None:
    top = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    top.add_argument("port", type=int)
    top.add_argument("model", type=Path)
    top.add_argument("--latency", type=parse, default=parse("exponential:0.02"))
    top.add_argument("--seed", type=int, default=0)
    top.add_argument("--faults", type=float, default=0.0, help="share of requests that end in a status 500")
    top.add_argument("--refuse", type=float, default=0.0, help="share of requests that are refused as wrong")
    top.add_argument("--answers", default=ANSWERS, help="texts between commas; a text named twice comes twice as often")
    top.add_argument("--tokens", type=int, default=0, help="tokens of an answer at least")
    given = top.parse_args()

    async def run() -> None:
        answers = given.answers.split(",")
        engine = Engine(given.model, given.latency, given.seed, given.faults, given.refuse, answers, given.tokens)
        await serve(given.port, engine)

    uvloop.run(run())


if __name__ == "__main__":
    main()
