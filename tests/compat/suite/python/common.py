"""What the Python programs share: sample records, comparison, and the case that was asked for.

A program is called with a case's name; COMPAT_BOOTSTRAP and COMPAT_NAME say where and under which names. Exit code 0 means
that the case passed."""
import os
import random
import time

BOOTSTRAP = os.environ["COMPAT_BOOTSTRAP"]
NAME = os.environ["COMPAT_NAME"]
START_MS = int(time.time()) * 1000 - 3_600_000  # within retention
GROUP_RECORDS = 4000


def samples(seed=7):
    """(key, value, headers, timestamp): keys, headers, timestamps, a tombstone, empty and null values."""
    out = [
        (b"key", b"value", [("trace", b"\x00\x01\x02"), ("trace", b"again"), ("note", b"")], START_MS),
        (b"gone", None, [], START_MS + 1000),
        (None, b"", [], START_MS + 2000),
        (b"", "umlaut \u00e4\u00f6\u00fc".encode(), [], START_MS + 3000),
    ]
    for i in range(2000):
        out.append((b"k%d" % (i % 17), b"xy" * (i % 50 + seed), [], START_MS + 4000 + i))
    return out


def big():
    return [(b"big", random.Random(1).randbytes(900 << 10), [], START_MS)]


def check(ok, what):
    if not ok:
        raise AssertionError(what)


def same(i, got, want):
    """Compares (offset, key, value, headers, timestamp) with the i-th sample."""
    check(got[0] == i, f"record {i} has offset {got[0]}")
    for what, a, b in zip(("key", "value", "headers", "timestamp"), got[1:], want):
        if what == "headers":
            a = [(k, v) for k, v in (a or [])]
        check(a == b, f"{what} of {i}: {a!r:.200}, want {b!r:.200}")
