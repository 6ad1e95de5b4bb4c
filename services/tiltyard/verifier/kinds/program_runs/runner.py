"""Runs inside the sandbox: builds a program and runs it once for each input, one result a line.

`guest` puts `guest_values` in front of this file and the call of `main` behind it. Expected output never comes here, so
whatever the program does to this process, it can only score by printing what is right.
`job.txt`: a literal {"build": argv, "runs": [{"argv", "stdin", "files"}], "cpu_s", "wall_s"}. `results.jsonl`: {"call":
index, "value": {"status", "stdout"}}; index -1 says that the program couldn't be built.
"""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MAX_SHOWN = 65536


def main(encode: "Callable[[object], str]", describe: "Callable[[BaseException], str]") -> None:
    """Build, then run."""
    import resource

    with open("job.txt", encoding="utf-8") as file:
        job = eval(file.read(), {"__builtins__": {}})
    results = os.open("results.jsonl", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def put(index: int, key: str, text: str) -> None:
        os.write(results, f'{{"call": {index}, "{key}": {text}}}\n'.encode())

    home = os.getcwd()
    if job["build"]:
        status, shown = run(job["build"], b"", job["wall_s"] * 3, "build.out", errors=True)
        if status:
            put(-1, "error", describe(ValueError(shown[:180] or f"status {status}")))
            return
    resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_s"], job["cpu_s"]))
    for index, one in enumerate(job["runs"]):
        folder = os.path.join(home, f"run{index}")
        os.mkdir(folder)
        for name, content in one["files"].items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            with open(os.path.join(folder, name), "wb") as given:
                given.write(content)
        os.chdir(folder)
        status, shown = run(one["argv"], one["stdin"], job["wall_s"], os.path.join(home, f"{index}.out"))
        os.chdir(home)
        put(index, "value", encode({"status": status, "stdout": shown}))
        if status == -9:
            return  # it ran into a limit; the others would do the same


def run(argv: "list[str]", stdin: bytes, wall_s: float, output: str, errors: bool = False) -> "tuple[int, str]":
    """Exit status (below 0: signal) and standard output of a program; what it started is killed with it."""
    with open(output + ".in", "wb") as file:
        file.write(stdin)
    give = os.open(output + ".in", os.O_RDONLY)
    take = os.open(output, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    null = os.open(os.devnull, os.O_WRONLY)
    plumbing = [(os.POSIX_SPAWN_DUP2, give, 0), (os.POSIX_SPAWN_DUP2, take, 1)]
    plumbing.append((os.POSIX_SPAWN_DUP2, take if errors else null, 2))
    try:
        pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=plumbing, setpgroup=0)
    except OSError as error:
        return 127, str(error)
    status = wait(pid, time.monotonic() + wall_s)
    shown = os.pread(take, MAX_SHOWN, 0).decode("utf-8", "replace")
    for number in (give, take, null):
        os.close(number)
    return status, shown


def wait(pid: int, until: float) -> int:
    """The exit status of a process, which is killed with its group when its time is up."""
    pause = 0.001
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        late = time.monotonic() > until
        if done or late:
            try:
                os.killpg(pid, 9)
            except OSError:
                pass
        if done:
            code = os.waitstatus_to_exitcode(status)
            return -9 if code in (-9, -24) else code
        if late:
            os.waitpid(pid, 0)
            return -9
        time.sleep(pause)
        pause = min(pause * 1.5, 0.02)
