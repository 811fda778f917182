"""`tilegym report`: the page's figures, its escaping, and what is said of files that are none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from _tilegym_cli.app import app
from _tilegym_cli.report import charts, page
from _tilegym_cli.report.measurements import histories, newest, verdict
from tests.reports import CPU, GPU, HOSTILE, MATMUL_TFLOPS, row, run, saved
from tilegym import registry
from tilegym.benchmarking.results import Ceilings

OURS = row("cutile", 0.2)
EAGER = row("eager", 0.5, peer=True)
COMPILE = row("compile", 0.25, peer=True)


class Parsed(HTMLParser):
    """A page: its elements, its text, and its tables cell by cell."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.tables = []
        self.texts = {}
        self.cell = None
        self.inside = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "input", "br", "img"}:
            self.inside.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.tables[-1][-1].append("")
            self.cell = self.tables[-1][-1]

    def handle_endtag(self, tag):
        assert self.inside.pop() == tag
        if tag in {"td", "th"}:
            self.cell[-1] = " ".join(self.cell[-1].split())
            self.cell = None

    def handle_data(self, data):
        if self.cell is not None:
            self.cell[-1] += data
        if self.inside:
            self.texts[self.inside[-1]] = self.texts.get(self.inside[-1], "") + data

    def table(self, first):
        """Rows by heading, of the table whose first heading and another are these."""
        headings, *rows = next(table for table in self.tables if set(first) <= set(table[0]))
        return [dict(zip(headings, cells, strict=True)) for cells in rows]


def report(*files, out):
    return CliRunner().invoke(app, ["report", "--out", str(out), *map(str, files)])


@pytest.fixture
def made(tmp_path):
    """The page about some runs."""

    def make(*runs):
        done = report(*saved(tmp_path, *runs), out=tmp_path / "report.html")
        assert done.exit_code == 0, done.output
        return Parsed((tmp_path / "report.html").read_text(encoding="utf-8"))

    return make


def test_speed_is_told_against_each_peer_of_the_same_run(made):
    found = made(run([EAGER, OURS, COMPILE]))
    ours, compiled, eager = found.table(["Time, µs"])
    assert ours == {
        "Op": "softmax",
        "Case": "1024x1024",
        "Data type": "bfloat16",
        "Direction": "forward",
        "Backend": "cutile",
        "Time, µs": "200.0 ± 6.0",
        "Rate": "2,000.0 GB/s",
        "Of ceiling": "50.0 %",
        "vs best peer": "1.25×",
        "vs compile": "1.25×",
        "vs eager": "2.50×",
    }
    assert (compiled["Backend"], compiled["vs best peer"], compiled["vs eager"]) == ("compile peer", "–", "–")
    assert eager["Backend"] == "eager peer"


def test_what_was_not_timed_says_why_and_counts_for_nothing(made):
    (ours, failed) = made(run([OURS, row("eager", None, peer=True, error="wrong: nan")])).table(["Not timed because"])
    assert (failed["Time, µs"], failed["Rate"], failed["Not timed because"]) == ("–", "–", "wrong: nan")
    assert (ours["vs eager"], ours["vs best peer"]) == ("–", "–")


@pytest.mark.parametrize("other", [{"dtype": "float32"}, {"direction": "backward"}, {"case": "1x1"}, {"graph": True}])
def test_another_call_is_no_peer(other):
    (one,) = (one for one in newest(histories([run([OURS, replace(EAGER, **other)])])) if not one.row.peer)
    assert (one.against, one.best_peer, one.against_best) == ({}, None, None)


def test_an_op_is_judged_by_its_fastest_backend_over_all_cases():
    slow, small = row("torch", 0.8), {"case": "64x64", "size": 1}
    rows = [OURS, slow, EAGER, row("cutile", 0.4, **small), row("eager", 0.1, peer=True, **small), row("cutile", None)]
    told = verdict(newest(histories([run(rows[:-1])])))
    assert told.cases == 2
    assert told.against_best == pytest.approx((2.5 * 0.25) ** 0.5)
    assert told.ceiling_percent == pytest.approx((50 + 25) / 2)
    assert verdict([]).against_best is None


