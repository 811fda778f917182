"""`tilegym demo` with the one backend that runs anywhere."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

import tilegym
from _tilegym_cli.app import app
from _tilegym_cli.demo import OPS, decoder_block


@pytest.fixture(autouse=True)
def _torchref_alone(monkeypatch):
    monkeypatch.setenv("TILEGYM_PLUGINS", "tilegym-torchref")
    tilegym.config.reload()


def test_every_op_of_the_block_is_right():
    done = CliRunner().invoke(app, ["demo", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["ok"], told["problem"]) == (True, None)
    assert [(row["backend"], row["op"], row["status"]) for row in told["rows"]] == [
        ("torch", op, "right") for op in OPS
    ]
    for row in told["rows"]:
        assert 0 < row["norm_error"] <= row["norm_bound"] == 8e-3
        assert 0 < row["element_ratio"] <= 1
        assert row["milliseconds"] > 0
    assert told["next"].startswith("tilegym explain softmax")


def test_times_on_a_cpu_are_no_claim(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = CliRunner().invoke(app, ["demo"])
    assert done.exit_code == 0, done.output
    assert "Times on a CPU show that it ran; they say nothing about speed." in done.stdout


def test_the_block_is_the_same_block_every_time():
    def call(op, **arguments):
        return getattr(tilegym.ops, op)(**arguments, backend="torch")

    first, second = (decoder_block(call, torch.device("cpu")) for _ in range(2))
    assert first.shape == (4, 128, 256)
    assert torch.equal(first, second)
    assert torch.allclose(first.float().sum(-1), torch.ones(4, 128), atol=1e-2)
    assert first.float().amax(-1).max() < 0.5, "a distribution so peaked would hide errors"
