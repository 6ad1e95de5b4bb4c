"""The child's side: a zygote that forks, and what its children do.

Arguments: descriptor of the control socket, limits as JSON, the module path, 'module:function'. The control socket
takes `fork` with the descriptor of a pipe, answered by the child's number, and `reap <number>`, answered by its wait
status. Invariants: the zygote imports the function's module and does nothing else; a child resets its CPU timer before
each check, and the timer's signal ends it even inside native code; children end with the zygote's control socket.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from socket import AF_UNIX, SOCK_SEQPACKET, recv_fds, socket
from typing import Any

import msgspec

from .pool import HEAD, Limits

MAX_REQUEST = 64 << 20
OK, FAILED = 0, 1


def main() -> None:
    """Serve the control socket until it ends."""
    limits, target = msgspec.json.decode(sys.argv[2], type=Limits), sys.argv[4]
    with socket(AF_UNIX, SOCK_SEQPACKET, 0, int(sys.argv[1])) as control:
        module, _, name = target.partition(":")
        try:
            function = getattr(import_module(module), name)
        except (ImportError, AttributeError) as err:
            control.sendall(f"{type(err).__name__}: {err}".encode()[:4000])
            return
        gc.freeze()
        control.sendall(b"ready")
        _serve(control, function, limits)


def _serve(control: socket, function: Callable[[Any], Any], limits: Limits) -> None:
    children: set[int] = set()
    while True:
        request, pipes, _, _ = recv_fds(control, 256, 1)
        if not request:
            break
        if request == b"fork":
            pid = os.fork()
            if not pid:
                control.close()
                _child(socket(fileno=pipes[0]), function, limits)
            os.close(pipes[0])
            children.add(pid)
            control.sendall(b"%d" % pid)
        else:
            pid, status = int(request.split()[1]), 0
            if pid in children:  # a child of an earlier zygote is not ours to wait for
                children.remove(pid)
                status = os.waitpid(pid, 0)[1]
            control.sendall(b"%d" % status)
    for pid in children:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _child(pipe: socket, function: Callable[[Any], Any], limits: Limits) -> None:
    """Answer checks until the pipe ends; never returns."""
    os.setsid()
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115
    most = used + limits.memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
    while True:
        head = _read(pipe, 4)
        size = struct.unpack("<I", head)[0] if head else MAX_REQUEST + 1
        request = _read(pipe, size) if size <= MAX_REQUEST else b""
        if not request:
            os._exit(0)
        how, cpu_s, answer = _checked(function, request, limits.cpu_s)
        pipe.sendall(HEAD.pack(len(answer), cpu_s, how) + answer)


def _checked(function: Callable[[Any], Any], request: bytes, cpu_s: float) -> tuple[int, float, bytes]:
    before = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        how, answer = OK, msgspec.msgpack.encode(function(msgspec.msgpack.decode(request)))
    except BaseException as err:  # whatever a parser raises on hostile input is said to the parent
        how, answer = FAILED, f"{type(err).__name__}: {str(err)[:200]}".encode("utf-8", "replace")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return how, time.process_time() - before, answer


def _read(pipe: socket, size: int) -> bytes:
    """That many bytes; none when the pipe has ended."""
    parts = bytearray()
    while len(parts) < size:
        part = pipe.recv(min(size - len(parts), 1 << 16))
        if not part:
            return b""
        parts += part
    return bytes(parts)