def test_of_several_runs_the_newest_counts_and_the_others_are_its_history(made):
    days = [
        run([row("cutile", time), row("eager", 0.5, peer=True)], date=f"2026-11-{day:02}T00:00:00+00:00", commit=commit)
        for day, time, commit in [(20, 0.25, "bbb"), (30, 0.2, "ccc"), (10, 0.5, "aaa")]
    ]
    found = made(*days, run([row("cutile", 4.0)], device=CPU))
    rows = {(one["Device"], one["Backend"]): one["Rate"] for one in found.table(["Time, µs"])}
    assert rows == {
        ("Test GPU", "cutile"): "2,000.0 GB/s",
        ("Test GPU", "eager peer"): "800.0 GB/s",
        ("Test CPU", "cutile"): "100.0 GB/s",
    }
    (ours,) = found.table(["First", "Change"])
    assert (ours["Backend"], ours["First"], ours["Last"], ours["Change"]) == (
        "cutile",
        "800.0",
        "2,000.0 GB/s",
        "+150.0 %",
    )
    titles = re.findall(r"2026-11-\d\d 00:00 UTC, \w+: [\d,.]+ GB/s", found.texts["title"])
    assert titles[:3] == [
        "2026-11-10 00:00 UTC, aaa: 800.0 GB/s",
        "2026-11-20 00:00 UTC, bbb: 1,600.0 GB/s",
        "2026-11-30 00:00 UTC, ccc: 2,000.0 GB/s",
    ]


def test_a_file_given_twice_is_one_run(tmp_path):
    (file,) = saved(tmp_path, run([OURS]))
    done = report(file, tmp_path / "." / file.name, out=tmp_path / "report.html")
    assert "1 measurement from 1 file\n" in done.stdout
    assert "History" not in (tmp_path / "report.html").read_text()


def test_a_trend_is_drawn_from_zero_to_its_best():
    runs = [
        run([row("cutile", time)], date=f"2026-11-1{day}T00:00:00+00:00") for day, time in enumerate([0.4, 0.1, 0.2])
    ]
    (history,) = histories(runs)
    line = charts.trend(history)
    assert line is not None
    assert line.path == "4.0,19.0 60.0,4.0 116.0,14.0"
    assert [point.measurement.rate for point in line.points] == [1000, 4000, 2000]
    assert line.change_percent == pytest.approx(100)
    assert charts.trend(history[:1]) is None


def test_the_roofline_puts_a_copy_on_the_slope_and_a_product_on_its_roof():
    copy = row("cutile", 0.1)  # 4000 GB/s
    product = row("cutile", 1.0, op="matmul", flops=800 * 10**9, intensity=1e3, rate=800.0, unit="TFLOP/s")
    plot = charts.roofline(
        newest(histories([run([copy, product, row("cutile", 0.2, op="copy", flops=0)])])), run([]).ceilings
    )
    assert plot is not None
    product_point, copy_point = plot.points
    on_slope = (copy_point.x - plot.memory.x1) / (plot.memory.x2 - plot.memory.x1)
    assert copy_point.y == pytest.approx(plot.memory.along(on_slope)[1], abs=0.2)
    high, low = plot.roofs
    assert (high.label, low.label) == ("bfloat16 800 TFLOP/s", "float32 50 TFLOP/s")
    assert (product_point.y, high.y1, high.y2) == (high.y1, plot.memory.y2, plot.memory.y2)
    assert high.x1 == plot.intensity(200) == plot.memory.x2
    assert low.x1 == plot.intensity(12.5)
    assert [label for _, label in plot.intensity.ticks()] == ["1", "10", "10²", "10³"]
    assert plot.left_out == 1


def test_a_roof_that_begins_left_of_the_plot_is_cut_there():
    plot = charts.roofline(
        newest(histories([run([OURS])])), Ceilings(copy_gbps=4000.0, matmul_tflops={"a": 1e-9, "b": 9.0})
    )
    assert plot is not None
    assert [roof.x1 for roof in plot.roofs] == [plot.memory.x2, charts.LEFT]


def test_roofs_too_near_for_two_labels_share_one():
    ceilings = Ceilings(copy_gbps=4000.0, matmul_tflops={"float16": 790.0, "float32": 50.0, "bfloat16": 800.0})
    plot = charts.roofline(newest(histories([run([OURS])])), ceilings)
    assert plot is not None
    assert [roof.label for roof in plot.roofs] == ["bfloat16 800 · float16 790 TFLOP/s", "", "float32 50 TFLOP/s"]


def test_bars_are_parts_of_the_ceiling_on_the_largest_case():
    rows = [OURS, COMPILE, row("cutile", 0.001, size=1, case="1x1")]
    (chart,) = charts.bars(newest(histories([run(rows)])))
    assert [(bar.measurement.row.backend, bar.percent) for bar in chart.bars] == [("cutile", 50.0), ("compile", 40.0)]
    assert chart.to_ceiling
    rows = [replace(one, ceiling_percent=None) for one in (OURS, COMPILE)]
    (chart,) = charts.bars(newest(histories([run(rows)])))
    assert [bar.percent for bar in chart.bars] == [100.0, 80.0]
    assert not chart.to_ceiling


