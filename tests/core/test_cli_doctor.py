"""`tilegym doctor`: what is installed, in force and broken."""

from __future__ import annotations

import pytest

from tests.core.test_cli import report, run
from tests.core.test_cli_foreign import metadata_of_theirs


def test_nothing_is_broken_here():
    told = report("doctor")
    assert (told["ok"], told["problems"]) == (True, [])
    core = [row for row in told["distributions"] if row["name"] == "tilegym-core"]
    assert [row["in_force"] for row in core] == [True]
    assert told["torch"]["devices"][0] == "cpu"
    assert run("doctor").stdout.rstrip().endswith("Nothing is broken.")


def test_a_plugin_that_fails_is_broken_and_its_traceback_is_kept(site):
    site.install("bad-dist", "raise OSError('disk full')")
    site.backend("good")
    told = report("doctor", exit_code=1)
    states = {row["distribution"]: (row["state"], row["reason"]) for row in told["plugins"]}
    assert states["bad-dist"] == ("failed", "OSError: disk full")
    assert states["good-dist"] == ("loaded", None)
    label = "plugin 'bad-dist' (bad_dist.plugin) of distribution bad-dist 1.0"
    assert told["problems"] == [f"{label} failed to load: OSError: disk full"]
    (row,) = [row for row in told["plugins"] if row["distribution"] == "bad-dist"]
    assert row["traceback"].startswith("Traceback (most recent call last):")
    brief, verbose = run("doctor"), run("doctor", "--verbose")
    assert (brief.exit_code, verbose.exit_code) == (1, 1)
    assert "Traceback" not in brief.stdout
    assert "Traceback (most recent call last):" in verbose.stdout
    assert brief.stderr == ""


def test_under_strict_it_tells_of_every_plugin_all_the_same(site, monkeypatch):
    site.install("bad-dist", "raise OSError('disk full')")
    site.install("worse-dist", "raise OSError('no disk')")
    monkeypatch.setenv("TILEGYM_STRICT", "1")
    assert len(report("doctor", exit_code=1)["problems"]) == 2


def test_a_plugin_that_the_environment_leaves_out_is_skipped_and_not_broken(site, monkeypatch):
    site.install("bad-dist", "raise OSError('disk full')")
    monkeypatch.setenv("TILEGYM_DISABLE_PLUGINS", "bad_dist")
    told = report("doctor")
    states = {row["distribution"]: (row["state"], row["reason"]) for row in told["plugins"]}
    assert states["bad-dist"] == ("skipped", "named in TILEGYM_DISABLE_PLUGINS")


def test_bad_settings_are_all_reported_and_the_good_ones_obeyed(site, monkeypatch):
    site.install("bad-dist", "raise OSError('disk full')")
    monkeypatch.setenv("TILEGYM_FALLBACK", "wran")
    monkeypatch.setenv("TILEGYM_STRICT", "maybe")
    monkeypatch.setenv("TILEGYM_DISABLE_PLUGINS", "bad-dist")
    told = report("doctor", exit_code=1)
    fallback, strict = told["problems"]
    assert fallback.startswith("environment variable TILEGYM_FALLBACK: got 'wran'")
    assert strict.startswith("environment variable TILEGYM_STRICT: got 'maybe'")
    settings = {row["variable"]: (row["value"], row["default"]) for row in told["settings"]}
    assert settings["TILEGYM_FALLBACK"] == ("warn", True)
    assert settings["TILEGYM_DISABLE_PLUGINS"] == (["bad-dist"], False)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("cuda-tiles", "environment variable TILEGYM_BACKEND: no installed distribution provides a backend 'cuda-til"),
        ("absent", "TILEGYM_BACKEND=absent is ignored, since it cannot run here: no driver"),
    ],
)
def test_a_preferred_backend_that_cannot_serve(site, monkeypatch, name, problem):
    site.backend("absent", "probe=lambda device: 'no driver'")
    monkeypatch.setenv("TILEGYM_BACKEND", name)
    (told,) = report("doctor", exit_code=1)["problems"]
    assert told.startswith(problem)


def test_files_that_do_not_load_are_broken(site):
    site.backend("halved", ops={"softmax": "return x"})
    package = site.backend("broken", ops={"softmax": "return x"})
    (package / "ops" / "softmax.py").write_text("import no_such_module\n")
    pack = "@hookimpl\ndef tilegym_op_packs():\n    return [OpPack(name='extra', package='extra_dist.specs')]\n"
    site.install("extra-dist", pack, {"specs/odd.py": "1 / 0"})
    contract, implementation = report("doctor", exit_code=1)["problems"]
    assert contract == "the contract of extra.odd does not load: ZeroDivisionError: division by zero"
    assert implementation.startswith("softmax on backend 'broken': its implementation failed to load: ")
    assert "No module named 'no_such_module'" in implementation


def test_facts_are_asked_for_by_doctor_alone(site):
    facts = "def facts():\n    print('asked')\n    return {'compiler': '1.2', 'driver': None}\n"
    site.backend("plain", "facts=facts", declarations=facts)
    site.backend("silent", "facts=lambda: 1 / 0")
    assert run("backends").stderr == ""
    told = report("doctor")["facts"]
    assert told == {
        "plain": {"compiler": "1.2", "driver": None},
        "silent": {"error": "ZeroDivisionError: division by zero"},
    }
    shown = run("doctor").stdout
    assert "compiler: 1.2" in shown
    assert "driver: absent" in shown


def test_metadata_that_is_shadowed_is_told_apart_from_what_is_in_force(site):
    site.metadata("some-dist", "some = json", version="1.0")
    site.metadata("some-dist", "some = json", version="2.0", where="earlier")
    site.monkeypatch.syspath_prepend(site.path / "earlier" / ".." / "earlier")  # the same folder once more
    rows = [row for row in report("doctor", exit_code=1)["distributions"] if row["name"] == "some-dist"]
    assert [(row["version"], row["in_force"]) for row in rows] == [("2.0", True), ("1.0", False)]
    stale = site.path / "some_dist-1.0.dist-info"
    assert rows[1]["metadata"] == str(stale.resolve())
    assert f"{stale.resolve()}: some-dist 1.0" in run("doctor").stdout


def test_editable_installations_are_marked(site):
    info = site.metadata("some-dist", "some = json")
    (info / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    site.metadata("other-dist", "other = json")
    rows = {row["name"]: row["editable"] for row in report("doctor", exit_code=1)["distributions"]}
    assert (rows["some-dist"], rows["other-dist"]) == (True, False)


def test_their_distribution_beside_ours_is_broken(site):
    metadata_of_theirs(site.path)
    told = report("doctor", exit_code=1)
    (problem,) = told["problems"]
    assert "python3 -m pip uninstall tilegym" in problem
    (row,) = [row for row in told["distributions"] if row["name"] == "tilegym"]
    assert (row["version"], row["in_force"]) == ("1.3.0", True)
