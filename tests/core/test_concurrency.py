"""Threads, tasks, processes: whose choice is seen where, first use by many at once, no lock while plugins run."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import tilegym
from tilegym.ops import softmax

X = torch.ones(2, 3)
NAME = "return 'BACKEND'"
DEADLOCK = 60  # seconds until a test that hangs fails


@pytest.fixture
def two(site):
    site.backend("a", "priority=2", {"softmax": NAME})
    site.backend("b", "priority=1", {"softmax": NAME})
    return site


def in_thread(function, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result(DEADLOCK)


def test_a_scope_is_not_seen_in_another_thread_and_set_backend_is(two):
    with tilegym.use_backend("b"):
        assert (softmax(X), in_thread(softmax, X)) == ("b", "a")
        assert in_thread(tilegym.get_current_backend) == "auto"
    in_thread(tilegym.set_backend, "b")
    assert (softmax(X), in_thread(softmax, X)) == ("b", "b")


def test_scopes_of_many_threads_do_not_mix(two):
    meet = threading.Barrier(8, timeout=DEADLOCK)
    shared = {name: tilegym.use_backend(name) for name in "ab"}

    def work(name):
        found = []
        for _ in range(50):
            meet.wait()
            with shared[name]:
                meet.wait()
                found.append(softmax(X))
        return set(found)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, "abababab")) == [{"a"}, {"b"}] * 4


@pytest.fixture
def compiled():
    """A compiled call of softmax, on scripts' backends `one` and `two`, which give that number."""
    tilegym.register_impl("softmax", "one", composite=True)(lambda x: torch.full_like(x, 1))
    tilegym.register_impl("softmax", "two", composite=True)(lambda x: torch.full_like(x, 2))
    function = torch.compile(softmax, backend="eager", fullgraph=True)
    yield lambda: int(function(X)[0, 0])
    torch.compiler.reset()


def test_compiled_code_sees_the_scope_of_its_task(compiled):
    async def work(name):
        with tilegym.use_backend(name):
            return [(compiled(), await asyncio.sleep(0))[0] for _ in range(3)]

    async def both():
        return await asyncio.gather(work("one"), work("two"))

    assert asyncio.run(both()) == [[1, 1, 1], [2, 2, 2]]


def test_compiled_code_sees_the_scope_of_its_context(compiled):
    async def in_scope():
        with tilegym.use_backend("two"):
            return await asyncio.to_thread(compiled)  # which takes the context along

    with tilegym.use_backend("one"):
        assert (compiled(), asyncio.run(in_scope())) == (1, 2)


def test_scopes_of_asyncio_tasks_do_not_mix(two):
    async def work(name, turns):
        for _ in range(turns):
            with tilegym.use_backend(name):
                await asyncio.sleep(0)
                assert softmax(X) == name
                assert await asyncio.create_task(inner()) == name  # a task begins with its maker's choice
            await asyncio.sleep(0)
            assert softmax(X) == "a"

    async def inner():
        await asyncio.sleep(0)
        return softmax(X)

    async def both():
        await asyncio.gather(work("a", 20), work("b", 20))

    asyncio.run(both())


def test_changes_while_others_call_are_seen_by_the_next_call(two):
    stop, wrong = threading.Event(), []

    def call():
        while not stop.is_set():
            if softmax(X) not in ("a", "b", "new"):
                wrong.append("another result")

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    try:
        for turn in range(60):
            name = "ab"[turn % 2]
            tilegym.set_backend(name)
            assert softmax(X) == name
        tilegym.register_impl("softmax", name)(lambda x: "new")
        assert softmax(X) == "new"
    finally:
        stop.set()
        for caller in callers:
            caller.join(DEADLOCK)
    assert wrong == []


FIRST_USE = """
import pathlib, sys, threading, torch, tilegym
start = threading.Barrier(32)
results, errors = [], []

def work():
    x = torch.arange(3.0)
    start.wait()
    try:
        results.append(tilegym.ops.softmax(x))
    except BaseException as error:
        errors.append(error)

threads = [threading.Thread(target=work) for _ in range(32)]
for t in threads: t.start()
for t in threads: t.join()
assert errors == [], errors
expected = torch.softmax(torch.arange(3.0), 0)
print(sum(torch.equal(result, expected) for result in results), pathlib.Path(sys.argv[1]).read_text().count("imported"))
"""