def test_bars_beyond_the_ceiling_are_parts_of_the_fastest():
    rows = [row("cutile", 0.08), row("eager", 0.1, peer=True)]  # from a cache: 125 % of the ceiling
    (chart,) = charts.bars(newest(histories([run(rows)])))
    assert [bar.percent for bar in chart.bars] == [100.0, 80.0]
    assert not chart.to_ceiling


@pytest.mark.parametrize(
    "odd",
    [
        run([]),
        run([row("cutile", None, error="boom")]),
        run([row("cutile", 0.0, rate=None)]),
        run([OURS], ceilings=Ceilings(copy_gbps=0.0, matmul_tflops={})),
        run([replace(OURS, flops=0, intensity=0.0, ceiling_percent=None, low_ms=None)], device=CPU, commit=None),
    ],
    ids=["nothing", "all failed", "no time", "no ceilings", "nothing computed"],
)
def test_what_is_missing_is_no_crash(made, odd):
    assert ("h2", {"id": "runs"}) in made(odd).elements


def test_the_facts_of_a_run_are_told(made):
    found = made(run([OURS]))
    clocks = ["1,980 MHz", "3,201 MHz"]
    for fact in ["0123456789ab", "sm_90", "132", "128 GiB", "580.95", *clocks, "4,000.0 GB/s", "2.13.0"]:
        assert fact in found.texts["dd"]
    for dtype, peak in MATMUL_TFLOPS.items():
        assert f"Ceiling: {dtype} matmul" in found.texts["dt"]
        assert f"{peak:.1f} TFLOP/s" in found.texts["dd"]


def test_nothing_from_a_file_becomes_markup(made):
    wild = dict.fromkeys(("op", "case", "dtype"), HOSTILE)
    hostile = run(
        [
            row(HOSTILE, 0.2, **wild),
            row(f"peer {HOSTILE}", 0.3, peer=True, **wild),
            row("cutile", None, error=HOSTILE, **wild),
            row("cutile", 0.1, op="half a character \ud800"),
        ],
        device=replace(GPU, name=HOSTILE, arch=HOSTILE, driver=HOSTILE),
        versions={HOSTILE: HOSTILE},
        ceilings=Ceilings(copy_gbps=4000.0, matmul_tflops={HOSTILE: 10.0}),
        commit=HOSTILE,
    )
    later = replace(hostile, date="2026-12-01T00:00:00+00:00")
    found = made(hostile, later)
    tame = made(run([OURS, EAGER]))
    names = [tag for tag, _ in found.elements]
    assert (names.count("script"), names.count("style"), names.count("img")) == (1, 1, 0)
    assert (found.texts["script"], found.texts["style"]) == (tame.texts["script"], tame.texts["style"])
    assert not [attribute for _, found in found.elements for attribute in found if attribute.startswith("on")]
    known = {attribute for _, found in tame.elements for attribute in found}
    assert {attribute for _, found in found.elements for attribute in found} <= known | {"open", "points"}
    assert next(one for one in found.table(["Time, µs"]) if one["Op"] == HOSTILE)["Case"] == HOSTILE
    assert found.inside == []


def test_nothing_from_a_plugin_becomes_markup(site, made):
    pack = "@hookimpl\ndef tilegym_op_packs():\n    return [OpPack(name='extra', package='extra_dist.specs')]\n"
    site.install("extra-dist", pack, {"specs/broken.py": f"raise OSError({HOSTILE!r})"}, version="1<b>2")
    found = made()
    (broken,) = [one for one in found.table(["Op"]) if one["Op"].startswith("extra.broken")]
    assert broken["Op"] == f"extra.broken OSError: {HOSTILE}"
    assert [tag for tag, _ in found.elements].count("script") == 1


def test_the_page_needs_no_other_file_and_lets_no_other_script_run(made):
    found = made(run([OURS, EAGER]))
    links = [
        value
        for _, attributes in found.elements
        for name, value in attributes.items()
        if name in {"src", "href", "srcset", "action", "data", "xlink:href"}
    ]
    assert [link for link in links if not link.startswith(("#", "data:"))] == []
    assert "url(" not in found.texts["style"]
    assert "@import" not in found.texts["style"]
    (policy,) = [one["content"] for _, one in found.elements if one.get("http-equiv") == "Content-Security-Policy"]
    source = page._source(found.texts["script"])
    assert policy.startswith(f"default-src 'none'; script-src {source}; style-src 'sha256-")
    assert not [tag for tag, attributes in found.elements if "style" in attributes]


