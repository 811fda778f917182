"""Plugins that misbehave: each is told of by name and left out, and the rest goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import pytest
import torch

import tilegym
from tests.core.conftest import PLUGIN, backends
from tilegym.errors import (
    BackendUnavailableError,
    ConfigError,
    NoImplementationError,
    PluginError,
    PluginWarning,
    RegistrationError,
)
from tilegym.ops import softmax
from tilegym.plugins import catalogue

if TYPE_CHECKING:
    from pathlib import Path

X = torch.ones(2, 3)
ONE = backends("name='bad'")

# What a plugin module holds, beside the header that it begins with → what the warning says of it.
REFUSED = {
    "raises at import": (PLUGIN + "raise RuntimeError('no such luck')", "RuntimeError: no such luck"),
    "cannot be imported": ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    "is no Python": ("def (", "SyntaxError: "),
    "exits at import": (PLUGIN + "raise SystemExit(3)", "SystemExit: 3"),
    "raises in a hook": (PLUGIN + "@hookimpl\ndef tilegym_backends():\n    1 / 0", "ZeroDivisionError: "),
    "exits in a hook": (PLUGIN + "@hookimpl\ndef tilegym_backends():\n    raise SystemExit", "SystemExit"),
    "states no version": (
        ONE.join(["from tilegym.hookspecs import *\n", ""]),
        r"must state TILEGYM_API = 1, .* got None",
    ),
    "states another version": (PLUGIN + "TILEGYM_API = 2\n" + ONE, r"must state TILEGYM_API = 1, .* got 2"),
    "marks no hook": (PLUGIN + "def tilegym_backends(): return []", "marks no hook; decorate its functions with"),
    "has an unknown hook": (PLUGIN + "@hookimpl\ndef tilegym_backend(): return []", "unknown hook 'tilegym_backend'"),
    "has wrong hook arguments": (PLUGIN + "@hookimpl\ndef tilegym_backends(where): return []", "PluginValidationError"),
    "has a wrapper": (
        PLUGIN + "@hookimpl(wrapper=True)\ndef tilegym_backends():\n    return (yield)",
        r"bad_dist.plugin.tilegym_backends: hook wrappers are not accepted",
    ),
    "returns no list": (
        PLUGIN + "@hookimpl\ndef tilegym_backends(): return Backend(name='bad')",
        r"bad_dist.plugin.tilegym_backends: expected a list of Backend, got Backend\(name='bad'",
    ),
    "returns nothing": (PLUGIN + "@hookimpl\ndef tilegym_backends(): pass", "expected a list of Backend, got None"),
    "returns other things": (PLUGIN + "@hookimpl\ndef tilegym_backends(): return ['bad']", r"got \['bad'\]"),
    "names a backend badly": (
        PLUGIN + backends("name='Bad Name'"),
        "'Bad Name' cannot name a backend: expected lower-case",
    ),
    "takes a reserved name": (PLUGIN + backends("name='auto'"), "'auto' cannot name a backend: .* none of auto"),
    "has a bad alias": (PLUGIN + backends("name='bad', aliases=('x y',)"), "'x y' cannot name a backend"),
    "has aliases of no list": (
        PLUGIN + backends("name='bad', aliases='xy'"),
        "aliases must be a tuple of strings, got 'xy'",
    ),
    "has devices of no list": (
        PLUGIN + backends("name='bad', device_types='cpu'"),
        "device_types must be a tuple of str",
    ),
    "has a priority of text": (PLUGIN + backends("name='bad', priority='high'"), "priority must be an int, got 'high'"),
    "has a probe of text": (
        PLUGIN + backends("name='bad', probe='yes'"),
        "probe must be a function or None, got 'yes'",
    ),
    "compiles ahead by a text": (
        PLUGIN + backends("name='bad', compile_ahead='yes'"),
        "compile_ahead must be a function or None, got 'yes'",
    ),
    "declares one name twice": (
        PLUGIN + backends("name='bad'", "name='two', aliases=('bad',)"),
        "more than one backend as bad",
    ),
    "takes core's pack": (
        PLUGIN + "@hookimpl\ndef tilegym_op_packs(): return [OpPack(name='tilegym', package='bad_dist')]",
        "op pack 'tilegym' is core's own",
    ),
    "names a pack badly": (
        PLUGIN + "@hookimpl\ndef tilegym_op_packs(): return [OpPack(name='a-b', package='bad_dist')]",
        "'a-b' cannot name an op pack",
    ),
    "names no package": (
        PLUGIN + "@hookimpl\ndef tilegym_impl_packs(): return [ImplPack(backend='bad', package=None)]",
        "a pack's package must be the name of an import package, got None",
    ),
    "uses tilegym while it loads": (PLUGIN + "import tilegym\ntilegym.get_available_backends()", "may only declare"),
    "registers while it loads": (
        PLUGIN + "import tilegym\ntilegym.register_impl('softmax', 'bad')",
        "may only declare",
    ),
}


@pytest.fixture
def good(site):
    """A backend that works, beside which others misbehave."""
    site.backend("good", "", {"softmax": "return 'good'"})
    return site


@pytest.mark.parametrize("fault", REFUSED)
def test_a_plugin_that_is_refused(good, fault, monkeypatch):
    source, cause = REFUSED[fault]
    good.install("bad-dist", source, header="", entry="bad", version="2.5")
    message = rf"plugin 'bad' \(bad_dist.plugin\) of distribution bad-dist 2.5 was left out: .*{cause}"
    with pytest.warns(PluginWarning, match=message) as told:
        assert softmax(X) == "good"
    assert len(told) == 1
    assert tilegym.get_available_backends() == ["good"]
    with pytest.raises(
        BackendUnavailableError, match=f"backend 'bad': plugin 'bad' .* failed to load: .*{cause}"
    ) as caught:
        softmax(X, backend="bad")
    plugin = next(plugin for plugin in catalogue().plugins if plugin.name == "bad")
    assert caught.value.__cause__ is plugin.error
    assert plugin.error.__traceback__ is not None
    monkeypatch.setenv("TILEGYM_STRICT", "1")
    good.reload()
    with pytest.raises(PluginError, match=f"plugin 'bad' .* failed to load: .*{cause}") as strict:
        softmax(X)
    assert strict.value.__cause__ is not None


@pytest.mark.parametrize(
    "where", ["raise KeyboardInterrupt", "@hookimpl\ndef tilegym_backends(): raise KeyboardInterrupt"]
)
def test_an_interrupt_goes_through(site, where):
    site.install("bad-dist", where)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            tilegym.get_available_backends()


def test_an_interrupt_in_a_probe_or_file_goes_through_and_is_not_remembered(site):
    once = "asked = []\ndef probe(device):\n    asked.append(device)\n    if len(asked) < 2: raise KeyboardInterrupt\n"
    site.backend("late", "probe=probe", {"softmax": "return 'late'"}, declarations=once)
    with pytest.raises(KeyboardInterrupt):
        softmax(X)
    assert softmax(X) == "late"


def test_a_plugin_is_rolled_back_whole(good):
    """Its first hook is fine; nothing of it stays when the second fails."""
    source = ONE + "@hookimpl\ndef tilegym_impl_packs():\n    raise RuntimeError"
    good.install("bad-dist", source, entry="bad")
    with pytest.warns(PluginWarning, match="bad-dist"):
        assert tilegym.get_available_backends() == ["good"]


@pytest.mark.parametrize("claim", ["name='same'", "name='other', aliases=('same',)"])
def test_two_distributions_that_claim_one_backend(good, claim):
    good.install("first-dist", backends("name='same', aliases=('first',)"))
    good.install("second-dist", backends(claim))
    with pytest.warns(PluginWarning) as told:
        assert tilegym.get_available_backends() == ["good"]
    for owner, warning in zip(["first-dist", "second-dist"], told, strict=True):
        message = str(warning.message)
        assert f"{owner} 1.0 was left out" in message
        assert "backend 'same' is claimed by plugin 'first-dist' (first_dist.plugin)" in message
        assert "and plugin 'second-dist' (second_dist.plugin)" in message
    for name in ("same", "first"):
        with pytest.raises(BackendUnavailableError, match="uninstall or disable one of them"):
            softmax(X, backend=name)


def test_two_distributions_that_claim_one_pack(good):
    hook = "@hookimpl\ndef tilegym_op_packs():\n    return [OpPack(name='extra', package={!r})]"
    for name in ("first", "second"):
        good.install(f"{name}-dist", hook.format(f"{name}_dist.specs"))
    with pytest.warns(PluginWarning, match="op pack 'extra' is claimed by"):
        assert "extra" not in dir(tilegym.ops)


# -- metadata -------------------------------------------------------------------------------------------------------


def test_an_entry_point_shown_twice_is_one(good, monkeypatch):
    """The same directory twice on the path, and under another spelling, as editable installs and PYTHONPATH do."""
    for again in (good.path, good.path / ".." / good.path.name):
        monkeypatch.syspath_prepend(again)
    monkeypatch.setenv("PYTHONPATH", str(good.path))
    good.reload()
    assert softmax(X) == "good"
    assert [plugin.name for plugin in catalogue().plugins if plugin.name == "good-dist"] == ["good-dist"]


def test_stale_metadata_of_the_same_distribution_further_back_is_shadowed(good):
    good.install("good-dist", backends("name='good'"), version="0.9", where="front")
    assert [p.version for p in catalogue().plugins if p.distribution == "good-dist"] == ["0.9"]


def test_stale_metadata_of_a_removed_package_is_told(good):
    good.metadata("gone-dist", "gone = gone_dist.plugin")
    with pytest.warns(
        PluginWarning, match=r"plugin 'gone' .* of distribution gone-dist 1.0 was left out: ModuleNotFoundE"
    ):
        assert softmax(X) == "good"


def test_a_renamed_distribution_whose_old_metadata_stayed_is_told(good):
    """Two distributions, one module: it would register everything twice."""
    good.metadata("old-dist", "good = good_dist.plugin")
    with pytest.warns(
        PluginWarning, match="claimed by plugin 'good-dist' .* and plugin 'good' .* of distribution old-dist"
    ):
        assert tilegym.get_available_backends() == []


def test_metadata_that_cannot_be_read(good):
    (good.metadata("lost-dist", "lost = lost_dist.plugin") / "METADATA").unlink()
    good.allowed.add("lost")
    good.reload()
    with pytest.warns(PluginWarning, match=r"plugin 'lost' .* of distribution \(damaged metadata\) \? was left out"):
        assert softmax(X) == "good"


@pytest.mark.parametrize("text", [b"[tilegym]\nno equals sign", b"[tilegym]\nx = \xff\xfe"])
def test_a_broken_entry_points_file_of_anybody(good, text):
    (good.metadata("torn-dist", "torn = torn_dist.plugin") / "entry_points.txt").write_bytes(text)
    with pytest.warns(PluginWarning, match=r"distribution torn-dist 1.0: its entry_points.txt cannot be read"):
        assert softmax(X) == "good"


def test_nvidias_distribution_beside_ours_is_told(good):
    (good.metadata("tilegym", "x = y") / "entry_points.txt").unlink()
    good.reload()
    with pytest.warns(
        PluginWarning, match="NVIDIA's distribution 'tilegym' is installed beside .*pip uninstall tilegym"
    ):
        assert softmax(X) == "good"


# -- what plugins name: probes, set-ups, packages, files --------------------------------------------------------------


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        ("lambda device: 1 / 0", "its probe failed: ZeroDivisionError: division by zero"),
        ("lambda device: exit(3)", "its probe failed: SystemExit: 3"),
        ("lambda device: False", "its probe must return None or a reason, got False"),
        ("lambda: None", "its probe failed: TypeError"),
        ("lambda device: __import__('tilegym').get_available_backends()", "its probe failed: RegistrationError"),
    ],
)
def test_a_probe_that_fails_is_a_reason(good, probe, reason):
    good.backend("bad", f"priority=9, probe={probe}", {"softmax": "return 'bad'"})
    assert softmax(X) == "good"
    assert tilegym.get_available_backends() == ["good"]
    with pytest.raises(BackendUnavailableError, match=f"cannot run here: {reason}"):
        softmax(X, backend="bad")


def test_a_device_type_that_torch_does_not_know_is_a_reason(good):
    good.backend("bad", "priority=9, device_types=('gpux',)", {"softmax": "return 'bad'"})
    assert tilegym.get_available_backends() == ["good"]
    with pytest.raises(BackendUnavailableError, match="torch does not know one"):
        tilegym.set_backend("bad")


def test_probes_are_asked_once_per_device_and_only_on_need(good):
    declared = "asked = []\ndef probe(device):\n    asked.append(str(device))\n"
    good.backend("seen", "probe=probe", {"softmax": "return 'seen'"}, declarations=declared)
    assert tilegym.get_registry_info()["softmax"] == ["good", "seen"]
    asked = sys.modules["seen_dist.plugin"].asked
    assert asked == []
    for _ in range(3):
        assert softmax(X, backend="seen") == "seen"
    assert asked == ["cpu"]


@pytest.mark.parametrize("body", ["raise ImportError('no toolchain')", "raise SystemExit(3)"])
def test_a_file_that_fails_is_a_reason(good, body):
    good.backend("bad", "priority=9", {"softmax": "return 'bad'"})
    (good.path / "bad_dist" / "ops" / "softmax.py").write_text(body)
    assert softmax(X) == "good"
    with pytest.raises(NoImplementationError, match="backend 'bad': its implementation failed to load: ") as caught:
        softmax(X, backend="bad")
    assert isinstance(caught.value.__cause__, (ImportError, SystemExit))


def test_a_set_up_that_fails_is_a_reason_and_is_tried_again(good):
    declared = "tries = []\ndef setup():\n    tries.append(1)\n    if len(tries) < 2: raise OSError('busy')\n"
    good.backend("slow", "priority=9, setup=setup", {"softmax": "return 'slow'"}, declarations=declared)
    with pytest.raises(NoImplementationError, match="OSError: busy"):
        softmax(X, backend="slow")
    assert [softmax(X, backend="slow") for _ in range(3)] == ["slow"] * 3
    assert sys.modules["slow_dist.plugin"].tries == [1, 1]


PACKS = {
    "impl_pack": "ImplPack(backend='bad', package='bad_dist.ops')",
    "op_pack": "OpPack(name='extra', package='bad_dist.ops')",
}


@pytest.mark.parametrize("package", ["raise RuntimeError('broken')", None])
@pytest.mark.parametrize("kind", PACKS)
def test_a_pack_whose_package_does_not_import(good, kind, package, monkeypatch):
    source = backends("name='bad', priority=9") + f"@hookimpl\ndef tilegym_{kind}s(): return [{PACKS[kind]}]"
    good.install("bad-dist", source, {"ops/__init__.py": package} if package else {})
    cause = "RuntimeError: broken" if package else "ModuleNotFoundError"
    with pytest.warns(PluginWarning, match=rf"bad_dist.ops of plugin 'bad-dist' .* was left out: {cause}") as told:
        assert tilegym.get_registry_info()["softmax"] == ["good"]
    assert len(told) == 1
    assert softmax(X) == "good"
    if kind == "impl_pack":
        with pytest.raises(NoImplementationError, match=f"'bad': its files: {cause}") as caught:
            softmax(X, backend="bad")
        assert caught.value.__cause__ is not None
    monkeypatch.setenv("TILEGYM_STRICT", "1")
    good.reload()
    with pytest.raises(PluginError, match=r"package bad_dist\.ops of plugin"):
        tilegym.get_registry_info()


# -- the environment keeps plugins out ------------------------------------------------------------------------------


@pytest.fixture
def marked(good) -> Path:
    """A file that exists once plugin `marked` has been imported."""
    mark = good.path / "imported"
    good.install("marked-dist", f"open({str(mark)!r}, 'w').close()\n" + backends("name='marked'"), entry="marked")
    return mark


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"TILEGYM_PLUGINS": "good-dist"}, "not named in TILEGYM_PLUGINS"),
        ({"TILEGYM_PLUGINS": "tilegym-core"}, "not named in TILEGYM_PLUGINS"),
        ({"TILEGYM_DISABLE_PLUGINS": "other, Marked"}, "named in TILEGYM_DISABLE_PLUGINS"),
        ({"TILEGYM_DISABLE_PLUGINS": "marked_dist"}, "named in TILEGYM_DISABLE_PLUGINS"),
    ],
)
def test_a_plugin_that_is_not_wanted_is_not_imported(marked, monkeypatch, variables, reason):
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    tilegym.config.reload()
    assert "marked" not in tilegym.get_available_backends()
    assert not marked.exists()
    with pytest.raises(ValueError, match=f"backend 'marked': plugin 'marked' .* is not loaded: {reason}"):
        softmax(X, backend="marked")
    monkeypatch.undo()


def test_a_plugin_that_is_wanted_is_imported(marked):
    assert "marked" in tilegym.get_available_backends()
    assert marked.exists()


@pytest.mark.parametrize("variable", ["TILEGYM_PLUGINS", "TILEGYM_DISABLE_PLUGINS"])
def test_a_misspelt_plugin_name_is_an_error_before_anything_is_imported(marked, monkeypatch, variable):
    monkeypatch.setenv(variable, "markd")
    tilegym.config.reload()
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=rf"{variable}: .* 'markd' is installed. Did you mean 'marked'\? Installed: .*good"
        ):
            softmax(X)
    assert not marked.exists()


def test_nobody_serves_says_what_is_not_loaded(marked, monkeypatch):
    monkeypatch.setenv("TILEGYM_PLUGINS", "tilegym-core")
    tilegym.config.reload()
    with pytest.raises(
        NoImplementationError, match=r"no installed backend implements it(.|\n)*not loaded: plugin 'marked'"
    ):
        softmax(X)


# -- importing tilegym ----------------------------------------------------------------------------------------------


def run(source: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TILEGYM_")} | environment
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source], capture_output=True, text=True, env=variables, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_tilegym_imports_no_torch_and_no_plugin(marked, site):
    source = (
        "import sys, tilegym; dir(tilegym); tilegym.__version__\n"
        "from tilegym import set_backend as _, trace as _, ops, errors, config\n"
        "print([name for name in ('torch', 'marked_dist', 'cuda', 'triton') if name in sys.modules])"
    )
    assert run(source, PYTHONPATH=str(site.path)) == "[]"
    assert not marked.exists()


def test_listing_ops_imports_no_spec_and_no_torch():
    source = (
        "import sys, tilegym\nnames = dir(tilegym.ops)\n"
        "print('softmax' in names, 'tilegym.specs.softmax' in sys.modules, 'torch' in sys.modules)"
    )
    assert run(source, TILEGYM_PLUGINS="tilegym-core") == "True False False"


def test_attributes_that_do_not_exist():
    with pytest.raises(AttributeError, match="module 'tilegym' has no attribute 'sofmax'"):
        _ = tilegym.sofmax
    with pytest.raises(AttributeError, match=r"no op named 'sofmax'. Did you mean 'softmax'\? Known: .*rms_norm"):
        _ = tilegym.ops.sofmax
    with pytest.raises(ImportError, match="cannot import name 'sofmax'"):
        exec("from tilegym.ops import sofmax")  # noqa: S102 - as a user would
    assert not hasattr(tilegym.ops, "_private")
    assert {"ops", "explain", "use_backend", "testing"} <= set(dir(tilegym))


def test_core_alone_says_how_to_get_a_backend():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(
            NoImplementationError, match=r"softmax: no installed backend .*pip install ./tilegym-torchref"
        ):
            softmax(X)


def test_a_plugin_module_is_named_when_it_is_no_module(good):
    good.metadata("odd-dist", "odd = good_dist.plugin:thing")
    with pytest.warns(
        PluginWarning, match=r"plugin 'odd' \(good_dist.plugin:thing\) .* was left out: ModuleNotFoundError"
    ):
        assert softmax(X) == "good"


def test_refused_while_loading_names_the_rule(good):
    good.install("bad-dist", "import tilegym\ntilegym.get_available_backends()", entry="bad")
    with pytest.warns(PluginWarning, match="RegistrationError: a plugin module asked tilegym for backends"):
        tilegym.get_available_backends()
    assert isinstance(next(p.error for p in catalogue().plugins if p.name == "bad"), RegistrationError)
