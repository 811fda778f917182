"""mla_decoding_split_kv in PyTorch."""

from torch import Tensor

from tilegym import register_impl
from tilegym_torchref.ops.mla_decoding import mla_decoding


@register_impl("mla_decoding_split_kv", backend="torch")
def mla_decoding_split_kv(
    q: Tensor,
    qpe: Tensor,
    kv: Tensor,
    kpe: Tensor,
    sm_scale: float,
    kv_len_per_split: int | None,  # noqa: ARG001 - keys are not shared out here
) -> Tensor:
    """As `mla_decoding`, without the log-sum-exp."""
    return mla_decoding(q, qpe, kv, kpe, sm_scale)[0]
