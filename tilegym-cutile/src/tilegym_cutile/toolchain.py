"""Whether cuTile kernels can be compiled and run here, and if not, why and what to do.

A kernel needs cuda-tile, a CUDA build of torch, a driver and GPU recent enough, and NVIDIA's compiler `tileiras`, which
in turn loads `libnvvm` and runs `ptxas`. Each check answers with one sentence for people, or None.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import torch

from tilegym import config

_CUDA_TILE = ((1, 7), (1, 8))  # at least, below
_COMPILER = ((13, 2), (13, 5))
_COMPILER_PACKAGES = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
_DRIVER = (13, 0)
_CAPABILITY = (8, 0)
_INSTALL_COMPILER = 'pip install "nvidia-cuda-tileiras==13.4.*" "nvidia-cuda-nvcc==13.4.*" "nvidia-nvvm==13.4.*"'


def why_unusable(device: torch.device) -> str | None:
    """The first reason why kernels cannot run on `device`; None where they can.

    The device comes first: where there is none, nothing pays the half second that importing cuda.tile takes.
    """
    return (
        why_no_device(device)
        or why_no_cuda_tile()
        or why_no_compiler()
        or why_cuda_home_is_in_the_way(config.cuda_home())
    )


def why_no_cuda_tile() -> str | None:
    """Whether cuda-tile is there, in a version these kernels were written for."""
    version = _installed("cuda-tile")
    least, below = _CUDA_TILE
    wanted = f'pip install "cuda-tile>={_dotted(least)},<{_dotted(below)}"'
    if version is None:
        return f"cuda-tile is not installed: {wanted}."
    if not least <= _release(version) < below:
        return f"cuda-tile {version} is installed, but version {_dotted(least)} is needed: {wanted}."
    try:
        importlib.import_module("cuda.tile")
    except ImportError as error:
        return f"cuda-tile {version} is installed but does not import ({error}): reinstall it, {wanted}."
    return None


def _driver_version() -> tuple[int, int]:
    """The CUDA version that the driver supports, from the driver's own library."""
    version = ctypes.c_int()
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    library.cuDriverGetVersion(ctypes.byref(version))
    return _decoded(version.value)


