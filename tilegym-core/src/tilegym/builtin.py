"""Core's own plugin: the ops that `tilegym-core` defines come in through the public hooks too."""

from collections.abc import Sequence

from tilegym.hookspecs import CORE_PACK, OpPack, hookimpl

TILEGYM_API = 1


@hookimpl
def tilegym_op_packs() -> Sequence[OpPack]:
    """The contracts in `tilegym/specs/`."""
    return [OpPack(name=CORE_PACK, package="tilegym.specs")]
