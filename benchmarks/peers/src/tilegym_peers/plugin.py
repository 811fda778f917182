"""What this distribution declares to TileGym: the peers."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from tilegym.hookspecs import Backend, ImplPack, hookimpl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

TILEGYM_API = 1

_PACKAGES = {
    "eager": "eager",
    "compile": "compiled",
    "cublas": "cublas",
    "sdpa-cudnn": "sdpa_cudnn",
    "sdpa-flash": "sdpa_flash",
    "liger": "liger",
}


def probe_liger(device: torch.device) -> str | None:  # noqa: ARG001 - a probe takes the device
    """Whether it is installed."""
    if importlib.util.find_spec("liger_kernel") is None:
        return "liger-kernel is not installed: python3 -m pip install liger-kernel"
    return None


def setup_compile() -> None:
    """Let a benchmark compile as many shapes as it likes, and run a backward twice."""
    import torch._dynamo
    import torch._functorch.config

    torch._dynamo.config.recompile_limit = 1000  # noqa: SLF001 - else the ninth shape would silently run eagerly
    torch._dynamo.config.accumulated_recompile_limit = 100_000  # noqa: SLF001 - likewise
    torch._functorch.config.donated_buffer = False  # noqa: SLF001 - else retain_graph=True is refused


@hookimpl
def tilegym_backends() -> Sequence[Backend]:
    """Each runs PyTorch code or autograd functions, through which autograd sees."""
    cuda = {"device_types": ("cuda",)}
    return [
        _peer("eager"),
        _peer("compile", setup=setup_compile),
        _peer("cublas", **cuda),
        _peer("sdpa-cudnn", **cuda),
        _peer("sdpa-flash", **cuda),
        _peer("liger", probe=probe_liger, **cuda),
    ]


def _peer(name: str, **fields: object) -> Backend:
    return Backend(name=name, auto=False, peer=True, composite=True, **fields)  # type: ignore[arg-type]  # as given above


@hookimpl
def tilegym_impl_packs() -> Sequence[ImplPack]:
    """A package each."""
    return [ImplPack(backend=name, package=f"tilegym_peers.{package}") for name, package in _PACKAGES.items()]
