"""A consumer on a bare blocking socket: the yardstick for the bus library. It does the least that can be done.

It pulls in batches as large as the library's, cuts out every body and acknowledges every message.
"""

from __future__ import annotations

import socket

BATCH = 256


class RawConsumer:
    """One connection that pulls from one consumer."""

    def __init__(self, port: int, stream: str, consumer: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}".encode()
        self._socket.sendall(
            b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB raw.in 1\r\nPING\r\n'
        )
        while b"PONG" not in self._socket.recv(65536):
            pass

    def _pull(self) -> bytes:
        request = b'{"batch":%d,"expires":5000000000,"max_bytes":8388608}' % BATCH
        return b"PUB %b raw.in %d\r\n%b\r\n" % (self._next, len(request), request)

    def consume(self, count: int) -> int:
        """Take and acknowledge `count` messages, a multiple of the batch; the bytes in their bodies."""
        self._socket.sendall(self._pull() * 2)
        done, asked, buffer, taken = 0, 2 * BATCH, b"", 0
        while done < count:
            buffer += self._socket.recv(262144)
            answers, at = [], 0
            while (end := buffer.find(b"\r\n", at)) >= 0:
                line = buffer[at:end]
                if line == b"PING":
                    answers.append(b"PONG\r\n")
                    at = end + 2
                    continue
                words = line.split()
                stop = end + 2 + int(words[-1]) + 2
                if stop > len(buffer):
                    break
                at = stop
                if not words[3].startswith(b"$JS.ACK."):  # a status: a pull that has ended
                    continue
                taken += len(buffer[end + 2 + int(words[-2]) : stop - 2])
                answers.append(b"PUB %b 4\r\n+ACK\r\n" % words[3])
                done += 1
                if asked - done <= BATCH and asked < count:
                    answers.append(self._pull())
                    asked += BATCH
            buffer = buffer[at:]
            if answers:
                self._socket.sendall(b"".join(answers))
        return taken

    def close(self) -> None:
        self._socket.close()
