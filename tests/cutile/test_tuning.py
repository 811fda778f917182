"""Whose configuration answers: the running search's, the user's, the wheel's, the heuristic's; not a broken one."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import asdict, dataclass, replace

import cuda.tile as ct
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tilegym import cache, config
from tilegym.errors import EnvironmentWarning, RecordError, RegistrationError
from tilegym_cutile import plugin, tables, tuning
from tilegym_cutile.runtime import Hints, Target
from tilegym_cutile.tables import Table
from tilegym_cutile.tuning import forced, keep, observed, tuned

VERSIONS = {"cuda-tile": "1.7.0", "tileiras": None}
DEVICE = Target(name="NVIDIA Test 1", arch="sm_90", capability=(9, 0), num_sms=4, shared_memory=1024)
OTHER = replace(DEVICE, name="NVIDIA Test 2")


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    rows: int
    swap: bool = False
    order: str = "rows"
    tile: tuple[int, int] = (1, 2)
    hints: Hints | None = None


def make(name="of_a_test"):
    """A tuned heuristic whose own answer is as many rows as m, and how often it was asked."""
    asked = []

    def space(n):
        yield from (Config(rows=rows) for rows in (n, 1, n, 2))

    @tuned(name, space=space, bucketed=("m",))
    def heuristic(m: int, n: int, target: Target, *, fast: bool = False) -> Config:
        """Words."""
        asked.append((m, n))
        return Config(rows=m)

    return heuristic, asked


def question(m, n, target=DEVICE):
    """What a call of the last `make()` asks."""
    return tuning._functions["of_a_test"].question(m, n, target)


@pytest.fixture(autouse=True)
def _own_disk(tmp_path, monkeypatch):
    """Tables and entries in folders of this test's own."""
    monkeypatch.setenv("TILEGYM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tables, "FOLDER", tmp_path / "tables")
    monkeypatch.setattr(tables, "versions", lambda: VERSIONS)
    monkeypatch.setattr(tuning, "_functions", dict(tuning._functions))
    config.reload()
    tuning.reread()
    yield
    tuning.reread()


def ship(rows, key="m=128 n=8 fast=False", **changes):
    """Put an entry into the wheel's table of DEVICE."""
    entries = {key: asdict(Config(rows=rows)) if isinstance(rows, int) else rows}
    table = Table(device=DEVICE.name, arch=DEVICE.arch, versions=tables.versions(), functions={"of_a_test": entries})
    tables.write(replace(table, **changes), tables.FOLDER / "nvidia-test-1.json")
    tuning.reread()


def test_an_answer_is_computed_once():
    heuristic, asked = make()
    assert [heuristic(m, 8, DEVICE) for m in (5, 5, 6)] == [Config(rows=5), Config(rows=5), Config(rows=6)]
    assert asked == [(5, 8), (6, 8)]
    assert (heuristic.__name__, heuristic.__doc__) == ("heuristic", "Words.")
    with pytest.raises(TypeError, match="missing"):
        heuristic(5)


def test_the_order_of_answers():
    heuristic, _ = make()
    assert heuristic(128, 8, DEVICE) == Config(rows=128)
    ship(3)
    assert heuristic(128, 8, DEVICE) == Config(rows=3)
    best = Config(rows=4, swap=True, order="columns", tile=(7, 9), hints=Hints(occupancy=2))
    keep(question(128, 8), best)
    assert heuristic(128, 8, DEVICE) == best
    with forced(question(128, 8), Config(rows=5)):
        assert heuristic(128, 8, DEVICE) == Config(rows=5)
        assert heuristic(128, 16, DEVICE) == Config(rows=128)
    assert heuristic(128, 8, DEVICE) == best
    assert question(128, 8).plain == Config(rows=128)


def test_entries_are_told_apart_by_device_arguments_and_bucket():
    heuristic, _ = make()
    keep(question(128, 8), Config(rows=1))
    assert [heuristic(m, 8, DEVICE).rows for m in (64, 65, 128, 129)] == [64, 1, 1, 129]
    assert heuristic(128, 9, DEVICE).rows == 128
    assert heuristic(128, 8, DEVICE, fast=True).rows == 128
    for target in (OTHER, replace(DEVICE, arch="sm_100")):
        assert heuristic(128, 8, target).rows == 128


def test_the_space_has_each_configuration_once_and_not_the_heuristics_own():
    make()
    assert question(2, 8).space == [Config(rows=8), Config(rows=1)]


def test_questions_are_observed_each_once():
    heuristic, _ = make()
    heuristic(128, 8, DEVICE)
    with observed() as seen:
        for m, n in ((128, 8), (120, 8), (1, 8)):
            heuristic(m, n, DEVICE)
    heuristic(7, 7, DEVICE)
    assert [one.key for one in seen] == ["m=128 n=8 fast=False", "m=1 n=8 fast=False"]


@ct.kernel
def named_kernel(x) -> None:
    pass


def test_a_key_is_readable():
    @tuned("of_another_test", space=lambda: ())
    def heuristic(kernel, dtype, shape, x, mode, target):
        return Config(rows=1)

    with observed() as seen:
        heuristic(named_kernel, torch.bfloat16, (3, True), 0.5, None, DEVICE)
    assert [one.key for one in seen] == ["kernel=named_kernel dtype=bfloat16 shape=(3,True) x=0.5 mode=None"]
    with pytest.raises(TypeError, match=r"was given <object .*expected numbers, strings, dtypes, kernels"):
        heuristic(named_kernel, object(), (), 0.5, None, DEVICE)


def test_what_is_computed_from_an_answer_follows_it():
    heuristic, _ = make()

    @tuning.cached
    def grid(m, n):
        return -(-m // heuristic(m, n, DEVICE).rows)

    assert grid(128, 8) == 1
    with forced(question(128, 8), Config(rows=2)):
        assert grid(128, 8) == 64
    assert grid(128, 8) == 1


@pytest.mark.parametrize(
    ("function", "bucketed", "stranger"),
    [(lambda m: m, (), "target"), (lambda m, target: m, ("n",), "n"), (lambda n, target: n, (), "m")],
)
def test_a_parameter_that_is_not_there_is_told(function, bucketed, stranger):
    with pytest.raises(RegistrationError, match=rf"@tuned\('x'\): <lambda> has no parameter '{stranger}'"):
        tuned("x", space=lambda m: (), bucketed=bucketed)(function)


def test_two_modules_cannot_share_a_name():
    heuristic, _ = make()
    heuristic.__wrapped__.__module__ = "elsewhere"
    with pytest.raises(
        RegistrationError, match=r"two modules use this name, elsewhere and .*test_tuning; choose another"
    ):
        make()


def test_an_entry_from_before_there_was_a_field_has_its_default():
    heuristic, _ = make()
    ship({"rows": 3})
    assert heuristic(128, 8, DEVICE) == Config(rows=3)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        asdict(Config(rows=3)) | {"more": 1},
        asdict(Config(rows=3)) | {"rows": "3"},
        asdict(Config(rows=3)) | {"hints": {"occupancy": "2"}},
        [1],
        None,
    ],
)
def test_fields_that_no_longer_fit_are_a_miss(fields):
    heuristic, _ = make()
    ship(fields)
    assert heuristic(128, 8, DEVICE) == Config(rows=128)
    ship(2)
    cache.put("tuning-of_a_test", tables._place(DEVICE) + "m=128 n=8 fast=False", fields)
    tuning.reread()
    assert heuristic(128, 8, DEVICE) == Config(rows=2)


