"""What tests of verifier kinds share: rollouts made from texts, and a local subprocess in the sandbox's place.

`run_job` gives a job a fresh folder, its files and its command, and returns what a sandbox returns. It isolates
nothing, so only the submissions written in these tests may run in it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tiltyard.verifier.kinds.registry import built_in
from tiltyard_proto.messages import BlobRef, Execution, Graded, GroupRef, Job, Rollout, Task, Turn, Verdict
from tiltyard_proto.outcomes import Outcome

KINDS = {kind.name: kind for kind in built_in()}
WALL_S = 20.0


def rollout_of(
    task: Task, *texts: str, outcome: Outcome = Outcome.FINISHED, workspace: BlobRef | None = None
) -> Rollout:
    """A rollout that ended, with one turn for each text."""
    turns = tuple(
        Turn(context_ids=b"", action_ids=b"", logprobs=b"", versions=(), text=text, finish="stop", workspace=workspace)
        for text in texts
    )
    return Rollout(
        id="r-0",
        run="test",
        group=GroupRef(id="g", size=8, deadline=1e12),
        member=0,
        task=task,
        sampling=task.sampling,
        turns=turns,
        outcome=outcome,
    )


def run_job(
    job: Job, start: Mapping[str, bytes] | None = None, wall_s: float = WALL_S, through_runpy: bool = False
) -> Graded:
    """The job's result from a local subprocess in a fresh folder that first holds the files of `start`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in {**(start or {}), **job.command.files}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        argv = [sys.executable if job.command.argv[0] == "python3" else job.command.argv[0], *job.command.argv[1:]]
        if through_runpy:
            argv = [sys.executable, "-I", "-S", "-c", f"import runpy; runpy.run_path({argv[1]!r})"]
        with _candidate(job, folder) as descriptors:
            execution = _execute(argv, job.command.stdin, folder, wall_s, descriptors)
        found = {path: folder / path for path in job.collect}
        files = {path: file.read_bytes() for path, file in found.items() if file.is_file()}
    return Graded(rollout=job.rollout, execution=execution, files=files)


@contextmanager
def _candidate(job: Job, folder: Path) -> Iterator[tuple[int, ...]]:
    """The program under test beside the command, as a sandbox runs it: descriptors 3 and 4 of the command."""
    candidate = job.command.candidate
    if candidate is None:
        yield ()
        return
    for path, content in candidate.files.items():
        (folder / path).write_bytes(content)
    process = subprocess.Popen(  # below a shell, since some kill their parent
        ["bash", "-c", '"$@"; true', "bash", sys.executable, *candidate.argv[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=folder,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (process.stdin.fileno(), process.stdout.fileno())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _execute(argv: list[str], stdin: bytes, folder: Path, wall_s: float, descriptors: tuple[int, ...]) -> Execution:
    if descriptors:  # the shell puts them where the command expects them
        argv = ["bash", "-c", f'exec "$@" 3>&{descriptors[0]} 4<&{descriptors[1]}', "bash", *argv]
    process = subprocess.Popen(
        argv,
        pass_fds=descriptors,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(stdin, timeout=wall_s)
    except subprocess.TimeoutExpired as err:
        return Execution(outcome=Outcome.WALL_LIMIT, stdout=err.stdout or b"")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        process.wait()
    code = process.returncode
    outcome = Outcome.FINISHED if code == 0 else Outcome.NONZERO_EXIT if code > 0 else Outcome.SIGNALLED
    return Execution(
        outcome=outcome,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        stdout=stdout[:16384],
        stderr=stderr[:16384],
    )


def grade(task: Task, *texts: str, wall_s: float = WALL_S) -> Verdict:
    """The verdict on a rollout with these actions; what must run, runs in a local subprocess."""
    kind = KINDS[task.verification.kind]
    planned = kind.plan(task, rollout_of(task, *texts))
    if isinstance(planned, Verdict):
        return planned
    return kind.judge(task, run_job(planned, wall_s=wall_s))
