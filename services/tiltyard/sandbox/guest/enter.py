"""The smallest program that becomes another user and then its arguments: `enter`, put into the image beside the agent.

    argv[0]  user id, in decimal; groups become that one alone
    argv[1]  path of the program; the rest is its argv

It is 270 bytes of machine code without a library, so that gVisor starts it in under a millisecond, where `setpriv`
takes seven. It begins with all signals blocked and lets them through: see `spawn`. Invariants: user 0 is refused,
every step must succeed, and any failure ends with status 127. Only for x86-64; elsewhere it can't be used, and the
agent forks. Made on the host; the agent doesn't import this.
"""

import struct

CODE = (
    ("48 8b 74 24 08", "mov rsi, [rsp+8]       ; argv[0]"),
    ("31 db", "xor ebx, ebx"),
    ("0f b6 06", "digit: movzx eax, byte [rsi]"),
    ("83 e8 30", "sub eax, '0'"),
    ("83 f8 09", "cmp eax, 9"),
    ("77 0a", "ja known"),
    ("6b db 0a", "imul ebx, ebx, 10"),
    ("01 c3", "add ebx, eax"),
    ("48 ff c6", "inc rsi"),
    ("eb eb", "jmp digit"),
    ("85 db", "known: test ebx, ebx"),
    ("74 63", "jz fail                ; never user 0"),
    ("31 ff", "xor edi, edi"),
    ("31 f6", "xor esi, esi"),
    ("b8 74 00 00 00", "mov eax, 116           ; setgroups(0, NULL)"),
    ("0f 05", "syscall"),
    ("85 c0", "test eax, eax"),
    ("75 54", "jnz fail"),
    ("89 df", "mov edi, ebx"),
    ("89 de", "mov esi, ebx"),
    ("89 da", "mov edx, ebx"),
    ("b8 77 00 00 00", "mov eax, 119           ; setresgid(id, id, id)"),
    ("0f 05", "syscall"),
    ("85 c0", "test eax, eax"),
    ("75 43", "jnz fail"),
    ("b8 75 00 00 00", "mov eax, 117           ; setresuid(id, id, id)"),
    ("0f 05", "syscall"),
    ("85 c0", "test eax, eax"),
    ("75 38", "jnz fail"),
    ("6a 00", "push 0                 ; no signal"),
    ("48 89 e6", "mov rsi, rsp"),
    ("31 d2", "xor edx, edx"),
    ("bf 02 00 00 00", "mov edi, 2             ; SIG_SETMASK"),
    ("41 ba 08 00 00 00", "mov r10d, 8"),
    ("b8 0e 00 00 00", "mov eax, 14            ; rt_sigprocmask(SIG_SETMASK, none, NULL, 8)"),
    ("0f 05", "syscall"),
    ("59", "pop rcx"),
    ("85 c0", "test eax, eax"),
    ("75 1a", "jnz fail"),
    ("48 8b 04 24", "mov rax, [rsp]         ; argc"),
    ("48 8b 7c 24 10", "mov rdi, [rsp+16]      ; argv[1]"),
    ("48 8d 74 24 18", "lea rsi, [rsp+24]      ; argv + 2"),
    ("48 8d 54 c4 10", "lea rdx, [rsp+rax*8+16] ; the environment"),
    ("b8 3b 00 00 00", "mov eax, 59            ; execve"),
    ("0f 05", "syscall"),
    ("bf 7f 00 00 00", "fail: mov edi, 127"),
    ("b8 3c 00 00 00", "mov eax, 60            ; exit"),
    ("0f 05", "syscall"),
)
BASE = 0x400000
HEADERS = 64 + 56
"""An ELF header and one program header, bytes."""


def program() -> bytes:
    """The executable: one segment, loaded at `BASE`, read and executed, never written."""
    code = bytes.fromhex(" ".join(part for part, _ in CODE))
    size = HEADERS + len(code)
    identity = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)  # 64 bits, little-endian, version 1
    header = struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, BASE + HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 0x1000)
    return identity + header + segment + code