@pytest.mark.parametrize(
    "changes",
    [{"device": "NVIDIA Test-1"}, {"arch": "sm_100"}, {"versions": {"cuda-tile": "1.7.1", "tileiras": None}}],
)
def test_a_table_of_another_device_or_compiler_is_a_miss(changes):
    heuristic, _ = make()
    ship(3, **changes)
    assert heuristic(128, 8, DEVICE) == Config(rows=128)


@pytest.mark.parametrize(
    ("name", "other"), [("versions", lambda: {"cuda-tile": "1.7.0", "tileiras": "13.4"}), ("__version__", "9.9")]
)
def test_the_users_entries_are_of_one_compiler_and_tilegym(name, other, monkeypatch):
    heuristic, _ = make()
    keep(question(128, 8), Config(rows=1))
    monkeypatch.setattr(tables, name, other)
    tuning.reread()
    assert heuristic(128, 8, DEVICE) == Config(rows=128)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"{}", b"[]"])
def test_a_broken_table_is_told_once_and_not_used(content, caplog):
    heuristic, _ = make()
    ship(3)
    file = tables.FOLDER / "nvidia-test-1.json"
    file.write_bytes(content)
    tuning.reread()
    assert [heuristic(128, n, DEVICE) for n in (8, 9)] == [Config(rows=128)] * 2
    (record,) = caplog.records
    assert record.message.startswith(f"the table of tuned configurations is not used: {file}")


