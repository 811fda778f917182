"""Environment variables: every one, strictly parsed, told of when misspelt; and the log that one of them asks for."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import tilegym
from tilegym import config
from tilegym.errors import ConfigError, EnvironmentWarning

VALUES = [
    ("TILEGYM_BACKEND", "Ct_X", "backend", "ct-x"),
    ("TILEGYM_BACKEND", "", "backend", None),
    ("TILEGYM_FALLBACK", "ERROR", "fallback", "error"),
    ("TILEGYM_FALLBACK", "silent", "fallback", "silent"),
    ("TILEGYM_FALLBACK", "", "fallback", "warn"),
    ("DISABLE_FALLBACK", "1", "fallback", "error"),
    ("DISABLE_FALLBACK", "0", "fallback", "warn"),
    ("TILEGYM_PLUGINS", "a, B_c,,", "plugins", frozenset({"a", "b-c"})),
    ("TILEGYM_PLUGINS", "", "plugins", None),
    ("TILEGYM_DISABLE_PLUGINS", "a", "disable_plugins", frozenset({"a"})),
    ("TILEGYM_STRICT", "yes", "strict", True),
    ("TILEGYM_STRICT", "Off", "strict", False),
    ("TILEGYM_STRICT", "", "strict", False),
    ("TILEGYM_CACHE_DIR", "/some/where", "cache_dir", Path("/some/where")),
    ("TILEGYM_CACHE_DIR", "~/here", "cache_dir", Path("~/here").expanduser()),
    ("TILEGYM_LOG", "Debug", "log", "debug"),
]


@pytest.mark.parametrize(("variable", "text", "field", "value"), VALUES)
def test_values(variable, text, field, value):
    settings = config.read({variable: text})
    assert getattr(settings, field) == value
    others = {name: default for name, default in config.Settings().as_dict().items() if name != variable}
    told = {name: now for name, now in settings.as_dict().items() if name != variable}
    others.pop("TILEGYM_FALLBACK", None)
    told.pop("TILEGYM_FALLBACK", None)
    assert told == others


def test_every_variable_is_tried_above():
    assert {variable for variable, *_ in VALUES} == set(config.Settings().as_dict())


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("TILEGYM_FALLBACK", "warm", "one of warn, error, silent. Did you mean 'warn'"),
        ("TILEGYM_FALLBACK", "never", "one of warn, error, silent"),
        ("TILEGYM_STRICT", "maybe", "1, true, yes, on or 0, false, no, off"),
        ("DISABLE_FALLBACK", "2", "1, true, yes, on or 0, false, no, off"),
        ("TILEGYM_CACHE_DIR", "some/where", "an absolute path"),
        ("TILEGYM_CACHE_DIR", "~no-such-user/here", "an absolute path"),
        ("TILEGYM_LOG", "debg", "one of debug, info, warning, error. Did you mean 'debug'"),
    ],
)
def test_values_that_mean_nothing(variable, text, expected, monkeypatch):
    message = re.escape(f"environment variable {variable}: got {text!r}, expected {expected}")
    with pytest.raises(ConfigError, match=message):
        config.read({variable: text})
    monkeypatch.setattr(config, "_settings", None)
    monkeypatch.setenv(variable, text)
    with pytest.raises(ValueError, match=message):
        tilegym.get_available_backends()


def test_all_that_is_wrong_is_told_at_once():
    with pytest.raises(ConfigError, match=r"TILEGYM_FALLBACK: .*; .*TILEGYM_LOG: "):
        config.read({"TILEGYM_FALLBACK": "x", "TILEGYM_LOG": "y"})
    with pytest.raises(ConfigError, match="contradict each other; unset one of them"):
        config.read({"TILEGYM_FALLBACK": "silent", "DISABLE_FALLBACK": "1"})


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("TILEGYM_BACKEN", "TILEGYM_BACKEND"),
        ("TILEGYM_FALLBAK", "TILEGYM_FALLBACK"),
        ("TILEGYM_DISABLE_FALLBACK", "DISABLE_FALLBACK"),
        ("TILEGYM_PLUGIN", "TILEGYM_PLUGINS"),
        ("TILEGYM_CACHEDIR", "TILEGYM_CACHE_DIR"),
    ],
)
def test_a_misspelt_variable_is_told(variable, meant, site, monkeypatch):
    monkeypatch.setenv(variable, "1")
    with pytest.warns(EnvironmentWarning, match=f"{variable} is not known, and ignored. Did you mean {meant}?"):
        config.reload()


@pytest.mark.parametrize("variable", ["TILEGYM_CUTILE_CPU_SANITIZE", "TILEGYM_HF_CACHE_DIR", "TILEGYM_TRITON_LOG"])
def test_variables_of_other_distributions_are_theirs(variable, site, monkeypatch):
    monkeypatch.setenv(variable, "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        config.reload()


def test_reload_reads_anew(site, monkeypatch):
    monkeypatch.setenv("TILEGYM_FALLBACK", "silent")
    assert config.settings().fallback == "warn"
    assert config.reload().fallback == "silent"
    assert config.settings().fallback == "silent"


# -- the log --------------------------------------------------------------------------------------------------------

CALL = "import torch, tilegym, logging\nfor _ in range(4): tilegym.ops.softmax(torch.ones(2), backend='seen')\n"


@pytest.mark.parametrize(("level", "said"), [("debug", True), ("info", False), (None, False)])
def test_log_tells_each_selection(site, level, said):
    site.backend("seen", "", {"softmax": "return x"})
    variables = {"PYTHONPATH": str(site.path), "TILEGYM_PLUGINS": "seen-dist"}
    if level is not None:
        variables["TILEGYM_LOG"] = level
    done = subprocess.run([sys.executable, "-c", CALL], env=variables, capture_output=True, text=True, check=True)
    selections = done.stderr.count("DEBUG tilegym: softmax: backend seen, asked for by call\n")
    assert (1 <= selections <= 2) == said  # the slow path alone tells
    assert ("plugin 'seen-dist' (seen_dist.plugin) of distribution seen-dist 1.0: loaded" in done.stderr) == bool(level)
    assert done.stdout == ""


def test_log_is_the_applications_affair_without_the_variable(site, monkeypatch, caplog):
    site.backend("seen", "", {"softmax": "return x"})
    logger = logging.getLogger("tilegym")
    assert logger.handlers == []
    monkeypatch.setenv("TILEGYM_LOG", "debug")
    config.reload()
    assert (len(logger.handlers), logger.level) == (1, logging.DEBUG)
    monkeypatch.delenv("TILEGYM_LOG")
    config.reload()
    assert (logger.handlers, logger.level) == ([], logging.NOTSET)
    with caplog.at_level(logging.DEBUG, logger="tilegym"):
        tilegym.ops.softmax(torch.ones(2))
    assert "softmax: backend seen, auto: first in order" in caplog.text
