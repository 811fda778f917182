"""The cache on disk: JSON that only the user can write, and a disk that fails costs nothing but time."""

from __future__ import annotations

import json
import logging
import os
import pickle
import stat
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest

import tilegym
from tilegym import cache, config
from tilegym.errors import EnvironmentWarning


@pytest.fixture
def folder(tmp_path, site, monkeypatch):
    path = tmp_path / "deep" / "cache"
    monkeypatch.setenv("TILEGYM_CACHE_DIR", str(path))
    config.reload()
    return path


def test_what_was_put_is_got(folder):
    assert cache.get("tuning", "key") is None
    cache.put("tuning", "key", {"tile": [64, 128], "time": 0.5})
    assert cache.get("tuning", "key") == {"tile": [64, 128], "time": 0.5}
    cache.put("tuning", "key", 3)
    cache.put("tuning", "other", None)
    assert (cache.get("tuning", "key"), cache.get("tuning", "other")) == (3, None)
    assert cache.get("traces", "key") is None


def test_all_entries_of_a_kind_are_got_at_once(folder):
    assert cache.entries("tuning") == {}
    for kind, key in [("tuning", "a"), ("tuning", "b"), ("tuning-backward", "a"), ("tun", "c")]:
        cache.put(kind, key, f"{kind} {key}")
    assert cache.entries("tuning") == {"a": "tuning a", "b": "tuning b"}
    assert cache.entries("tuning-backward") == {"a": "tuning-backward a"}


def test_reading_makes_nothing_and_says_nothing(folder):
    assert (cache.get("tuning", "key"), cache.entries("tuning")) == (None, {})
    assert not folder.exists()
    folder.parent.write_text("a file stands in the way")
    assert (cache.get("tuning", "key"), cache.entries("tuning")) == (None, {})
    folder.parent.unlink()
    folder.parent.mkdir(mode=0o700)
    folder.write_text("and here")
    assert (cache.get("tuning", "key"), cache.entries("tuning")) == (None, {})


def test_files_are_json_for_the_user_alone(folder):
    cache.put("tuning", "key", [1])
    (file,) = folder.iterdir()
    assert json.loads(file.read_text()) == {"key": "key", "value": [1]}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{", b"\xff\xfe", b"[]", b"3", b'{"key": "other", "value": 1}', b'{"value": 1}', b'{"key": "key"}'),
        *(b'{"key": 1, "value": 1}', b'{"key": "\\ud800", "value": 1}', b"[" * 100_000),
    ],
    ids=[
        *("empty", "cut", "binary", "list", "number", "other key", "no key", "no value"),
        *("key is a number", "key is no text", "deep"),
    ],
)
def test_a_broken_file_is_a_miss(folder, content):
    cache.put("tuning", "key", 1)
    (file,) = folder.iterdir()
    cache.put("tuning", "whole", 3)
    file.write_bytes(content)
    assert cache.get("tuning", "key") is None
    assert cache.entries("tuning") == {"whole": 3}
    cache.put("tuning", "key", 2)
    assert cache.get("tuning", "key") == 2
    assert cache.entries("tuning") == {"key": 2, "whole": 3}


def test_a_pickle_is_not_read(folder, tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    cache.put("tuning", "key", 1)
    (file,) = folder.iterdir()
    file.write_bytes(pickle.dumps(Trap()))
    assert cache.get("tuning", "key") is None
    assert not (tmp_path / "sprung").exists()


def test_no_module_of_core_unpickles():
    package = Path(tilegym.__file__).parent
    found = [
        p.name for p in package.rglob("*.py") for word in ("pickle", "torch.load", "marshal") if word in p.read_text()
    ]
    assert found == []


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o720])
def test_a_directory_that_others_may_write_is_refused_with_one_warning(folder, mode):
    cache.put("tuning", "key", 1)
    folder.chmod(mode)
    with pytest.warns(EnvironmentWarning, match=f"nothing is kept in cache directory {folder}: others may write there"):
        assert cache.get("tuning", "key") is None
    cache.put("tuning", "key", 2)  # a second warning would be an error here
    folder.chmod(0o700)
    assert cache.get("tuning", "key") == 1


def test_a_directory_of_somebody_else_is_refused(folder, monkeypatch):
    cache.put("tuning", "key", 1)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.warns(EnvironmentWarning, match="it belongs to user"):
        assert cache.get("tuning", "key") is None


def test_a_directory_that_cannot_be_made(folder):
    folder.parent.parent.joinpath("deep").write_text("a file stands in the way")
    with pytest.warns(EnvironmentWarning, match="it cannot be made: "):
        cache.put("tuning", "key", 1)
    assert cache.get("tuning", "key") is None


def fail(*args, **kwargs):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    "where", [(tempfile, "mkstemp"), (os, "fdopen"), (Path, "replace")], ids=lambda where: where[1]
)
def test_a_full_or_read_only_disk_is_logged_and_leaves_nothing(folder, monkeypatch, caplog, where):
    cache.put("tuning", "key", 1)
    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, logger="tilegym"):
        patched.setattr(*where, fail)
        cache.put("tuning", "key", 2)
    assert "a result could not be kept: [Errno 28] No space left on device" in caplog.text
    assert cache.get("tuning", "key") == 1
    assert len(list(folder.iterdir())) == 1


def test_by_default_the_users_cache_directory(site, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    found = cache.directory()
    assert found is not None
    assert found.is_relative_to(tmp_path)
    assert found.name == "tilegym"


WRITER = """
import sys
from tilegym import cache
for i in range(150):
    cache.put("tuning", "shared", {"writer": sys.argv[1], "text": sys.argv[1] * 5000})
    got = cache.get("tuning", "shared")
    assert got["text"] == got["writer"] * 5000, "a part of a file was read"
    cache.put("tuning", f"own {sys.argv[1]} {i}", i)
"""


def test_many_processes_at_once(folder):
    writers = [subprocess.Popen([sys.executable, "-W", "error", "-c", WRITER, name]) for name in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert [cache.get("tuning", f"own {name} {i}") for name in "abc" for i in range(150)] == [*range(150)] * 3
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_nothing_is_made_until_it_is_used(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tilegym.get_available_backends()
    assert not folder.exists()