def test_a_broken_entry_of_the_user_is_a_miss(tmp_path):
    heuristic, _ = make()
    for n in (8, 9):
        keep(question(128, n), Config(rows=1))
    next((tmp_path / "cache").iterdir()).write_text('{"key": ')
    tuning.reread()
    assert sorted(heuristic(128, n, DEVICE).rows for n in (8, 9)) == [1, 128]


def test_a_cache_that_cannot_be_written_is_told_and_the_heuristic_answers(tmp_path):
    heuristic, _ = make()
    (tmp_path / "cache").write_text("a file stands in the way")
    with pytest.warns(EnvironmentWarning, match="nothing is kept in cache directory"):
        keep(question(128, 8), Config(rows=1))
    assert heuristic(128, 8, DEVICE) == Config(rows=128)


def test_doctor_is_told_what_there_is(tmp_path):
    assert tables.facts() == {"tuned in the wheel": None, "tuned by you": None}
    make()
    ship(3)
    for n in (8, 9):
        keep(question(128, n), Config(rows=1))
    assert tables.facts() == {
        "tuned in the wheel": "NVIDIA Test 1 (cuda-tile 1.7.0, tileiras None)",
        "tuned by you": f"2 configurations in {tmp_path / 'cache'}",
    }
    assert plugin.facts()["tuned by you"] is not None


def test_the_disk_is_read_once_for_a_function_and_device(monkeypatch):
    heuristic, _ = make()
    ship(3)
    reads = []
    entries, read = cache.entries, tables.read
    monkeypatch.setattr(cache, "entries", lambda kind: reads.append(kind) or entries(kind))
    monkeypatch.setattr(tables, "read", lambda path: reads.append(path.name) or read(path))
    for m in (127, 128, 5):
        for target in (DEVICE, OTHER):
            heuristic(m, 8, target)
    assert reads == ["tuning-of_a_test", "nvidia-test-1.json", "tuning-of_a_test"]


