"""apply_rope_base beside Hugging Face's formula; the conformance suites run the contract's samples everywhere."""

import pytest
import torch

from tilegym.backend import set_backend
from tilegym.errors import GradientError
from tilegym.ops import apply_rope_base

from .. import common

_backends = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]


def tables(length, size, device="cpu"):
    """Of each position, cos and sin: (length, size), float32."""
    frequencies = 10000 ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.outer(torch.arange(length, device=device), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


class Test_APPLY_ROPE_BASE(common.PyTestCase):
    @staticmethod
    def reference(q, k, cos, sin, position_ids=None, unsqueeze_dim=1, partial_rotary_factor=1.0):
        if position_ids is not None:
            cos, sin = cos[position_ids], sin[position_ids]
        else:
            cos, sin = cos[None], sin[None]
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        width = int(q.shape[-1] * partial_rotary_factor)

        def rotated(x):
            turned, rest = x[..., :width].float(), x[..., width:].float()
            a, b = turned.chunk(2, dim=-1)
            return torch.cat([turned * cos + torch.cat([-b, a], -1) * sin, rest], -1).to(x.dtype)

        return rotated(q), rotated(k)

    def _device(self, backend):
        try:
            set_backend(backend)
        except ValueError as reason:
            pytest.skip(str(reason))
        self.setUp()
        return "cuda" if backend == "cutile" else "cpu"

    @pytest.mark.parametrize(
        ("heads", "kv_heads", "size", "factor", "unsqueeze_dim", "dtype"),
        [
            (4, 2, 64, 1.0, 1, torch.bfloat16),
            (5, 1, 48, 1.0, 2, torch.float16),
            (3, 3, 40, 0.25, 1, torch.float32),
        ],
    )
    @pytest.mark.parametrize("backend", _backends)
    def test_op(self, heads, kv_heads, size, factor, unsqueeze_dim, dtype, backend):
        device = self._device(backend)
        cos, sin = tables(17, int(size * factor), device)

        def random(count):
            shape = (2, count, 17, size) if unsqueeze_dim == 1 else (2, 17, count, size)
            return torch.randn(shape, dtype=dtype, device=device, requires_grad=True)

        given = {"unsqueeze_dim": unsqueeze_dim, "partial_rotary_factor": factor}
        kwargs = {"q": random(heads), "k": random(kv_heads), "cos": cos, "sin": sin, **given}
        more = {"gradient": torch.randn_like, "multiple_outputs": True}
        self.assertCorrectness(apply_rope_base, self.reference, kwargs, **more)

    @pytest.mark.parametrize("backend", _backends)
    def test_heads_and_positions_may_lie_either_way(self, backend):
        """A transposed view of (B, S, H, D), as models have it, gives what (B, S, H, D) gives, and in its layout."""
        device = self._device(backend)
        q, k = (torch.randn(2, 9, heads, 32, device=device) for heads in (4, 2))
        cos, sin = tables(9, 32, device)
        expected = apply_rope_base(q, k, cos, sin, unsqueeze_dim=2, backend=backend)
        views = apply_rope_base(q.transpose(1, 2), k.transpose(1, 2), cos, sin, backend=backend)
        for view, same in zip(views, expected, strict=True):
            assert torch.equal(view.transpose(1, 2), same)
            assert view.transpose(1, 2).is_contiguous()

    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    @pytest.mark.parametrize("backend", _backends)
    def test_position_ids_pick_rows(self, dtype, backend):
        device = self._device(backend)
        q, k = (torch.randn(2, heads, 5, 16, device=device) for heads in (3, 1))
        cos, sin = tables(100, 16, device)
        ids = torch.tensor([[99, 3, 3, 0, 7], [1, 2, 3, 4, 5]], dtype=dtype, device=device)
        for positions in (ids, ids[:1]):
            found = apply_rope_base(q, k, cos, sin, positions, backend=backend)
            torch.testing.assert_close(found, self.reference(q, k, cos, sin, positions))

    def test_cos_and_sin_have_no_gradient(self):
        q, (cos, sin) = torch.randn(1, 1, 4, 8), tables(4, 8)
        for given in ((cos.clone().requires_grad_(), sin), (cos, sin.clone().requires_grad_())):
            with pytest.raises(GradientError, match=r"apply_rope_base: (cos|sin) requires a gradient"):
                apply_rope_base(q, q, *given)
            with torch.no_grad():
                assert not apply_rope_base(q, q, *given)[0].requires_grad

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            ({"q": torch.ones(4, 8)}, ValueError, r"q must have 4 dimensions, got shape \(4, 8\)"),
            ({"k": torch.ones(1, 1, 5, 8)}, ValueError, r"k must have q's shape \(1, 2, 4, 8\) but for dimension 1"),
            ({"k": torch.ones(1, 1, 4, 8).half()}, TypeError, "k must be one of float32, got float16"),
            ({"cos": torch.ones(4, 6)}, ValueError, r"cos must have shape \(4, 8\), .* got \(4, 6\)"),
            ({"sin": torch.ones(3, 8)}, ValueError, r"sin must have shape \(4, 8\), got \(3, 8\)"),
            ({"position_ids": torch.zeros(4, dtype=torch.int64)}, ValueError, r"position_ids must have shape \(1, 4\)"),
            ({"position_ids": torch.zeros(1, 4)}, TypeError, "position_ids must be one of int64, int32, got float32"),
            ({"unsqueeze_dim": 3}, ValueError, "unsqueeze_dim must be 1 or 2, got 3"),
            ({"partial_rotary_factor": 1.5}, ValueError, "must be over 0 and at most 1, got 1.5"),
            ({"partial_rotary_factor": "1"}, TypeError, "partial_rotary_factor must be a number, got str"),
            ({"partial_rotary_factor": 0.4}, ValueError, "must be even, got 3 of 8"),
        ],
    )
    def test_refuses(self, change, error, message):
        cos, sin = tables(4, 8)
        good = {"q": torch.ones(1, 2, 4, 8), "k": torch.ones(1, 1, 4, 8), "cos": cos, "sin": sin}
        with pytest.raises(error, match=f"apply_rope_base: .*{message}"):
            apply_rope_base(**good | change)
