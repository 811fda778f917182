"""Files are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilegym.files import write_whole


def test_a_file_is_made_with_its_folders_and_replaced_whole(tmp_path):
    file = tmp_path / "new" / "folder" / "page.html"
    write_whole(file, "première\n")
    write_whole(file, "second\n")
    assert file.read_bytes() == b"second\n"
    assert [*file.parent.iterdir()] == [file]


def test_others_may_read_it_as_they_may_any_new_file(tmp_path):
    (tmp_path / "any").touch()
    write_whole(tmp_path / "whole", "")
    assert (tmp_path / "whole").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_a_link_is_written_through(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_whole(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


def test_a_pipe_or_device_is_written_to_and_stays_what_it_is(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, "text\n")
    assert os.read(reader, 100) == b"text\n"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("method", ["write_text", "replace"])
def test_what_fails_changes_nothing(tmp_path, monkeypatch, method):
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    file = tmp_path / "folder" / "page.html"
    write_whole(file, "old")
    monkeypatch.setattr(Path, method, fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "new")
    assert file.read_bytes() == b"old"
    assert [*file.parent.iterdir()] == [file]
