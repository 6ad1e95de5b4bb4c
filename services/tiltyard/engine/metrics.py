"""Prometheus metrics under SGLang's names, so that one dashboard reads both engines. One registry per server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from tiltyard.engine.scheduler import Load

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)


class Metrics:
    """Gauges read the scheduler's snapshot when scraped; counters and histograms are fed with every reply."""

    def __init__(self, load: Callable[[], Load], max_total_tokens: int) -> None:
        self.registry = CollectorRegistry()
        self._gauge("num_running_reqs", "Rows being decoded", lambda: load().running)
        self._gauge("num_queue_reqs", "Requests waiting", lambda: load().waiting)
        self._gauge("num_used_tokens", "Tokens of running rows", lambda: load().running_tokens)
        self._gauge("kv_evictable_tokens", "Tokens in the prefix cache", lambda: load().cached_tokens)
        self._gauge("max_total_num_tokens", "Token limit of running rows", lambda: max_total_tokens)
        self._gauge("token_usage", "Share of the token limit in use", lambda: load().running_tokens / max_total_tokens)
        self._gauge("gen_throughput", "Tokens per second", lambda: load().tokens_per_s)
        self._requests = self._counter("num_requests_total", "Requests ended")
        self._aborted = self._counter("num_aborted_requests_total", "Requests aborted")
        self._prompt = self._counter("prompt_tokens_total", "Prompt tokens")
        self._cached = self._counter("cached_tokens_total", "Prompt tokens from the prefix cache")
        self._generated = self._counter("generation_tokens_total", "Generated tokens")
        self._retracted = self._counter("num_retracted_requests_total", "Times a request was retracted")
        self._latency = self._histogram("e2e_request_latency_seconds", "From arrival to reply")
        self.weight_load = self._histogram("weight_load_duration_seconds", "Loading weights from disk")

    def ended(self, reply: dict[str, Any]) -> None:
        """Books one final reply."""
        meta = reply["meta_info"]
        self._requests.inc()
        if meta["finish_reason"]["type"] == "abort":
            self._aborted.inc()
        self._prompt.inc(meta["prompt_tokens"])
        self._cached.inc(meta.get("cached_tokens", 0))
        self._generated.inc(meta["completion_tokens"])
        self._retracted.inc(meta.get("num_retractions", 0))
        self._latency.observe(meta["e2e_latency"])

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        Gauge(f"sglang:{name}", text, registry=self.registry).set_function(read)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"sglang:{name}", text, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"sglang:{name}", text, registry=self.registry, buckets=_SECONDS)
