"""Continuous batching: one thread that admits waiting jobs between decode steps, and takes control commands there too.

Invariants: only this thread touches the backend; a job joins and leaves the batch between two steps, never waiting for
others; every job submitted ends with exactly one final notification; a control command runs between steps, so it sees
no half-made token. Loads no torch.

Paused: `abort` ends everything; `in_place` freezes rows with their keys and values; `retract` puts rows back in the
queue, to be recomputed from their ids. Nothing is admitted or stepped while paused. Left out: holding requests that
arrive during a pause or an update, which the HTTP side does (`gate`).
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from tiltyard.engine.backend import Backend, Row
from tiltyard.engine.job import Job

T = TypeVar("T")
log = structlog.get_logger()
ABORTED = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
ABORTED_WAITING = {"type": "abort", "message": "Abort in waiting queue"}
FAULT = "the engine could not compute this request"


class NotFlushed(Exception):
    """The weights are new and in use, but rows hold keys and values, so the cache could not be flushed."""


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of what the scheduler holds."""

    running: int = 0
    waiting: int = 0
    running_tokens: int = 0
    cached_tokens: int = 0
    tokens_per_s: float = 0.0


class Scheduler:
    """See the module. `start` and `stop` bracket its life; every other method may be called from any thread."""

    def __init__(
        self, backend: Backend, *, max_running: int, prefill_tokens: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._backend, self._clock = backend, clock
        self._max_running, self._prefill_tokens = max_running, prefill_tokens
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._waiting: deque[Job] = deque()
        self._running: dict[int, Job] = {}
        self._keys = 0
        self._paused = ""
        self._when_unpaused: list[Future[None]] = []
        self._stopping = False
        self._window: deque[tuple[float, int]] = deque(maxlen=32)
        self._thread = threading.Thread(target=self._loop, name="engine-scheduler", daemon=True)
        self.load = Load()
        self.live_version = "default"
        """Version of the weights that compute now; spans carry it."""
        self.died: str = ""
        """Why the thread ended, when it should not have."""
        self.ended: Future[None] = Future()
        """Done when the thread has ended."""

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends every job as aborted and the thread; waits for it."""
        self._commands.put(self._stop)
        self._thread.join()

    def submit(self, job: Job) -> None:
        """Queues a job."""
        self._commands.put(lambda: self._waiting.append(job))

    def abort(self, chosen: Callable[[Job], bool]) -> Future[None]:
        """Ends the jobs for which `chosen` is true, with what they have."""
        return self._call(lambda: self._abort(chosen))

    def pause(self, mode: str) -> Future[None]:
        """Stops admitting and stepping; see the module for the modes."""
        return self._call(lambda: self._pause(mode))

    def resume(self) -> Future[None]:
        """Goes on."""
        return self._call(self._resume)

    def update(self, model_dir: Path, version: str | None, *, flush: bool) -> Future[None]:
        """Loads weights between two steps. ValueError: unfit, old ones stay. NotFlushed: the new ones are live."""
        return self._call(lambda: self._update(model_dir, version, flush=flush))

    def set_version(self, version: str) -> Future[None]:
        """Renames the live weights."""
        return self._call(lambda: setattr(self, "live_version", version))

    def flush(self) -> Future[bool]:
        """Empties the prefix cache; False when rows hold keys and values, or jobs wait while not paused."""
        return self._call(self._flush)

    def ping(self) -> Future[None]:
        """Done when the scheduler turns and is not paused."""
        future: Future[None] = Future()
        self._commands.put(lambda: self._ping(future))
        return future

    def _call(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            wanted = (
                future.set_running_or_notify_cancel()
            )  # who asked may have gone; what was asked is done all the same
            try:
                result = work()
            except (ValueError, OSError, NotFlushed) as error:
                if wanted:
                    future.set_exception(error)
                return
            if wanted:
                future.set_result(result)

        self._commands.put(run)
        return future

    def _loop(self) -> None:
        try:
            while not self._stopping:
                self._take_commands()
                if not self._paused:
                    self._admit()
                    self._step()
                self._publish()
        except Exception as error:  # whatever ends this thread, health and callers must hear of it
            self.died = f"{type(error).__name__}: {error}"
            log.exception("scheduler_died")
            raise
        finally:
            for job in (*self._running.values(), *self._waiting):
                self._notify_end(job, ABORTED)
            self.ended.set_result(None)

    def _take_commands(self) -> None:
        """Runs what has been asked for; waits for something when there is nothing to compute."""
        idle = self._paused or not (self._running or self._waiting)
        if idle:
            self._publish()
            self._commands.get()()
        while True:
            try:
                self._commands.get_nowait()()
            except queue.Empty:
                return

    def _admit(self) -> None:
        """Moves waiting jobs into the batch while there is room, up to a bound of new prompt tokens per step."""
        candidates = self._candidates()
        room = self._backend.room([row for row, _ in candidates])
        assert room or self._running or not candidates, "a request larger than the engine was let in"
        for _, job in reversed(candidates[room:]):
            self._waiting.appendleft(job)
        admitted = candidates[:room]
        self._running.update({row.key: job for row, job in admitted})
        if admitted:
            self._first_tokens(admitted)

    def _candidates(self) -> list[tuple[Row, Job]]:
        """Takes the next jobs from the queue; those that only score are answered at once."""
        chosen: list[tuple[Row, Job]] = []
        seen: set[tuple[str, tuple[int, ...]]] = set()
        budget = self._prefill_tokens
        while self._waiting and len(self._running) + len(chosen) < self._max_running and budget > 0:
            job = self._waiting.popleft()
            if not job.asked.max_new_tokens:
                budget -= len(job.asked.input_ids)
                self._score(job)
                continue
            row = job.row(self._keys)
            self._keys += 1
            if (row.extra_key, row.ids) not in seen:
                budget -= len(row.ids)
                seen.add((row.extra_key, row.ids))
            chosen.append((row, job))
        return chosen

    def _score(self, job: Job) -> None:
        job.was_running = True
        if job.asked.logprob_start >= 0:
            job.input_logprobs = self._backend.score(job.asked.input_ids, job.asked.logprob_start)
        self._end([job], {"type": "length", "length": 0})

    def _first_tokens(self, batch: list[tuple[Row, Job]]) -> None:
        for _, job in batch:
            if job.asked.logprob_start >= 0 and job.input_logprobs is None:
                job.input_logprobs = self._backend.score(job.asked.input_ids, job.asked.logprob_start)
        admitted = self._backend.admit([row for row, _ in batch])
        for (_, job), one in zip(batch, admitted, strict=True):
            if not job.was_running:
                job.cached_tokens = one.cached_tokens
            job.was_running = True
        self._take([one.drawn for one in admitted])

    def _step(self) -> None:
        if self._running:
            self._take(self._backend.step())

    def _take(self, drawn: list[Any]) -> None:
        """Books sampled tokens and lets finished rows leave at once."""
        now, version = self._clock(), self.live_version
        self._window.append((now, len(drawn)))
        ended: list[int] = []
        for key, token, logprob in drawn:
            job = self._running[key]
            if job.push(token, logprob, version, now) is not None:
                ended.append(key)
            elif job.stream:
                job.notify(job.reply(version, now), False)
        self._backend.drop(ended)
        for key in ended:
            job = self._running.pop(key)
            job.notify(job.reply(version, now), True)

    def _end(self, jobs: list[Job], finish: dict[str, Any]) -> None:
        """Ends jobs that did not end by themselves, and forgets them."""
        chosen = set(map(id, jobs))
        keys = [key for key, job in self._running.items() if id(job) in chosen]
        self._backend.drop(keys)
        for key in keys:
            del self._running[key]
        self._waiting = deque(job for job in self._waiting if id(job) not in chosen)
        for job in jobs:
            self._notify_end(job, finish)

    def _notify_end(self, job: Job, finish: dict[str, Any]) -> None:
        job.finish = finish
        job.notify(job.reply(self.live_version, self._clock()), True)

    def _abort(self, chosen: Callable[[Job], bool]) -> None:
        self._end([job for job in self._running.values() if chosen(job)], ABORTED)
        waiting = [job for job in self._waiting if chosen(job)]
        self._end([job for job in waiting if job.ids], ABORTED)
        self._end([job for job in waiting if not job.ids], ABORTED_WAITING)

    def _pause(self, mode: str) -> None:
        self._paused = mode
        if mode == "abort":
            self._abort(lambda job: True)
        elif mode == "retract":
            rows = list(self._running.items())
            self._backend.drop([key for key, _ in rows])
            self._running.clear()
            for _, job in reversed(rows):
                job.retractions += 1
                self._waiting.appendleft(job)

    def _resume(self) -> None:
        self._paused = ""
        for future in self._when_unpaused:
            self._ping(future)
        self._when_unpaused.clear()

    def _update(self, model_dir: Path, version: str | None, *, flush: bool) -> None:
        self._backend.load(model_dir)
        if version is not None:
            self.live_version = version
        if flush and not self._flush():
            raise NotFlushed

    def _flush(self) -> bool:
        if self._running or (self._waiting and not self._paused):
            return False
        self._backend.flush()
        return True

    def _ping(self, future: Future[None]) -> None:
        if self._paused:
            self._when_unpaused.append(future)
        elif future.set_running_or_notify_cancel():
            future.set_result(None)

    def _stop(self) -> None:
        self._stopping = True

    def _publish(self) -> None:
        usage = self._backend.usage()
        speed = 0.0
        if self._running and len(self._window) > 1:
            elapsed = self._window[-1][0] - self._window[0][0]
            speed = sum(count for _, count in list(self._window)[1:]) / elapsed if elapsed > 0 else 0.0
        self.load = Load(
            running=len(self._running),
            waiting=len(self._waiting),
            running_tokens=usage.running_tokens,
            cached_tokens=usage.cached_tokens,
            tokens_per_s=speed,
        )
