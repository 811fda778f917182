"""`tilegym explain`: arguments made from a shape, and who would take the call."""

from __future__ import annotations

import pytest
import torch

import tilegym
from _tilegym_cli import explain
from tests.core.test_cli import report, run

SHAPES = "supports=lambda *args: ' '.join(str(tuple(a.shape)) if hasattr(a, 'shape') else str(a) for a in args)"
PARAMETERS = {
    "softmax": "x",
    "silu_and_mul": "input, out",
    "rms_norm": "input, normalized_shape, weight, eps, bias, offset",
}


@pytest.fixture
def teller(site):
    """A backend that refuses every call, giving its arguments' shapes and values as the reason."""
    files = {
        f"ops/{op}.py": (
            "from tilegym import register_impl\n"
            f"@register_impl({op!r}, backend='teller', {SHAPES})\n"
            f"def implementation({parameters}): ...\n"
        )
        for op, parameters in PARAMETERS.items()
    }
    hooks = (
        "@hookimpl\ndef tilegym_backends():\n    return [Backend(name='teller')]\n"
        "@hookimpl\ndef tilegym_impl_packs():\n    return [ImplPack(backend='teller', package='teller_dist.ops')]\n"
    )
    site.install("teller-dist", hooks, files)


@pytest.mark.parametrize(
    ("op", "shape", "made"),
    [
        ("softmax", "128x1000", "(128, 1000)"),
        ("softmax", "7", "(7,)"),
        ("softmax", "2x3x4x5x6", "(2, 3, 4, 5, 6)"),
        ("softmax", "0x8", "(0, 8)"),
        ("silu_and_mul", "3x10", "(3, 10) None"),
        ("rms_norm", "128x1000", "(128, 1000) (1000,) (1000,) 1e-06 None 0.0"),
        ("rms_norm", "2x3x4x50", "(2, 3, 4, 50) (50,) (50,) 1e-06 None 0.0"),
    ],
)
def test_the_other_arguments_fit_the_shape(teller, op, shape, made):
    told = report("explain", op, "--shape", shape, exit_code=1)
    assert told["chosen"] is None
    assert told["candidates"] == [
        {
            "backend": "teller",
            "discovered": True,
            "usable": True,
            "importable": True,
            "supports": False,
            "reason": made,
        }
    ]


def test_dtype_and_backend_reach_the_choice(site):
    half = ", dtypes=('bfloat16',)"
    site.backend("wide", "priority=1", {"softmax": "return x"})
    package = site.backend("half", "priority=9", {"softmax": "return x"})
    file = package / "ops" / "softmax.py"
    file.write_text(file.read_text().replace("backend='half'", f"backend='half'{half}"))
    assert report("explain", "softmax", "--shape", "4x8", "--dtype", "bf16")["chosen"] == "half"
    told = report("explain", "softmax", "--shape", "4x8", "--dtype", "fp16")
    assert (told["chosen"], told["candidates"][0]["reason"]) == ("wide", "it takes bfloat16, got float16")
    told = report("explain", "softmax", "--shape", "4x8", "--backend", "half", exit_code=1)
    assert (told["chosen"], told["preference"], told["origin"]) == (None, "half", "call")
    shown = run("explain", "softmax", "--shape", "4x8", "--dtype", "bf16").stdout
    assert shown.startswith("softmax runs on half. ")


def test_what_was_not_looked_at_is_neither_yes_nor_no(site):
    site.backend("absent", "probe=lambda device: 'no driver'", {"softmax": "return x"})
    done = run("explain", "softmax")
    assert done.exit_code == 1
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("absent")]
    assert row.split() == ["absent", "no", "-", "-"]
    assert "absent: no driver" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("softmax", "--shape", "4y8"), "expected sizes joined by x"),
        (("softmax", "--shape", ""), "expected sizes joined by x"),
        (("softmax", "--shape", "4x8", "--dtype", "bf17"), "expected a dtype of torch"),
        (("softmax", "--shape", "4x8", "--dtype", "nn"), "expected a dtype of torch"),
        (("softmax", "--shape", "4x8", "--device", "gpu"), "tensors cannot be put on 'gpu'"),
        (("softmax", "--shape", "4x8", "--dtype", "int64"), "x must be one of float32, float16, bfloat16, got int64"),
        (("silu_and_mul", "--shape", "4x9"), "the last dimension of input must be even, got 9"),
    ],
)
def test_what_means_nothing_is_a_usage_error(arguments, message):
    done = run("explain", *arguments, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_an_op_without_a_contract_has_no_arguments_to_make():
    @tilegym.dispatch("inline")
    def inline(x):
        """Nothing."""

    tilegym.register_impl("inline", backend="mine")(lambda x: x)
    done = run("explain", "inline", "--shape", "4x8")
    assert done.exit_code == 2
    assert "inline has no contract to make arguments from" in " ".join(done.stderr.replace("│", " ").split())


def test_short_names_of_dtypes():
    assert [explain.parse_dtype(name) for name in ("bf16", "half", "fp32", "float8_e5m2")] == [
        torch.bfloat16,
        torch.float16,
        torch.float32,
        torch.float8_e5m2,
    ]


@pytest.mark.parametrize("shape", ["3x1001", "1", "0x3"])
def test_a_shape_that_the_contract_refuses_is_told(shape):
    done = run("explain", "silu_and_mul", "--shape", shape)
    assert done.exit_code == 2
    assert "must be even" in done.output
