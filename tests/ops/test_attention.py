"""What is particular to attention over whole sequences; the conformance suites run the contracts' samples."""

import math

import pytest
import torch

from tilegym.backend import set_backend
from tilegym.ops import attention_sink, fmha, gemma_attention, mla, swa_attention

from .. import common

_backends = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("backend", _backends)
class Test_ATTENTION(common.PyTestCase):
    def _device(self, backend):
        try:
            set_backend(backend)
        except ValueError as reason:
            pytest.skip(str(reason))
        self.setUp()
        return "cuda" if backend == "cutile" else "cpu"

    def _qkv(self, backend, shape, keys, requires_grad=False):
        """q: shape, (B, H, S, D); k, v: keys, (Hk, Sk)."""
        device = self._device(backend)
        shapes = [shape] + 2 * [(shape[0], *keys, shape[3])]
        return [torch.randn(size, device=device).requires_grad_(requires_grad) for size in shapes]

    def _sink_arguments(self, q, k, v):
        """Of q, k, v as attention_sink has them: query, key and value."""
        batch, _, length, size = q.shape
        query = q.transpose(1, 2).reshape(batch, length, k.shape[1], -1, size)
        return query, k.transpose(1, 2), v.transpose(1, 2)

    def test_rows_that_see_no_key_are_zero_and_have_no_gradient(self, backend):
        q, k, v = self._qkv(backend, (1, 2, 40, 16), (1, 10), requires_grad=True)
        out = swa_attention(q, k, v, window_size=4)
        assert torch.equal(out[:, :, 13:], torch.zeros_like(out[:, :, 13:]))
        assert (out[:, :, :13] != 0).all()
        grad_q, grad_k, grad_v = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
        assert torch.equal(grad_q[:, :, 13:], torch.zeros_like(grad_q[:, :, 13:]))
        assert all(grad.isfinite().all() for grad in (grad_q, grad_k, grad_v))

    def test_a_window_of_one_key_gives_its_value(self, backend):
        q, k, v = self._qkv(backend, (1, 2, 20, 8), (2, 30))
        torch.testing.assert_close(swa_attention(q, k, v, window_size=1), v[:, :, :20])

    def test_a_window_longer_than_all_is_none(self, backend):
        q, k, v = self._qkv(backend, (1, 2, 33, 16), (2, 40))
        expected = fmha(q, k, v)
        assert torch.equal(swa_attention(q, k, v, window_size=2**31), expected)
        assert torch.equal(gemma_attention(q, k, v, window_size=2**40), expected)

    def test_a_large_sink_takes_all_and_a_small_one_nothing(self, backend):
        q, k, v = self._qkv(backend, (1, 2, 9, 16), (1, 20))
        query, key, value = self._sink_arguments(q, k, v)
        for logit in (-1e4, -math.inf):
            sinks = torch.full((2,), logit, device=q.device)
            out = attention_sink(query, key, value, sinks, sm_scale=None)
            torch.testing.assert_close(out.unflatten(2, (2, 16)).transpose(1, 2), fmha(q, k, v))
        for logit in (1e4, 3e38):
            sinks = torch.full((2,), logit, device=q.device, requires_grad=True)
            out = attention_sink(query, key, value, sinks)
            assert torch.equal(out, torch.zeros_like(out))
            out.sum().backward()
            assert torch.equal(sinks.grad, torch.zeros_like(sinks))

    def test_start_on_the_device_is_as_a_number(self, backend):
        q, k, v = self._qkv(backend, (1, 2, 5, 16), (1, 40))
        query, key, value = self._sink_arguments(q, k, v)
        sinks = torch.randn(2, device=q.device)
        expected = attention_sink(query, key, value, sinks, sliding_window=7, start_q=23)
        for dtype in (torch.int32, torch.int64):
            start = torch.tensor(23, dtype=dtype, device=q.device)
            assert torch.equal(attention_sink(query, key, value, sinks, sliding_window=7, start_q=start), expected)
        far = torch.tensor([2**40], device=q.device)
        out = attention_sink(query, key, value, sinks, sliding_window=7, start_q=far)
        assert torch.equal(out, torch.zeros_like(out))

    def test_only_the_difference_of_a_far_start_and_a_long_window_counts(self, backend):
        q, k, v = self._qkv(backend, (1, 2, 5, 16), (1, 40))
        query, key, value = self._sink_arguments(q, k, v)
        sinks = torch.randn(2, device=q.device)
        expected = attention_sink(query, key, value, sinks, sliding_window=45, start_q=50)
        found = attention_sink(query, key, value, sinks, sliding_window=2**40 + 45, start_q=2**40 + 50)
        assert torch.equal(found, expected)

    def test_a_factor_that_is_no_number_gives_none(self, backend):
        q, k, v = self._qkv(backend, (1, 2, 5, 16), (1, 6))
        for out in (fmha(q, k, v, math.nan), gemma_attention(q, k, v, math.nan, soft_cap=2.0)):
            assert out.isnan().all()

    def test_scores_far_below_zero_are_scores(self, backend):
        q, k, v = self._qkv(backend, (1, 1, 3, 16), (1, 20))
        out = fmha(q.fill_(-5e4), k.fill_(1 / 16), v, scaling=1.0, is_causal=False)
        torch.testing.assert_close(out, v.mean(2, keepdim=True).expand_as(out))

    def test_a_soft_cap_bounds_scores(self, backend):
        q, k, v = self._qkv(backend, (1, 2, 9, 16), (2, 20))
        uncapped = fmha(q, k, v, is_causal=False)
        torch.testing.assert_close(gemma_attention(q, k, v, soft_cap=1e6, is_causal=False), uncapped)
        assert torch.equal(gemma_attention(q, k, v, soft_cap=math.inf, is_causal=False), uncapped)
        flat = gemma_attention(q, k, v, soft_cap=1e-6, is_causal=False)
        torch.testing.assert_close(flat, v.mean(2, keepdim=True).expand_as(flat))
        halves = [x.bfloat16() for x in (q, k, v)]
        for cap in (1e-40, 1e5, 1e38):
            out = gemma_attention(*halves, soft_cap=cap, is_causal=False).float()
            torch.testing.assert_close(out, flat if cap < 1 else uncapped, atol=0.02, rtol=0.02)
        for cap in (0.0, -1.0, math.nan):
            with pytest.raises(ValueError, match="soft_cap"):
                gemma_attention(q, k, v, soft_cap=cap)

    def test_heads_after_positions_stay_there(self, backend):
        q, k, v = self._qkv(backend, (2, 3, 20, 16), (3, 20))
        turned = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
        out = fmha(*turned)
        assert out.stride() == turned[0].stride()
        assert torch.equal(out, fmha(q, k, v))

    def test_scores_of_mla_are_those_of_joined_heads(self, backend):
        q, k, v = self._qkv(backend, (2, 2, 20, 24), (2, 20))
        qpe, kpe = (torch.randn(2, heads, 20, 8, device=q.device) for heads in (2, 1))
        joined = [torch.cat([q, qpe], -1), torch.cat([k, kpe.expand(-1, 2, -1, -1)], -1)]
        wide = fmha(*joined, torch.nn.functional.pad(v, (0, 8)))
        torch.testing.assert_close(mla(q, k, v, qpe, kpe, True), wide[..., :24])