def test_threads_get_one_answer():
    heuristic, _ = make()
    ship(3)
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.extend(heuristic(m, 8, DEVICE).rows for m in range(113, 129)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [3] * 128


KEEPER = f"""
import sys
from dataclasses import make_dataclass
from types import SimpleNamespace
from tilegym_cutile import tables
tables.versions = lambda: {VERSIONS}
device = SimpleNamespace(name={DEVICE.name!r}, arch={DEVICE.arch!r})
Config = make_dataclass("Config", ["rows", "swap", "order", "tile", "hints"])
mine = int(sys.argv[1])
for n in range(20):
    for at, rows in ((n, 1), (100 * mine + n, mine)):
        tables.put("of_a_test", device, f"m=128 n={{at}} fast=False", Config(rows, False, "rows", (1, 2), None))
"""


def test_processes_that_tune_at_once_lose_nothing():
    heuristic, _ = make()
    keepers = [subprocess.Popen([sys.executable, "-W", "error", "-c", KEEPER, number]) for number in "34"]
    assert [keeper.wait() for keeper in keepers] == [0, 0]
    tuning.reread()
    found = {n: heuristic(128, n, DEVICE).rows for part in (0, 300, 400) for n in range(part, part + 20)}
    assert found == {n: max(1, n // 100) for n in found}


ARGUMENTS = st.fixed_dictionaries(
    {"m": st.sampled_from([1, 64, 128]), "n": st.integers(0, 2**40), "fast": st.booleans() | st.none()}
)


@settings(deadline=None)
@given(one=ARGUMENTS, other=ARGUMENTS)
def test_keys_differ_where_arguments_do(one, other):
    make()
    keys = [tuning._functions["of_a_test"].question(target=DEVICE, **arguments).key for arguments in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


CONFIGS = st.builds(
    Config,
    rows=st.integers(0, 2**40),
    swap=st.booleans(),
    order=st.text(),
    tile=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    hints=st.none()
    | st.builds(Hints, occupancy=st.none() | st.integers(1, 32), num_ctas=st.none() | st.integers(1, 16)),
)


@settings(max_examples=30, deadline=None)
@given(functions=st.dictionaries(st.text(), st.dictionaries(st.text(), CONFIGS, min_size=1, max_size=3), max_size=3))
def test_a_table_is_read_as_it_was_written(functions, tmp_path_factory):
    file = tmp_path_factory.getbasetemp() / "table.json"
    written = {name: {key: asdict(one) for key, one in entries.items()} for name, entries in functions.items()}
    table = Table(device="NVIDIA Test 1", arch="sm_90", versions={"cuda-tile": None}, functions=written)
    tables.write(table, file)
    read = tables.read(file)
    assert (read.device, read.arch, read.versions) == (table.device, table.arch, table.versions)
    assert {
        name: {key: tables.from_json(Config, fields, key) for key, fields in entries.items()}
        for name, entries in read.functions.items()
    } == functions


def test_a_table_is_sorted_with_an_entry_a_line(tmp_path):
    entries = {f"m={m}": {"rows": m} for m in (16384, 2048, 1)}
    file = tmp_path / "table.json"
    tables.write(Table(device="D", arch="sm_90", versions={"v": "1"}, functions={"b": entries, "a": entries}), file)
    assert file.read_text() == (
        '{\n "device": "D",\n "arch": "sm_90",\n "versions": {"v": "1"},\n "functions": {\n'
        '  "a": {\n   "m=1": {"rows": 1},\n   "m=2048": {"rows": 2048},\n   "m=16384": {"rows": 16384}\n  },\n'
        '  "b": {\n   "m=1": {"rows": 1},\n   "m=2048": {"rows": 2048},\n   "m=16384": {"rows": 16384}\n  }\n }\n}\n'
    )
    with pytest.raises(RecordError, match=r"nothing\.json cannot be read as a table of tuned configurations"):
        tables.read(tmp_path / "nothing.json")


def test_a_table_is_updated_entry_by_entry(tmp_path, monkeypatch):
    file = tmp_path / "table.json"
    for name, key, rows in [("a", "m=1", 1), ("a", "m=2", 2), ("b", "m=1", 3), ("a", "m=1", 4), ("b", "m=1", None)]:
        tables.update(file, name, DEVICE, key, None if rows is None else Config(rows=rows))
    assert tables.read(file).functions == {"a": {f"m={m}": {**WRITTEN, "rows": rows} for m, rows in ((1, 4), (2, 2))}}
    with pytest.raises(RecordError, match=r"is the table of NVIDIA Test 1, not of NVIDIA Test 2: give another file"):
        tables.update(file, "a", OTHER, "m=1", Config(rows=5))
    monkeypatch.setattr(tables, "versions", lambda: {"cuda-tile": "1.8.0", "tileiras": None})
    tables.update(file, "c", DEVICE, "m=1", Config(rows=6))
    assert tables.read(file).functions == {"c": {"m=1": {**WRITTEN, "rows": 6}}}


WRITTEN = {"swap": False, "order": "rows", "tile": [1, 2], "hints": None}


@pytest.mark.parametrize(
    ("device", "name"),
    [("NVIDIA H200", "nvidia-h200.json"), ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3.json"), ("(X)", "x.json")],
)
def test_a_table_is_named_after_its_device(device, name):
    assert tables.file_name(device) == name


def test_counts_go_to_the_next_power_of_two():
    assert [tuning.bucket(n) for n in (0, 1, 2, 3, 5, 6, 2**40, 2**40 + 1)] == [0, 1, 2, 4, 8, 8, 2**40, 2**41]


def test_blocks_that_observe_may_end_in_any_order():
    """As those of several threads do."""
    heuristic, _ = make()
    first, second = observed(), observed()
    seen_first, seen_second = first.__enter__(), second.__enter__()
    first.__exit__(None, None, None)
    heuristic(8, 1, DEVICE)
    second.__exit__(None, None, None)
    assert (list(seen_first), list(seen_second)) == ([], [question(8, 1)])
