"""Log files of a web server and of services."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from .work import NAMES, Templates, Work, file, lines

_PATHS = ("/", "/login", "/cart", "/search", "/api/items", "/api/users", "/about")
_SERVICES = ("mail", "web", "store", "queue")


class Request:
    """One line of an access log."""

    def __init__(self, rng: random.Random) -> None:
        self.ip = f"10.0.{rng.randint(0, 1)}.{rng.randint(1, 6)}"
        self.hour, self.path = rng.randint(6, 11), rng.choice(_PATHS)
        self.status = rng.choice((200, 200, 200, 301, 404, 404, 500, 503))
        self.size, self.ms = rng.randint(100, 9000), rng.randint(5, 900)
        self.minute = rng.randint(0, 59)

    def __str__(self) -> str:
        clock = f"12/Mar/2026:{self.hour:02d}:{self.minute:02d}:00 +0000"
        return f'{self.ip} - - [{clock}] "GET {self.path} HTTP/1.1" {self.status} {self.size} {self.ms}ms'


def _requests(rng: random.Random) -> list[Request]:
    return [Request(rng) for _ in range(rng.randint(20, 40))]


_ABOUT = "access.log has lines like '10.0.0.1 - - [12/Mar/2026:08:15:00 +0000] \"GET /cart HTTP/1.1\" 200 512 37ms' (address, time, request, status, bytes, duration)"


def _status(rng: random.Random) -> Work:
    found = _requests(rng)
    status = rng.choice(found).status
    return Work(f"{_ABOUT}; write the number of requests with status {status} into count.txt",
                [file("count.txt", str(sum(one.status == status for one in found)), "number")],
                f"awk '$9 == {status}' access.log | wc -l > count.txt", {"access.log": lines(found)})  # fmt: skip


def _path(rng: random.Random) -> Work:
    found = _requests(rng)
    path = rng.choice(found).path
    return Work(f"{_ABOUT}; write the different addresses that asked for exactly {path} into ips.txt, one a line, in any order",
                [file("ips.txt", lines({one.ip: 0 for one in found if one.path == path}), "set")],
                f"awk '$7 == \"{path}\" {{ print $1 }}' access.log | sort -u > ips.txt", {"access.log": lines(found)})  # fmt: skip


def _level(rng: random.Random) -> Work:
    rows = [
        f"2026-03-0{rng.randint(1, 5)} {rng.choice(_SERVICES)} {rng.choice(('INFO', 'WARN', 'ERROR'))} {rng.choice(NAMES)}"
        for _ in range(25)
    ]
    service = rng.choice(rows).split()[1]
    return Work(f"service.log has lines 'date service LEVEL user'; write all ERROR lines of the service {service} into errors.log, unchanged and in their order",
                [file("errors.log", lines(r for r in rows if r.split()[1:3] == [service, "ERROR"]))],
                f"awk '$2 == \"{service}\" && $3 == \"ERROR\"' service.log > errors.log", {"service.log": lines(rows)})  # fmt: skip


def _top(rng: random.Random) -> Work:
    found, n = _requests(rng), rng.randint(2, 4)
    ranked = sorted(Counter(one.ip for one in found).items(), key=lambda pair: (-pair[1], pair[0]))[:n]
    return Work(f"{_ABOUT}; write the {n} addresses with the most requests into top.txt as 'count address', the most first, equal counts in alphabetical order of the address",
                [file("top.txt", lines(f"{c} {ip}" for ip, c in ranked))],
                f"awk '{{ print $1 }}' access.log | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr -k2 | head -n {n} | awk '{{ print $1, $2 }}' > top.txt",
                {"access.log": lines(found)})  # fmt: skip


def _hours(rng: random.Random) -> Work:
    found = _requests(rng)
    counts = sorted(Counter(one.hour for one in found if one.status >= 400).items())
    return Work(f"{_ABOUT}; write 'hour count' (hour with two digits) for each hour with requests of status 400 or more into hours.txt, by hour",
                [file("hours.txt", lines(f"{h:02d} {c}" for h, c in counts))],
                "awk '$9 >= 400 { split($4, t, \":\"); c[t[2]]++ } END { for (h in c) print h, c[h] }' access.log | LC_ALL=C sort > hours.txt",
                {"access.log": lines(found)})  # fmt: skip


def _bytes(rng: random.Random) -> Work:
    found = _requests(rng)
    totals: Counter[str] = Counter()
    for one in found:
        totals[one.path] += one.size
    return Work(f"{_ABOUT}; write 'path bytes' with the sum of bytes of each path into bytes.txt, sorted by path",
                [file("bytes.txt", lines(f"{p} {t}" for p, t in sorted(totals.items())))],
                "awk '{ b[$7] += $10 } END { for (p in b) print p, b[p] }' access.log | LC_ALL=C sort > bytes.txt",
                {"access.log": lines(found)})  # fmt: skip


def _slow(rng: random.Random) -> Work:
    found = _requests(rng)
    slowest: dict[str, int] = {}
    for one in found:
        slowest[one.path] = max(slowest.get(one.path, 0), one.ms)
    limit = rng.randint(200, 600)
    rows = [f"{path} {ms}" for path, ms in sorted(slowest.items()) if ms > limit]
    return Work(f"{_ABOUT}; for each path whose slowest request took more than {limit} ms write 'path ms' (the slowest, without the unit) into slow.txt, sorted by path; an empty file if there is none",
                [file("slow.txt", lines(rows))],
                f"awk '{{ m = $11 + 0; if (m > s[$7]) s[$7] = m }} END {{ for (p in s) if (s[p] > {limit}) print p, s[p] }}' access.log | LC_ALL=C sort > slow.txt",
                {"access.log": lines(found)})  # fmt: skip


def _failing(rng: random.Random) -> Work:
    found, least = _requests(rng), rng.randint(2, 3)
    bad, good = Counter(o.ip for o in found if o.status >= 400), {o.ip for o in found if o.path == "/login"}
    rows = sorted(ip for ip, count in bad.items() if count >= least and ip in good)
    return Work(f"{_ABOUT}; write the addresses that have at least {least} requests with status 400 or more and that also asked for /login (with any status) into suspects.txt, sorted; an empty file if there is none",
                [file("suspects.txt", lines(rows))],
                f"awk '$9 >= 400 {{ b[$1]++ }} $7 == \"/login\" {{ l[$1] }} END {{ for (i in b) if (b[i] >= {least} && i in l) print i }}' access.log | LC_ALL=C sort > suspects.txt",
                {"access.log": lines(found)})  # fmt: skip


def _sessions(rng: random.Random) -> Work:
    clock, rows, open_ = 0, [], dict[str, int]()
    spent: defaultdict[str, int] = defaultdict(int)
    for _ in range(24):
        clock += rng.randint(1, 40)
        name = rng.choice(NAMES[:4])
        if name in open_:
            spent[name] += clock - open_.pop(name)
            rows.append(f"{clock} {name} logout")
        else:
            open_[name] = clock
            rows.append(f"{clock} {name} login")
    return Work("sessions.log has lines 'second user login' and 'second user logout'; write 'user seconds' with the time between each login and the next logout, added up, into spent.txt, sorted by user; a login without logout doesn't count, and users without any pair are left out",
                [file("spent.txt", lines(f"{n} {s}" for n, s in sorted(spent.items())))],
                "awk '$3 == \"login\" { i[$2] = $1 } $3 == \"logout\" && $2 in i { s[$2] += $1 - i[$2]; delete i[$2] } END { for (n in s) print n, s[n] }' sessions.log | LC_ALL=C sort > spent.txt",
                {"sessions.log": lines(rows)})  # fmt: skip


TEMPLATES: Templates = {
    "easy": {"status": _status, "path": _path, "level": _level},
    "medium": {"top": _top, "hours": _hours, "bytes": _bytes},
    "hard": {"slow": _slow, "failing": _failing, "sessions": _sessions},
}
