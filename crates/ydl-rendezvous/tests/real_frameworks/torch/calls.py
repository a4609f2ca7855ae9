"""Compares the results of every call of torch's client with torch's server and with the servers in STORES."""

import datetime
import os
import sys
import threading

import torch.distributed as dist

SECOND = datetime.timedelta(seconds=1)


def client(port):
    wait = 60 * SECOND
    return dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False, timeout=wait)


def outcome(call):
    """Returns the result of a call, or the name of its exception."""
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def later(call):
    timer = threading.Timer(0.3, call)
    timer.start()
    return timer


def run_calls(one, other):
    """Runs all calls. A set has no response, so a call with a response follows where another client depends on it."""
    results = []

    def note(name, *values):
        results.append((name, values))

    one.set("a", "1")
    note("get", one.get("a"))
    note("add", one.add("n", 5), other.add("n", -7), one.get("n"), one.add("n", 0))
    note("compare", one.compare_set("c", "", "v1"), other.compare_set("c", "v1", "v2"))
    note("compare", one.compare_set("c", "zz", "v3"), one.compare_set("absent", "x", "y"))
    note("check", one.check(["a", "c"]), one.check(["a", "absent"]), one.check([]))
    note("count", one.num_keys())
    note("delete", one.delete_key("a"), one.delete_key("a"))
    note("wait times out", outcome(lambda: one.wait(["absent", "too"], SECOND)), one.add("n", 1))
    one.append("ap", "x")
    one.num_keys()
    other.append("ap", "y")
    note("append", other.get("ap"))
    one.multi_set(["m1", "m2"], ["1", "22"])
    note("many", one.multi_get(["m1", "m2"]))
    one.set("empty", "")
    note("empty", one.get("empty"))
    large = "x" * 700_000
    one.set("large", large)
    note("large", one.get("large") == large.encode())
    other.set_timeout(SECOND)
    note("get times out", outcome(lambda: other.get("absent")), other.add("n", 1))
    other.set_timeout(60 * SECOND)

    one.queue_push("q", "1")
    one.queue_push("q", "2")
    note("queue", one.queue_len("q"), other.queue_pop("q"), other.queue_pop("q"), one.queue_len("q"))
    note("empty queue", outcome(lambda: one.queue_pop("q", False)))
    pushed = later(lambda: other.queue_push("q", "late"))
    note("pop waits", one.queue_pop("q"))
    pushed.join()

    note("list", sorted(one.list_keys()))
    at_barrier = later(lambda: other.barrier("barrier", 2, 60 * SECOND))
    note("barrier", one.barrier("barrier", 2, 60 * SECOND), one.get("barrier"))
    at_barrier.join()
    for key, call in [
        ("set", lambda: other.set("set", "v")),
        ("compared", lambda: other.compare_set("compared", "", "v")),
        ("added", lambda: other.add("added", 1)),
        ("appended", lambda: other.append("appended", "v")),
    ]:
        woken = later(call)
        note("wait", key, one.wait([key, "m1"], 60 * SECOND), one.get(key))
        woken.join()
    note("clone", one.clone().get("set"))
    prefix = dist.PrefixStore("p", one)
    prefix.set("k", "v")
    note("prefix", prefix.get("k"), other.get("p/k"))
    note("add to text", outcome(lambda: other.add("set", 1)))
    note("other links stay open", one.get("set"))
    return results


own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
expected = run_calls(client(own.port), client(own.port))
actual = run_calls(*(client(int(port)) for port in os.environ["STORES"].split(",")))
for one, other in zip(expected, actual):
    if one != other:
        print(f"torch: {one}, store: {other}")
print(f"{len(expected)} compared")
sys.exit(expected != actual)
