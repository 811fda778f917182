"""How the keys of a decode op are shared out among blocks, and which kernel loads them."""

from __future__ import annotations

import math

import pytest
import torch

from tilegym_cutile.attention_decode import Scores, heuristic
from tilegym_cutile.ops.fmha_decode import fmha_decode
from tilegym_cutile.ops.mla_decoding import mla_decoding
from tilegym_cutile.runtime import ARCHITECTURES, recording

H200 = ARCHITECTURES["sm_90"]
BF16 = torch.bfloat16


def blocks(config, batches, group):
    return batches * -(-group // config.heads) * config.splits


@pytest.mark.parametrize(
    ("batches", "group", "keys", "size", "second"),
    [(8, 4, 8192, 128, 0), (1, 1, 100_000, 64, 0), (1, 128, 8192, 512, 64), (32, 16, 8192, 512, 64)],
)
def test_few_heads_share_out_their_keys_so_that_most_multiprocessors_have_a_block(batches, group, keys, size, second):
    config = heuristic(batches, group, keys, size, second, BF16, H200)
    assert 0.8 * H200.num_sms <= blocks(config, batches, group) <= 2 * H200.num_sms


def test_where_each_multiprocessor_has_a_block_anyhow_nothing_is_to_be_reduced():
    for batches in (128, 132):
        assert heuristic(batches, 4, 8192, 128, 0, BF16, H200).splits == 1
    assert heuristic(1, 4, 64, 128, 0, BF16, H200).splits == 1  # one tile


def test_a_launch_has_as_many_splits_as_were_asked_for_and_no_more_than_tiles():
    q, k = torch.empty(1, 2, 1, 64, dtype=BF16), torch.empty(1, 2, 1000, 64, dtype=BF16)
    for kv_len_per_split, splits in [(1000, 1), (300, 4), (1, 8)]:
        with recording() as launches:
            fmha_decode(q, k, k, 1.0, kv_len_per_split)
        assert launches[0].grid == (2, splits)
        assert len(launches) == (1 if splits == 1 else 2)


def test_a_grid_holds_all_splits_that_are_asked_for():
    q, k = (torch.empty(1, 1, length, 64, dtype=BF16, device="meta") for length in (1, 2**24))
    with recording() as launches:
        fmha_decode(q, k, k, 1.0, 1)
    assert launches[0].grid == (1, 65535)
    assert launches[1].args[0].shape == (1, 1, 65535, 64)


def test_latent_vectors_are_read_once_as_keys_and_values():
    q, qpe = torch.empty(2, 24, 512, dtype=BF16), torch.empty(2, 24, 64, dtype=BF16)
    kv, kpe = torch.empty(2, 64, 512, dtype=BF16), torch.empty(2, 64, 64, dtype=BF16)
    with recording() as launches:
        mla_decoding(q, qpe, kv, kpe, 1.0)
    (launch,) = launches
    assert launch.grid == (2, 1)  # a block for all heads of a batch
    assert [array.data_ptr() for array in (launch.args[1], *launch.args[2])] == [kv.data_ptr()]


def test_expanded_keys_go_to_the_kernel_without_tma():
    q, k = torch.empty(2, 2, 1, 64), torch.empty(1, 2, 10, 64)
    for keys, name in [(k.expand(2, 2, 10, 64), "decode_tiles_wide"), (torch.empty(2, 2, 10, 64), "decode_tiles")]:
        with recording() as launches:
            fmha_decode(q, keys, keys, 1.0)
        assert launches[0].kernel._annotated_function.pyfunc.__name__ == name


@pytest.mark.parametrize(
    ("scores", "seen"),
    [
        (Scores(scaling=1.0, position=99), 100),
        (Scores(scaling=1.0, position=40), 41),
        (Scores(scaling=1.0, position=40, window=7), 7),
        (Scores(scaling=1.0, position=3, window=7), 4),
        (Scores(scaling=1.0, position=-1), 0),
        (Scores(scaling=1.0, start=torch.tensor([3])), 100),
        (Scores(scaling=1.0, start=torch.tensor([3]), window=7), 7),
    ],
)
def test_how_many_keys_are_seen_at_most(scores, seen):
    assert scores.seen(100) == seen


def test_factors_of_scores_stay_finite():
    log2e = math.log2(math.e)
    assert Scores(scaling=0.5).factors == (0.5 * log2e, 1.0)
    assert Scores(scaling=0.5, soft_cap=50.0).factors == (0.01, 50.0 * log2e)
    assert Scores(scaling=0.5, soft_cap=1e-300).factors == (1e30, 1e-300 * log2e)
    assert Scores(scaling=-0.5, soft_cap=1e-300).factors == (-1e30, 1e-300 * log2e)
    assert Scores(scaling=0.5, soft_cap=1e35).capped == (False, False)


def test_a_factor_that_is_no_number_stays_none():
    for scores in (Scores(scaling=math.nan), Scores(scaling=math.nan, soft_cap=2.0)):
        assert math.isnan(scores.factors[0])
