"""`tilegym new`: what it refuses, and that it writes all of its files or none. That they work is tested elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from _tilegym_cli import new, scaffold
from _tilegym_cli.signature import parse_signature
from tests.core.test_cli import run

WRITTEN = [
    "tests/benchmark/bench_my_op.py",
    "tests/ops/test_my_op.py",
    "tilegym-core/src/tilegym/ops/__init__.pyi",
    "tilegym-core/src/tilegym/specs/my_op.py",
    "tilegym-cutile/src/tilegym_cutile/ops/my_op.py",
    "tilegym-torchref/src/tilegym_torchref/ops/my_op.py",
]


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    """Messages are not wrapped."""
    monkeypatch.setenv("COLUMNS", "1000")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of one as `tilegym new op` looks at."""
    root = tmp_path / "checkout"
    for folder in ("specs", "ops"):
        (root / "tilegym-core/src/tilegym" / folder).mkdir(parents=True)
    return root


def files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def refused(*arguments: str) -> str:
    """What a command that must fail says."""
    done = run("new", *arguments)
    assert done.exit_code == 2, done.output
    return done.stderr


@pytest.mark.parametrize("kind", ["elementwise", "row", "matmul"])
def test_an_op_is_five_new_files_and_the_stub(checkout, kind):
    done = run("new", "op", "my_op", "--kind", kind, "--path", str(checkout))
    assert done.exit_code == 0, done.output
    assert files(checkout) == WRITTEN
    assert "def my_op(" in (checkout / WRITTEN[2]).read_text()
    assert "next: hatch run test -k my_op" in done.stdout


def test_the_checkout_is_the_one_around_the_working_directory(checkout, monkeypatch):
    monkeypatch.chdir(checkout / "tilegym-core" / "src")
    assert run("new", "op", "my_op").exit_code == 0
    assert files(checkout) == WRITTEN


def test_outside_of_a_checkout_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "is in none: it has no tilegym-core/src/tilegym/specs. Give --path CHECKOUT" in refused("op", "my_op")
    assert f"{tmp_path} is none" in refused("op", "my_op", "--path", str(tmp_path))
    assert files(tmp_path) == []


@pytest.mark.parametrize("what", ["op", "backend", "pack"])
@pytest.mark.parametrize(
    "name", ["my-op", "2d", "", "class", "../up", "/etc/x", "a.b", "a/b", "naïve", "MyOp", "_hidden"]
)
def test_a_name_that_is_no_plain_identifier_is_refused(checkout, what, name):
    message = refused(what, "--path", str(checkout), "--", name)
    assert f"a new {what} is named" in message
    assert repr(name) in message
    assert files(checkout) == []
    assert [path.name for path in checkout.iterdir()] == ["tilegym-core"]


@pytest.mark.parametrize("name", ["softmax", "annotations", "namespace"])
def test_a_name_that_tilegym_ops_has_already_is_refused(checkout, name):
    for what in ("op", "pack"):
        message = refused(what, name, "--path", str(checkout))
        assert f"in tilegym.ops named {name!r} already" in message
    assert files(checkout) == []


@pytest.mark.parametrize("name", ["canonical", "tiles", "reference", "torch"])
def test_a_name_that_the_files_need_is_refused(checkout, name):
    assert f"something in the files to be written named {name!r} already" in refused(
        "op", name, "--path", str(checkout)
    )
    assert files(checkout) == []


def test_names_of_installed_backends_and_packages_are_refused(site, tmp_path):
    site.backend("fast-one", "aliases=('faster',)")
    (site.path / "tilegym_taken").mkdir()
    assert "a backend named 'fast-one' already" in refused("backend", "fast_one", "--path", str(tmp_path))
    assert "a backend named 'faster' already" in refused("backend", "faster", "--path", str(tmp_path))
    assert "a package tilegym_taken is installed already" in refused("pack", "taken", "--path", str(tmp_path))


@pytest.mark.parametrize("path", WRITTEN[:2] + WRITTEN[3:])
def test_nothing_is_overwritten(checkout, path):
    mine = checkout / path
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    assert f"nothing is overwritten, and there is already {mine}" in refused("op", "my_op", "--path", str(checkout))
    assert files(checkout) == [path]
    assert mine.read_text() == "mine"