def why_no_device(device: torch.device) -> str | None:
    """Whether torch, the driver and the GPU are fit for cuTile."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA: install a CUDA build, see https://pytorch.org/get-started."
    if not torch.cuda.is_available():
        return (
            "torch sees no NVIDIA GPU: run nvidia-smi to see whether the driver works, and check CUDA_VISIBLE_DEVICES."
        )
    driver = _driver_version()
    if driver < _DRIVER:
        return (
            f"the NVIDIA driver is for CUDA {_dotted(driver)}, but cuTile needs one for CUDA {_dotted(_DRIVER)}: "
            "update the driver to release 580 or later."
        )
    capability = torch.cuda.get_device_capability(device)
    if capability < _CAPABILITY:
        return (
            f"{torch.cuda.get_device_name(device)} has compute capability {_dotted(capability)}, but cuTile needs "
            f"{_dotted(_CAPABILITY)} (Ampere) or later: use backend='torch' on this GPU."
        )
    return None


def why_no_compiler() -> str | None:
    """Whether tileiras is found, new enough, and beside a ptxas and libnvvm of its own version."""
    compiler = find_compiler()
    if compiler is None:
        packages = {name: _installed(name) for name in _COMPILER_PACKAGES}
        if None not in packages.values():
            found = ", ".join(f"{name} {version}" for name, version in packages.items())
            return f"the parts of NVIDIA's tile compiler do not match ({found}): {_INSTALL_COMPILER}."
        return f"tileiras, NVIDIA's tile compiler, is in no pip package, PATH or CUDA_HOME: {_INSTALL_COMPILER}."
    least, below = _COMPILER
    if compiler.release is None:
        return f"{compiler.path} does not answer to --version: reinstall it, {_INSTALL_COMPILER}."
    if not least <= compiler.release < below:
        return (
            f"{compiler.path} is version {_dotted(compiler.release)}, but one from {_dotted(least)} to below "
            f"{_dotted(below)} is needed: {_INSTALL_COMPILER}."
        )
    return None


def why_cuda_home_is_in_the_way(cuda_home: str | None) -> str | None:
    """Whether tileiras would take ptxas and libnvvm from `cuda_home`, and these are missing or older than it is.

    cuda-tile hides the variable from a tileiras of the pip package and of the default toolkit folder, but not from one
    found on PATH or in CUDA_HOME itself.
    """
    compiler = find_compiler()
    if cuda_home is None or compiler is None or compiler.release is None or not compiler.obeys_cuda_home:
        return None
    home = Path(cuda_home)
    remedy = f"unset CUDA_HOME and CUDA_PATH, or point them at CUDA {_dotted(compiler.release)} or later."
    if not any((home / place).exists() for place in ("nvvm/lib64/libnvvm.so", "lib/libnvvm.so.4")):
        return f"CUDA_HOME is {cuda_home!r}, where {compiler.path} would look for libnvvm and find none: {remedy}"
    ptxas = _release_of_tool(home / "bin" / "ptxas")
    if ptxas is None or ptxas < compiler.release:
        found = "no ptxas" if ptxas is None else f"the ptxas of CUDA {_dotted(ptxas)}"
        return (
            f"CUDA_HOME is {cuda_home!r}, from where {compiler.path} (CUDA {_dotted(compiler.release)}) would take "
            f"{found}: {remedy}"
        )
    return None


def compiler_versions() -> dict[str, str | None]:
    """What a kernel's machine code depends on, besides the kernel and the device; None: absent."""
    compiler = find_compiler() if why_no_cuda_tile() is None else None
    release = None if compiler is None or compiler.release is None else _dotted(compiler.release)
    return {"cuda-tile": _installed("cuda-tile"), "tileiras": release}


def versions() -> dict[str, str | None]:
    """What is here of all that a kernel needs, for reports; None: absent."""
    compiler = find_compiler() if why_no_cuda_tile() is None else None
    found: dict[str, str | None] = {name: _installed(name) for name in ("cuda-tile", *_COMPILER_PACKAGES)}
    found["torch"] = torch.__version__
    found["torch's CUDA"] = torch.version.cuda
    found["tileiras"] = None
    if compiler is not None:
        release = "of unknown version" if compiler.release is None else _dotted(compiler.release)
        found["tileiras"] = f"{release} ({compiler.path})"
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Compiler:
    """The tileiras that cuda-tile would run."""

    path: str
    release: tuple[int, ...] | None
    """(major, minor); None where it does not say."""
    obeys_cuda_home: bool
    """Whether cuda-tile lets it see CUDA_HOME, from where it then takes ptxas and libnvvm."""


def find_compiler() -> Compiler | None:
    """The tileiras that cuda-tile would run, looked for by cuda-tile itself."""
    from cuda.tile._compile import _find_compiler_bin

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of packages that do not match: why_no_compiler says so where it matters
        try:
            binary = _find_compiler_bin()
        except FileNotFoundError:
            return None
    release = _release_of_tool(Path(binary.path))
    return Compiler(path=binary.path, release=release, obeys_cuda_home=binary.pass_cuda_home_var)


@functools.cache
def _release_of_tool(path: Path) -> tuple[int, ...] | None:
    """The "release 13.4" that NVIDIA's tools answer to --version."""
    try:
        answer = subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout  # noqa: S603 -
        # a path that cuda-tile itself is about to run
    except (OSError, subprocess.CalledProcessError):
        return None
    found = re.search(r"release (\d+)\.(\d+)", answer)
    return None if found is None else (int(found[1]), int(found[2]))


def _installed(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _decoded(cuda_version: int) -> tuple[int, int]:
    return cuda_version // 1000, cuda_version % 1000 // 10


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