def test_first_use_from_32_threads_imports_once_and_is_right(site):
    mark = site.path / "mark"
    said = f"import time\nwith open({str(mark)!r}, 'a') as mark: mark.write('imported ')\ntime.sleep(0.2)\n"
    site.backend("only", "", {"softmax": "return torch.softmax(x, -1)"}, declarations=said)
    file = site.path / "only_dist" / "ops" / "softmax.py"
    file.write_text(said + file.read_text())
    environment = os.environ | {"PYTHONPATH": str(site.path), "TILEGYM_PLUGINS": "only-dist"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FIRST_USE, str(mark)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * DEADLOCK,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("32 2\n", "")  # the plugin module once, the implementation once


def worker(queue, path):
    sys.path.insert(0, path)
    before = tilegym.get_current_backend()
    with tilegym.use_backend("a"):
        queue.put((before, softmax(X), tilegym.get_available_backends()))


@pytest.mark.parametrize(("method", "inherited"), [("fork", "b"), ("spawn", "auto")])
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_worker_processes(two, method, inherited):
    tilegym.set_backend("b")
    assert softmax(X) == "b"
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=worker, args=(queue, str(two.path)))
    process.start()
    try:
        assert queue.get(timeout=2 * DEADLOCK) == (inherited, "a", ["a", "b"])
    finally:
        process.join(DEADLOCK)
    assert process.exitcode == 0


# Plugin code that starts a thread, which calls tilegym, and waits for it: with a lock held this hangs.

IN_THREAD = """
import threading

def ask():
    import torch, tilegym
    results.append(tilegym.ops.softmax(torch.ones(2, 3), backend="a"))

results = []

def start(*args):
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "tilegym held a lock while plugin code ran"
"""


@pytest.mark.parametrize("where", ["probe", "setup", "supports", "implementation", "file"])
def test_no_lock_is_held_while_plugin_code_runs(two, where):
    fields = {"probe": "probe=start", "setup": "setup=start"}.get(where, "")
    two.backend("busy", fields, {"softmax": NAME}, declarations=IN_THREAD)
    import busy_dist.plugin

    if where == "supports":
        tilegym.register_impl("softmax", "busy", supports=lambda x: busy_dist.plugin.start())(lambda x: "busy")
    elif where == "implementation":
        tilegym.register_impl("softmax", "busy")(lambda x: busy_dist.plugin.start() or "busy")
    elif where == "file":
        file = two.path / "busy_dist" / "ops" / "softmax.py"
        file.write_text("from busy_dist.plugin import start\nstart()\n" + file.read_text())
    assert softmax(X, backend="busy") == "busy"
    assert busy_dist.plugin.results == ["a"]


def test_a_listener_may_wait_for_a_thread_that_calls_an_op(two):
    hook = "\n@hookimpl\ndef tilegym_on_dispatch(event):\n    if event.backend == 'b': start()\n"
    two.install("ear-dist", IN_THREAD + hook)
    with tilegym.trace() as calls:
        assert softmax(X, backend="b") == "b"
    import ear_dist.plugin

    assert ear_dist.plugin.results == ["a"]
    assert [call.backend for call in calls] == ["b"]


def test_threads_that_load_plugins_at_once_agree(site):
    hook = "@hookimpl\ndef tilegym_backends():\n    return [Backend(name='slow')]\n"
    site.install("slow-dist", "import time\ntime.sleep(0.1)\n" + hook)
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(tilegym.get_available_backends) for _ in range(8)]
        assert [one.result(DEADLOCK) for one in found] == [["slow"]] * 8


def test_backward_in_autograds_threads_runs_what_forward_chose(site):
    site.backend("plain", "composite=True", {"softmax": "return torch.softmax(x, -1)"})
    site.backend("other", "composite=True, priority=5", {"softmax": "raise AssertionError"})
    x = torch.arange(3.0, requires_grad=True)
    with tilegym.use_backend("plain"):
        y = softmax(x)
    in_thread(y[0].backward)
    expected = torch.autograd.grad(torch.softmax(x, -1)[0], x)[0]
    assert torch.equal(x.grad, expected)