def test_no_folder_is_written_into(tmp_path):
    (tmp_path / "tilegym-mine").mkdir()
    assert "nothing is overwritten" in refused("backend", "mine", "--path", str(tmp_path))
    assert files(tmp_path) == []


@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch, failure):
    root = tmp_path / "root"
    (root / "kept").mkdir(parents=True)
    (root / "kept" / "mine").write_text("mine")
    wanted = {root / name: "text" for name in ("kept/a", "new/deeper/b", "new/c", "d")}
    opened = Path.open

    def failing(path, *args, **kwargs):
        if path.name == "c":
            raise failure
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", failing)
    with pytest.raises(type(failure)):
        scaffold.write(wanted)
    assert sorted(path.name for path in root.rglob("*")) == ["kept", "mine"]
    monkeypatch.undo()
    scaffold.write(wanted)
    assert files(root) == ["d", "kept/a", "kept/mine", "new/c", "new/deeper/b"]


def test_a_link_that_leads_elsewhere_is_not_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="nothing is overwritten"):
        scaffold.write({tmp_path / "link": "text"})
    assert not (tmp_path / "elsewhere").exists()


def test_signature_of_tensors_and_numbers():
    found = parse_signature("gate: Tensor, up: Tensor, limit: float = -7.0", "elementwise")
    assert (found.tensors, found.floats) == (("gate", "up"), {"limit": "-7.0"})
    assert found.formula("silu(gate)") == "silu(gate) * up + limit * gate"


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("x: Tensor, alpha: float", "parameter 'alpha': expected `NAME: Tensor` or `NAME: float = NUMBER`"),
        ("x: Tensor, alpha: float = 1e999", "parameter 'alpha'"),
        ("x: Tensor, alpha: float = print()", "parameter 'alpha'"),
        ("x: Tensor = None", "parameter 'x'"),
        ("x, y", "parameter 'x'"),
        ("x: Tensor, *, alpha: float = 1.0", "without * and /"),
        ("x: Tensor, **kwargs", "without * and /"),
        ("x: Tensor) -> (Tensor", "is no list of parameters"),
        ("x: Tensor): ...\nimport os\ndef f(", "is no list of parameters"),
        ("x: Tensor, x: Tensor", "named 'x' already"),
        ("x: Tensor, torch: float = 1.0", "named 'torch' already"),
        ("a: Tensor, da: Tensor", "named 'da' already"),
        ("my_op: Tensor", "a parameter named 'my_op' already"),
        ("x: Tensor, Up: Tensor", "a new parameter is named in lower-case letters"),
        ("alpha: float = 1.0", "begins with parameters such as"),
        ("", "begins with parameters such as"),
        ("x: " + "Tensor", None),
    ],
)
def test_signature_that_no_example_can_be_written_for(checkout, signature, message):
    arguments = ("op", "my_op", "--signature", signature, "--path", str(checkout))
    if message is None:
        assert run("new", *arguments).exit_code == 0
    else:
        assert message in refused(*arguments)
        assert files(checkout) == []


@pytest.mark.parametrize(("kind", "signature"), [("row", "x: Tensor"), ("matmul", "x: Tensor, alpha: float = 1.0")])
def test_each_kind_has_parameters_of_its_own(checkout, kind, signature):
    message = refused("op", "my_op", "--kind", kind, "--signature", signature, "--path", str(checkout))
    assert f"an op of kind {kind} begins with parameters such as" in message


def test_names_too_long_for_a_line_are_refused(checkout):
    assert "columns, more than 120: choose shorter names" in refused("op", "long" * 20, "--path", str(checkout))
    assert "expected a kind out of elementwise, row, matmul, got 'odd'" in refused(
        "op", "my_op", "--kind", "odd", "--path", str(checkout)
    )
    assert files(checkout) == []


def test_it_asks_at_a_terminal_alone(checkout, monkeypatch):
    asked = []
    monkeypatch.setattr(new, "_at_a_terminal", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda question, default: asked.append((question, default)) or default)
    assert run("new", "op", "my_op", "--path", str(checkout)).exit_code == 0
    assert asked == [
        ("Kind (elementwise, row, matmul)", "elementwise"),
        ("Parameters", "x: Tensor, alpha: float = 0.1"),
    ]
    monkeypatch.undo()
    asked.clear()
    assert run("new", "op", "other_op", "--path", str(checkout)).exit_code == 0
    assert asked == []
