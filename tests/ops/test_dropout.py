"""dropout: its random numbers, beside published answers, and what it promises beyond values."""

import cuda.tile as ct
import pytest
import torch

from tilegym.backend import set_backend
from tilegym.ops import dropout
from tilegym.specs import dropout as spec
from tilegym_cutile import philox as tile_code
from tilegym_cutile_cpu import launch
from tilegym_torchref.ops import dropout as torchref

from .. import common

_backends = ["torch", "cutile-cpu", pytest.param("cutile", marks=pytest.mark.gpu)]

# Random123's known answers for philox4x32 with 10 rounds: counter, key, words.
ANSWERS = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@ct.kernel
def philox_words(given, words):
    """given: (6,) int64, the counter and the key; words: (4,) int64."""
    numbers = ()
    for i in ct.static_iter(range(6)):
        numbers = (*numbers, ct.astype(ct.load(given, (i,), (1,)), ct.uint32))
    found = tile_code.philox(numbers[:4], numbers[4:])
    for i in ct.static_iter(range(4)):
        ct.store(words, (i,), ct.astype(found[i], ct.int64))


@pytest.mark.parametrize(("counter", "key", "words"), ANSWERS)
def test_known_answers_in_pytorch(counter, key, words):
    found = torchref.philox(torch.tensor(counter)[:, None], torch.tensor(key))
    assert found[:, 0].tolist() == words


@pytest.mark.parametrize(("counter", "key", "words"), ANSWERS)
def test_known_answers_in_tile_code(counter, key, words):
    found = torch.zeros(4, dtype=torch.int64)
    launch((1,), philox_words, (torch.tensor([*counter, *key]), found))
    assert found.tolist() == words


def test_the_reference_agrees_on_large_counters_and_keys():
    counter, key = torch.tensor([0, 1, 2**32 - 1, 2**32, 2**61 + 12345]), -(2**62) - 99
    zeros = torch.zeros_like(counter)
    halves = torch.stack([counter & 0xFFFFFFFF, counter >> 32, zeros, zeros])
    words = torchref.philox(halves, torch.tensor([key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF]))
    assert torch.equal(spec.philox(counter, key), words.t())


def test_a_seed_that_is_traced_only_fills_a_tensor():
    """What PyTorch's default compiler makes of `seed >> 32` does not compile on a CPU."""
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph

    def call(x, seed):
        return dropout(x, seed, backend="torch")

    compiled = torch.compile(call, fullgraph=True, backend=keep)
    for seed in (5, 6, -(2**63)):
        assert torch.equal(compiled(torch.ones(40), seed), call(torch.ones(40), seed))
    traced = [node for node in graphs[-1].graph.nodes if isinstance(node.meta.get("example_value"), torch.SymInt)]
    assert [user.target for node in traced for user in node.users] == [torch.full]


class Test_DROPOUT(common.PyTestCase):
    def _device(self, backend):
        try:
            set_backend(backend)
        except ValueError as reason:
            pytest.skip(str(reason))
        self.setUp()
        return "cuda" if backend == "cutile" else "cpu"

    @pytest.mark.parametrize("backend", _backends)
    def test_an_element_is_kept_where_its_number_is_at_least_p(self, backend):
        x = torch.ones(4, device=self._device(backend))
        word = ANSWERS[0][2][0]  # the first of seed 0: u = 0.399
        for p, kept in [(0.5, False), (0.25, True), (word / 2**32, True), ((word + 1) / 2**32, False)]:
            result = dropout(x, 0, p, backend=backend)
            expected = [1 / (1 - p) if w / 2**32 >= p else 0 for w in ANSWERS[0][2]]
            assert (result[0] > 0).item() is kept
            torch.testing.assert_close(result, torch.tensor(expected, device=x.device))

    @pytest.mark.parametrize("backend", _backends)
    def test_the_mask_is_that_of_the_seed_in_every_dtype_and_layout(self, backend):
        device = self._device(backend)
        mask = dropout(torch.ones(6, 50), 2**40 + 3, 0.3, backend="torch") > 0
        assert 0.6 < mask.double().mean() < 0.8
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for x in (
                torch.ones(6, 50),
                torch.ones(50, 6).t(),
                torch.ones(1, 1).expand(6, 50),
                torch.ones(6, 100)[:, ::2],
            ):
                result = dropout(x.to(device, dtype), 2**40 + 3, 0.3, backend=backend)
                assert torch.equal(result.cpu() > 0, mask)
        assert not torch.equal(dropout(torch.ones(6, 50, device=device), 4, 0.3, backend=backend).cpu() > 0, mask)

    @pytest.mark.parametrize("backend", _backends)
    def test_the_gradient_has_the_mask_of_the_forward(self, backend):
        x = torch.randn(5, 33, device=self._device(backend), requires_grad=True)
        result = dropout(x, 11, 0.4, backend=backend)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(gradient, torch.where(result != 0, 1 / 0.6, 0.0))

    @pytest.mark.parametrize("backend", _backends)
    def test_nothing_to_drop_gives_the_tensor_itself(self, backend):
        device = self._device(backend)
        for x in (torch.randn(5, device=device), torch.randn(5, device=device, requires_grad=True)):
            assert dropout(x, 1, training=False, backend=backend) is x
            assert dropout(x, 1, p=0, backend=backend) is x
            assert dropout(x, 1, training=False, inplace=True, backend=backend) is x

    @pytest.mark.parametrize("backend", _backends)
    def test_in_place_no_elements_share_no_place(self, backend):
        x = torch.ones(1, 0, device=self._device(backend)).expand(2, 0)
        assert dropout(x, 1, inplace=True, backend=backend) is x

    @pytest.mark.parametrize("backend", _backends)
    def test_in_place_writes_the_elements_of_x_alone(self, backend):
        whole = torch.randn(6, 50, device=self._device(backend))
        before, x = whole.clone(), whole[:, ::2]
        expected = dropout(x, 5, backend=backend)
        assert dropout(x, 5, inplace=True, backend=backend) is x
        assert torch.equal(x, expected)
        assert torch.equal(whole[:, 1::2], before[:, 1::2])

    @pytest.mark.parametrize("backend", _backends)
    def test_everything_is_dropped_infinities_too(self, backend):
        x = torch.tensor([1.0, torch.inf, torch.nan], device=self._device(backend), requires_grad=True)
        result = dropout(x, 1, p=1, backend=backend)
        assert torch.equal(result, torch.zeros_like(x))
        assert torch.equal(torch.autograd.grad(result.sum(), x)[0], torch.zeros_like(x))

    def test_seeds_are_taken_modulo_two_to_the_64(self):
        x = torch.ones(4000)
        for seed, same in [(-1, 2**64 - 1), (5, 2**64 + 5), (2**63, -(2**63)), (-(2**200) + 1, 1)]:
            assert torch.equal(dropout(x, seed), dropout(x, same))
        assert not torch.equal(dropout(x, 1), dropout(x, 2**32 + 1))

    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            ({"p": 1.5}, ValueError, "dropout: p must be from 0 to 1, got 1.5"),
            ({"p": float("nan")}, ValueError, "dropout: p must be from 0 to 1, got nan"),
            ({"p": "half"}, TypeError, "dropout: p must be a number, got str"),
            ({"seed": 1.0}, TypeError, "dropout: seed must be an int, got float"),
            ({"inplace": True}, ValueError, "dropout: x must not be expanded"),
        ],
    )
    def test_refuses(self, given, error, message):
        with pytest.raises(error, match=message):
            dropout(torch.ones(1, 1).expand(4, 2), **{"seed": 1} | given)
