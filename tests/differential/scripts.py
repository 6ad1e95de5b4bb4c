# ruff: noqa: E501
"""Benign Python scripts around processes, threads, signals, time and sockets. Name to source."""

from __future__ import annotations

PROCESSES = {
    "subprocess streams": """
import subprocess, sys
done = subprocess.run(["sh", "-c", "cat; echo err >&2; exit 3"], input=b"fed", capture_output=True)
print(done)
print(subprocess.check_output(["echo", "x"], text=True), subprocess.run(["false"]).returncode)
first = subprocess.Popen(["seq", "5"], stdout=subprocess.PIPE)
print(subprocess.check_output(["tail", "-n", "2"], stdin=first.stdout), first.wait())
""",
    "subprocess errors": """
import subprocess
for argv in (["nothere"], ["/etc/passwd"], ["/"], ["sleep", "9"]):
    try:
        print(subprocess.run(argv, timeout=0.3).returncode)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(type(error).__name__, getattr(error, "errno", ""))
""",
    "subprocess environment": """
import os, subprocess
print(subprocess.check_output(["env"], env={"A": "1"}))
print(subprocess.check_output("pwd; echo $X", shell=True, cwd="/tmp", env={**os.environ, "X": "y"}, text=True))
p = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(p.communicate("a" * 100000)[0].count("a"), p.returncode)
""",
    "fork and wait": """
import os
for code in (0, 1, 42, 255):
    pid = os.fork()
    if pid == 0:
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, b"from the child")
    os._exit(0)
os.close(write)
print(os.read(read, 99), os.read(read, 99), os.wait()[1])
""",
    "process tree": """
import os, sys
print(os.getppid() == 1, os.getpid() > 1, os.getpgid(0) == os.getpid(), os.getsid(0) == os.getpid())
if os.fork() == 0:
    os.setsid()
    print(os.getsid(0) == os.getpid())
    sys.stdout.flush()
    os._exit(0)
os.wait()
try:
    os.waitpid(-1, 0)
except ChildProcessError as error:
    print(error)
""",
    "multiprocessing pool": """
import multiprocessing
def work(x):
    return x * x
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(pool.map(work, range(20)), sorted(pool.imap_unordered(work, range(5))))
        print(pool.apply_async(divmod, (7, 2)).get(), pool.starmap(pow, [(2, 3), (3, 2)]))
""",
    "multiprocessing queues": """
import multiprocessing as mp
def child(inbox, outbox, total, lock):
    for item in iter(inbox.get, None):
        with lock:
            total.value += item
        outbox.put(item * 2)
context = mp.get_context("fork")
inbox, outbox, total, lock = context.Queue(), context.Queue(), context.Value("i", 0), context.Lock()
workers = [context.Process(target=child, args=(inbox, outbox, total, lock)) for _ in range(3)]
[w.start() for w in workers]
[inbox.put(n) for n in range(30)]
[inbox.put(None) for _ in workers]
found = sorted(outbox.get() for _ in range(30))
[w.join() for w in workers]
print(sum(found), total.value, [w.exitcode for w in workers])
""",
    "executors": """
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
import multiprocessing
def cube(x):
    if x == 3:
        raise ValueError("three")
    return x ** 3
for kind in (ThreadPoolExecutor(4), ProcessPoolExecutor(2, multiprocessing.get_context("fork"))):
    with kind as pool:
        futures = {pool.submit(cube, n): n for n in range(6)}
        print(sorted((futures[f], repr(f.exception() or f.result())) for f in as_completed(futures)))
""",
    "exec replaces": "import os\nprint('before', flush=True)\nos.execvpe('sh', ['sh', '-c', 'echo $V; exit 6'], {'V': 'after', 'PATH': '/bin'})\n",
    "resource limits": """
import resource
for name in ("NOFILE", "CORE", "FSIZE", "NPROC"):
    print(name, resource.getrlimit(getattr(resource, "RLIMIT_" + name)))
resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))
files = []
try:
    while True:
        files.append(open("/dev/null"))
except OSError as error:
    print(error.errno, len(files))
try:
    resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
except ValueError as error:
    print(error)
""",
    "address space limit": """
import resource
resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
try:
    block = bytearray(1 << 30)
except MemoryError:
    print("MemoryError")
print(len(bytearray(10 << 20)))
""",
}
THREADS = {
    "threads with a lock": """
import threading
count, lock = 0, threading.Lock()
def add():
    global count
    for _ in range(2000):
        with lock:
            count += 1
threads = [threading.Thread(target=add) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(count, threading.active_count())
""",
    "thread queue": """
import queue, threading
q, out = queue.Queue(5), []
def consume():
    while (item := q.get()) is not None:
        out.append(item)
threads = [threading.Thread(target=consume) for _ in range(4)]
[t.start() for t in threads]
[q.put(n) for n in range(200)]
[q.put(None) for _ in threads]
[t.join() for t in threads]
print(sorted(out) == list(range(200)))
""",
    "conditions and barriers": """
import threading
barrier, event, log = threading.Barrier(3), threading.Event(), []
def meet(n):
    barrier.wait(); event.wait(5); log.append(n)
threads = [threading.Thread(target=meet, args=(n,)) for n in range(3)]
[t.start() for t in threads]
event.set()
[t.join() for t in threads]
print(sorted(log), barrier.broken, threading.Semaphore(2).acquire(timeout=0.1))
local = threading.local(); local.x = 1
t = threading.Thread(target=lambda: print(hasattr(local, "x"))); t.start(); t.join()
""",
    "timers and daemons": """
import threading, time
t = threading.Timer(0.05, print, ["fired"]); t.start(); t.join()
c = threading.Timer(9, print, ["never"]); c.start(); c.cancel(); c.join()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("main ends")
""",
    "thread exception": "import threading\nt = threading.Thread(target=lambda: 1 / 0, name='T')\nt.start(); t.join()\nprint('goes on')\n",
    "asyncio": """
import asyncio
async def worker(n):
    await asyncio.sleep(0.01 * (3 - n))
    return n
async def main():
    print(await asyncio.gather(*(worker(n) for n in range(4))))
    try:
        async with asyncio.timeout(0.05):
            await asyncio.sleep(9)
    except TimeoutError:
        print("timeout")
    p = await asyncio.create_subprocess_exec("sh", "-c", "read x; echo got $x; exit 5", stdin=-1, stdout=-1)
    print(await p.communicate(b"line\\n"), p.returncode)
    print(await asyncio.to_thread(sum, range(10)))
asyncio.run(main())
""",
}
SIGNALS = {
    "handlers": """
import os, signal
seen = []
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGTERM", "SIGCHLD", "SIGWINCH"):
    signal.signal(getattr(signal, name), lambda number, frame: seen.append(signal.Signals(number).name))
    os.kill(os.getpid(), getattr(signal, name))
print(seen, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
""",
    "masks and pending": """
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: print("delivered"))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)
print([s.name for s in signal.sigpending()])
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
os.kill(os.getpid(), signal.SIGUSR2)
print(signal.sigwait({signal.SIGUSR2}).name, signal.sigtimedwait({signal.SIGUSR2}, 0.01))
""",
    "alarms": """
import signal, time
def ring(*_):
    raise InterruptedError("rang")
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    time.sleep(5)
except InterruptedError as error:
    print(error)
print(signal.getitimer(signal.ITIMER_REAL), signal.alarm(0))
""",
    "child signals": """
import os, signal, subprocess
for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP):
    p = subprocess.Popen(["sleep", "30"])
    p.send_signal(number)
    if number is signal.SIGSTOP:
        pid, status = os.waitpid(p.pid, os.WUNTRACED)
        print("stopped", os.WIFSTOPPED(status), os.WSTOPSIG(status))
        p.send_signal(signal.SIGCONT); p.kill()
    print(p.wait())
""",
    "keyboard interrupt": "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    print('caught')\nos.kill(os.getpid(), signal.SIGINT)\n",
    "sigpipe in python": "import os, signal\nr, w = os.pipe()\nos.close(r)\ntry:\n    os.write(w, b'x')\nexcept BrokenPipeError as error:\n    print(error)\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nos.write(w, b'x')\n",
    "signalfd by wakeup": "import os, signal, socket\na, b = socket.socketpair()\nb.setblocking(False)\nsignal.signal(signal.SIGUSR1, lambda *_: None)\nsignal.set_wakeup_fd(b.fileno())\nos.kill(os.getpid(), signal.SIGUSR1)\nprint(a.recv(1) == bytes([signal.SIGUSR1]))\nsignal.set_wakeup_fd(-1)\n",
}
TIME = {
    "clocks": """
import time
a, b = time.monotonic(), time.time()
time.sleep(0.02)
print(time.monotonic() - a >= 0.02, time.time() - b >= 0.019, time.perf_counter() > 0, time.thread_time() >= 0)
print(time.process_time() < 60, time.time() > 1.7e9, time.clock_gettime(time.CLOCK_BOOTTIME) > 0)
""",
    "zones": """
import os, time
for zone in ("UTC", "EST5EDT,M3.2.0,M11.1.0", "CET-1CEST,M3.5.0,M10.5.0/3", "<+0530>-5:30"):
    os.environ["TZ"] = zone; time.tzset()
    print(time.tzname, time.timezone, time.strftime("%F %T %z", time.localtime(1719835200)))
""",
    "dates": """
from datetime import date, datetime, timedelta, timezone
print(date(2024, 2, 29) + timedelta(366), date.fromisocalendar(2026, 1, 1), (date(2026, 11, 30) - date(2000, 1, 1)).days)
print(datetime.fromisoformat("2026-11-30T12:00:00+02:00").astimezone(timezone.utc), datetime.strptime("3 Mar 21", "%d %b %y"))
""",
    "timer descriptors": """
import select, time
poller = select.poll()
begun = time.monotonic()
print(poller.poll(30), 0.02 < time.monotonic() - begun < 3, select.select([], [], [], 0.01))
""",
}
SOCKETS = {
    "tcp echo": """
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
def serve():
    peer, _ = server.accept()
    while data := peer.recv(4096):
        peer.sendall(data.upper())
    peer.close()
thread = threading.Thread(target=serve); thread.start()
client = socket.create_connection(server.getsockname())
client.sendall(b"hello" * 1000); client.shutdown(socket.SHUT_WR)
found = b"".join(iter(lambda: client.recv(4096), b""))
thread.join()
print(len(found), found[:5], client.getsockname()[0])
""",
    "udp": """
import socket
a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
a.bind(("127.0.0.1", 0)); b.bind(("127.0.0.1", 0))
b.sendto(b"one", a.getsockname()); b.sendto(b"two" * 400, a.getsockname())
print(a.recvfrom(9)[0], len(a.recv(2000)), a.recvfrom.__name__)
a.settimeout(0.05)
try:
    a.recv(1)
except TimeoutError as error:
    print(error)
""",
    "unix sockets": """
import array, os, socket
server = socket.socket(socket.AF_UNIX); server.bind("s"); server.listen()
client = socket.socket(socket.AF_UNIX); client.connect("s")
peer, _ = server.accept()
r, w = os.pipe()
client.sendmsg([b"fd"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [w]))])
data, extra, *_ = peer.recvmsg(10, 100)
os.write(array.array("i", extra[0][2])[0], b"through a passed descriptor")
print(data, os.read(r, 99), len(extra))
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
a.send(b"1"); a.send(b"22"); print(b.recv(9), b.recv(9))
os.unlink("s")
""",
    "selectors": """
import selectors, socket
selector = selectors.DefaultSelector()
pairs = [socket.socketpair() for _ in range(5)]
for n, (a, b) in enumerate(pairs):
    a.setblocking(False); selector.register(a, selectors.EVENT_READ, n)
pairs[1][1].send(b"x"); pairs[3][1].close()
print(type(selector).__name__, sorted((key.data, key.fileobj.recv(9)) for key, _ in selector.select(1)))
""",
    "connection errors": """
import errno, socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]
for call in (lambda: socket.create_connection(("127.0.0.1", port), 1), lambda: socket.socket(socket.AF_UNIX).connect("none"),
             lambda: socket.create_server(("127.0.0.1", port)), lambda: socket.getaddrinfo("no.such.host.invalid", 80)):
    try:
        print(call())
    except OSError as error:
        print(type(error).__name__, errno.errorcode.get(error.errno, "name"))
print(socket.gethostbyname("localhost"), socket.inet_aton("10.1").hex(), socket.has_ipv6)
""",
    "http server": """
import http.server, threading, urllib.request, urllib.error, pathlib
pathlib.Path("page.txt").write_text("served")
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
threading.Thread(target=server.serve_forever, daemon=True).start()
base = f"http://127.0.0.1:{server.server_port}/"
print(urllib.request.urlopen(base + "page.txt").read())
try:
    urllib.request.urlopen(base + "none")
except urllib.error.HTTPError as error:
    print(error.code)
server.shutdown()
""",
    "asyncio streams": """
import asyncio
async def main():
    async def serve(reader, writer):
        while line := await reader.readline():
            writer.write(b"%d\\n" % len(line))
        writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.writelines([b"a\\n", b"bcd\\n"]); writer.write_eof()
    print(await reader.read())
    writer.close(); server.close(); await server.wait_closed()
asyncio.run(main())
""",
}