def test_tables_and_fields_have_names(made):
    found = made(run([OURS, EAGER]), run([OURS, EAGER], date="2026-12-01T00:00:00+00:00"))
    tags = [tag for tag, _ in found.elements]
    assert tags.count("table") == tags.count("caption") == 4  # conformance, bars, history, measurements
    assert all(attributes.get("scope") in {"col", "row"} for tag, attributes in found.elements if tag == "th")
    fields = [attributes["name"] for tag, attributes in found.elements if tag in {"select", "input"}]
    assert fields == ["op", "dtype", "device", "direction", "find", "peers"]
    assert tags.count("label") == len(fields)
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {attributes["href"][1:] for tag, attributes in found.elements if tag == "a"}
    assert anchors <= set(ids)


CONFORMANCE = """
@hookimpl
def tilegym_conformance():
    return [Conformance(backend={name!r}, report={report!r})]
"""


def conforming(site, name, ops, report):
    """Install a backend that ships a report."""
    source = "from tilegym.hookspecs import Conformance\n" + CONFORMANCE.format(
        name=name, report=f"{name}_dist:conformance.json"
    )
    package = site.backend(name, "device_types=('cpu',)", dict.fromkeys(ops, "return x"), source)
    if report is not None:
        (package / "conformance.json").write_text(json.dumps({"device": "cpu", "backends": {name: report}}))


def test_the_matrix_tells_what_conforms(site, made):
    conforming(site, "good", ["softmax"], {"softmax": {"passed": 7}})
    conforming(site, "fair", ["softmax", "rms_norm"], {"softmax": {"passed": 5, "failed": {"a": "b", "c": "d"}}})
    conforming(site, "lost", ["softmax"], None)
    site.backend("rival", "peer=True", {"softmax": "return x"})
    found = made()
    rows = {one["Op"]: one for one in found.table(["Op"])}
    good, fair, lost = "good good-dist 1.0", "fair fair-dist 1.0", "lost lost-dist 1.0"
    assert rows["softmax"] == {
        "Op": "softmax",
        good: "✓ 7/7 on cpu",
        fair: "! 5/7 on cpu",
        lost: "○ not attested",
    }
    assert (rows["rms_norm"][good], rows["rms_norm"][fair]) == ("–not implemented", "○ not attested")
    assert "backend 'lost': its conformance report lost_dist:conformance.json: FileNotFoundError" in found.texts["p"]


def test_without_files_the_page_is_the_matrix_and_says_so(tmp_path):
    out = tmp_path / "report.html"
    done = report(out=out)
    assert done.exit_code == 0
    ops = len(registry.op_names())
    assert done.stdout == f"wrote {out}: {ops} ops, 0 backends; no benchmark file was given\n"
    found = Parsed(out.read_text(encoding="utf-8"))
    assert len(found.tables) == 1
    assert "No benchmark file was given" in found.texts["p"]
    assert "No backend is" in found.texts["p"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b"", "cannot be read as results of a benchmark"),
        (b'{"schema": 1, "rows": [', "cannot be read as results of a benchmark"),
        (b"\xff\xfe", "cannot be read as results of a benchmark"),
        (b"[]", "expected an object with the fields of Results, got []"),
        (b'{"schema": 2}', "schema must be 1, got 2"),
        (b'{"schema": 1}', "fields missing or unknown"),
    ],
)
def test_a_file_that_is_none_is_named_and_the_old_page_stays(tmp_path, content, said):
    (good,) = saved(tmp_path, run([OURS]))
    bad, out = tmp_path / "bad.json", tmp_path / "pages" / "report.html"
    assert report(good, out=out).exit_code == 0
    before = out.read_bytes()
    if content is not None:
        bad.write_bytes(content)
    done = report(good, bad, out=out)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"tilegym report: {bad}")
    assert said in done.stderr
    assert "expected a file that `tilegym bench --json FILE` wrote" in done.stderr
    assert out.read_bytes() == before
    assert [*out.parent.iterdir()] == [out]


def test_a_page_that_cannot_be_written_is_told(tmp_path):
    done = report(out=tmp_path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"tilegym report: the report cannot be written to {tmp_path}: Is a directory\n"
