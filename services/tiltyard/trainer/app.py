"""The trainer's run: follow the group stream, train each full step once, publish each version once.

Order of a step: train, write the weights, publish, checkpoint. So a checkpointed version is always published, and a
crash in between repeats the step from the checkpoint: the first publication stands, its `final` is taken over.
Invariants: training and files run in a worker thread, the loop stays live; a stop gives up the open step before the
weights move, or waits for the update; nothing is saved between an update and its publication.
Left out: evaluation, which the sampler starts.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import anyio
import structlog

from tiltyard.kit import joins
from tiltyard.kit.service import Context
from tiltyard.kit.settings import RunSettings, SettingsError
from tiltyard.policy.models import ensure_model
from tiltyard_proto.flow import StepFold
from tiltyard_proto.messages import Policy

from . import handler
from .backend import BusStreams, FakeLearner, Learner, StepAbandoned, Streams, Weights
from .batch import Batch, Limits, build
from .checkpoint import Checkpoints
from .files import WEIGHTS, new_directory, policy_directories, policy_directory, sha256, sweep
from .handler import Full, Progress
from .settings import TrainerSettings

log = structlog.get_logger()


async def start(context: Context) -> None:
    """Train the run until it is final, then idle; returns when told to stop. SettingsError in a world of several."""
    _check_world(os.environ)
    source = await anyio.to_thread.run_sync(ensure_model, context.run.model, context.data_settings.cache_path)
    trainer = Trainer(
        run=context.run,
        settings=context.settings,
        source=source,
        data=context.data,
        streams=BusStreams(context.bus),
        learner=partial(_LEARNERS[context.settings.learner], source, context.settings),
        stop=context.stop,
    )
    await trainer.serve()


def _check_world(environ: Mapping[str, str]) -> None:
    """SettingsError under a torchrun that starts several processes: each would train the run by itself."""
    world = environ.get("WORLD_SIZE", "1")
    if world != "1":
        raise SettingsError(
            f"WORLD_SIZE is {world}: the learner is not sharded, so torchrun may start one process; "
            "use --nnodes=1 --nproc-per-node=1"
        )


def _torch_learner(source: Path, settings: TrainerSettings) -> Learner:
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # huge pages for tensors: a tenth less CPU time a step
    from .learner import TorchLearner

    return TorchLearner(source, settings)


def _fake_learner(source: Path, settings: TrainerSettings) -> Learner:
    log.warning("fake_learner", why="trainer.learner is 'fake': nothing is learned")
    return FakeLearner(json.loads((source / "config.json").read_bytes())["vocab_size"], remember=False)


_LEARNERS = {"torch": _torch_learner, "fake": _fake_learner}


class Trainer:
    """One run of the trainer. `learner` makes the learner and is called once, in a worker thread."""

    def __init__(
        self,
        *,
        run: RunSettings,
        settings: TrainerSettings,
        source: Path,
        data: Path,
        streams: Streams,
        learner: Callable[[], Learner],
        stop: anyio.Event,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._run = run
        self._settings = settings
        self._source = source
        self._policies = data / "policies"
        self._checkpoints = Checkpoints(data / "checkpoints", settings.keep_checkpoints)
        self._streams = streams
        self._make_learner = learner
        self._stop = stop
        self._clock = clock
        self._saved = 0
        self._moved = False
        """The weights are ahead of `progress`."""
        fold = StepFold(groups_per_step=run.groups_per_step, refill_cap=run.refill_cap)
        self.progress = Progress(run=run.name, fold=fold, started=clock())

    async def serve(self) -> None:
        """Publish version 0, resume, train to the end, idle until the stop."""
        learner: Learner | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._cancel_on_stop, tasks.cancel_scope)
            await self._publish_initial()
            if self._run.steps:
                learner = await self._thread(self._make_learner)
                await self._resume(learner)
                await self._train(learner)
            await self._stop.wait()
        if learner is not None:
            await self._save(learner)

    async def _cancel_on_stop(self, scope: anyio.CancelScope) -> None:
        await self._stop.wait()
        scope.cancel()

    async def _thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await anyio.to_thread.run_sync(function, *arguments)

    # ------------------------------------------------------------ beginning

    async def _publish_initial(self) -> None:
        path = self._source / WEIGHTS
        weights = Weights("", 0)
        if path.is_file():
            weights = Weights(await self._thread(sha256, path), path.stat().st_size)
        await self._publish(0, self._source.absolute(), weights, position=0, metrics={})

    async def _resume(self, learner: Learner) -> None:
        check = partial(_check, fresh=self.progress)
        self._policies.mkdir(parents=True, exist_ok=True)
        await self._thread(sweep, self._policies)
        found = await self._thread(self._checkpoints.load, learner, check)
        if found is not None:
            self.progress = found
            self._saved = found.version
            if found.policy is not None:
                await self._streams.publish(found.policy)
        log.info("trainer_ready", run=self._run.name, version=self.progress.version, position=self.progress.position)

    # ------------------------------------------------------------ steps

    async def _train(self, learner: Learner) -> None:
        if self.progress.final:
            return
        intake = handler.begin(self.progress)
        async for sequence, group in self._streams.groups(intake.position):
            intake, full = handler.take(intake, sequence, group, self._run.name)
            if full is not None:
                await self._step(learner, full)
                if self.progress.final:
                    log.info("training_done", run=self._run.name, version=self.progress.version)
                    return

    async def _step(self, learner: Learner, full: Full) -> None:
        version, started = full.fold.step, self._clock()
        batch = await self._thread(build, full.groups, self.progress.version, self._limits(learner))
        for problem in batch.problems:
            log.warning("rollout_unusable", version=version, problem=problem)
        lr = handler.learning_rate(self._settings, version, self._run.steps)
        try:
            metrics = await self._thread(self._update, learner, batch, lr)
        except StepAbandoned:
            log.info("step_abandoned", version=version)
            await anyio.sleep_forever()  # the stop that asked for it cancels this
        target = policy_directory(self._policies, version)
        weights = await self._thread(self._export, learner, target)
        policy = await self._publish(
            version, target, weights, position=full.position, metrics={**batch.metrics, **metrics}
        )
        joins.trained(policy, full.groups, started)
        self.progress = handler.advance(self.progress, full, policy)
        self._moved = False
        if policy.final or version % self._settings.checkpoint_every == 0:
            await self._save(learner)
        await self._thread(self._prune)

    def _limits(self, learner: Learner) -> Limits:
        return Limits(
            max_staleness=self._settings.max_staleness,
            row_cap=self._settings.micro_batch_tokens,
            vocab_size=learner.vocab_size,
            full_groups=self._settings.full_step_share * self._run.groups_per_step,
        )

    def _update(self, learner: Learner, batch: Batch, lr: float) -> dict[str, float]:
        metrics = learner.step(batch, lr, self._stop.is_set)
        self._moved = True
        return metrics

    def _export(self, learner: Learner, target: Path) -> Weights:
        if not target.exists():
            with new_directory(target) as scratch:
                return learner.export(scratch)
        path = target / WEIGHTS  # written before a crash: it may be published and in use
        return Weights(sha256(path), path.stat().st_size)

    async def _publish(
        self, version: int, path: Path, weights: Weights, *, position: int, metrics: dict[str, float]
    ) -> Policy:
        now = self._clock()
        elapsed = now - self.progress.started
        final = handler.is_final(version, self._run.steps, elapsed_s=elapsed, max_wall_s=self._run.max_wall_s)
        policy = Policy(
            run=self._run.name,
            version=version,
            path=str(path),
            sha256=weights.sha256,
            size=weights.size,
            position=position,
            final=final,
            metrics=metrics,
            created=now,
        )
        stands = await self._streams.publish(policy)
        shown = {key: round(metrics[key], 4) for key in _SHOWN if key in metrics}
        log.info("policy_published", version=version, first=stands is policy, final=stands.final, **shown)
        return stands

    async def _save(self, learner: Learner) -> None:
        """A checkpoint of `progress`, unless there is one or the weights are ahead of it."""
        if self._moved or self.progress.version == self._saved:
            return
        with anyio.CancelScope(shield=True):
            await self._thread(self._checkpoints.save, self.progress, learner)
        self._saved = self.progress.version

    def _prune(self) -> None:
        made = policy_directories(self._policies)
        keep, keep_s = self._settings.keep_policies, self._settings.keep_policies_s
        for path in handler.prunable(made, now=time.time(), keep=keep, keep_s=keep_s):
            rmtree(path)


def _check(progress: Progress, *, fresh: Progress) -> None:
    handler.check_resumable(progress, fresh)


_SHOWN = ("reward_mean", "pass_rate", "loss", "entropy", "mismatch_kl", "grad_norm", "groups", "tokens", "cpu_s")
