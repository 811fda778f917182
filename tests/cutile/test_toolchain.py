"""Each reason why cuTile cannot run here, and what the sentence says to do."""

from __future__ import annotations

import stat
from types import SimpleNamespace

import pytest
import torch

from tilegym_cutile import toolchain
from tilegym_cutile.toolchain import Compiler

DEVICE = torch.device("cuda", 0)


@pytest.fixture
def installed(monkeypatch):
    """The versions of distributions, as this test wants them."""
    versions = {"cuda-tile": "1.7.0"} | dict.fromkeys(toolchain._COMPILER_PACKAGES, "13.4.92")
    monkeypatch.setattr(toolchain, "_installed", versions.get)
    return versions


@pytest.fixture
def gpu(monkeypatch):
    """A machine that is fit for cuTile, to be spoilt."""
    gpu = SimpleNamespace(cuda="13.0", available=True, driver=(13, 0), capability=(9, 0))
    monkeypatch.setattr(torch.version, "cuda", gpu.cuda)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu.available)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: gpu.capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Tesla V100")
    monkeypatch.setattr(toolchain, "_driver_version", lambda: gpu.driver)
    return gpu


def compiler(monkeypatch, **changes):
    found = {"path": "/opt/tile/bin/tileiras", "release": (13, 4), "obeys_cuda_home": True} | changes
    monkeypatch.setattr(toolchain, "find_compiler", lambda: Compiler(**found))


def test_nothing_is_wrong_where_all_is_there(installed, gpu, monkeypatch):
    compiler(monkeypatch)
    monkeypatch.setattr(toolchain.config, "cuda_home", lambda: None)
    assert toolchain.why_unusable(DEVICE) is None


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (None, r'cuda-tile is not installed: pip install "cuda-tile>=1\.7,<1\.8"'),
        ("1.3.0", r"cuda-tile 1\.3\.0 is installed, but version 1\.7 is needed: pip install"),
        ("1.8.1", r"cuda-tile 1\.8\.1 is installed, but version 1\.7 is needed"),
    ],
)
def test_cuda_tile(installed, version, reason):
    installed["cuda-tile"] = version
    assert_says(toolchain.why_no_cuda_tile(), reason)


def test_cuda_tile_that_does_not_import(installed, monkeypatch):
    def broken(name):
        raise ImportError(f"no {name}: bad ELF")

    monkeypatch.setattr(toolchain.importlib, "import_module", broken)
    assert_says(toolchain.why_no_cuda_tile(), r"does not import \(no cuda\.tile: bad ELF\): reinstall it")


def test_torch_without_cuda(gpu, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    assert_says(toolchain.why_no_device(DEVICE), r"is built without CUDA: install a CUDA build")


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"available": False}, r"torch sees no NVIDIA GPU: run nvidia-smi.*CUDA_VISIBLE_DEVICES"),
        ({"driver": (12, 8)}, r"driver is for CUDA 12\.8, but cuTile needs one for CUDA 13\.0: update the driver"),
        ({"capability": (7, 0)}, r"Tesla V100 has compute capability 7\.0, but cuTile needs 8\.0.*backend='torch'"),
    ],
)
def test_device(gpu, spoilt, reason):
    vars(gpu).update(spoilt)
    assert_says(toolchain.why_no_device(DEVICE), reason)


def test_no_compiler_at_all(installed, monkeypatch):
    monkeypatch.setattr(toolchain, "find_compiler", lambda: None)
    installed["nvidia-nvvm"] = None
    assert_says(toolchain.why_no_compiler(), r"tileiras.*is in no pip package, PATH or CUDA_HOME: pip install")


def test_parts_of_the_compiler_that_do_not_match(installed, monkeypatch):
    monkeypatch.setattr(toolchain, "find_compiler", lambda: None)
    installed["nvidia-nvvm"] = "13.2.51"
    assert_says(
        toolchain.why_no_compiler(), r"do not match \(.*tileiras 13\.4\.92.*nvidia-nvvm 13\.2\.51\): pip install"
    )


@pytest.mark.parametrize(
    ("release", "reason"),
    [
        (None, r"/opt/tile/bin/tileiras does not answer to --version: reinstall it"),
        ((13, 1), r"is version 13\.1, but one from 13\.2 to below 13\.5 is needed"),
        ((13, 5), r"is version 13\.5, but one from 13\.2 to below 13\.5 is needed"),
    ],
)
def test_compiler_version(monkeypatch, release, reason):
    compiler(monkeypatch, release=release)
    assert_says(toolchain.why_no_compiler(), reason)


@pytest.fixture
def toolkit(tmp_path):
    """A CUDA toolkit of a given release."""

    def make(release, *, libnvvm="nvvm/lib64/libnvvm.so"):
        ptxas = tmp_path / "bin" / "ptxas"
        ptxas.parent.mkdir()
        ptxas.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
        ptxas.chmod(ptxas.stat().st_mode | stat.S_IXUSR)
        library = tmp_path / libnvvm
        library.parent.mkdir(parents=True)
        library.touch()
        return str(tmp_path)

    return make


def test_cuda_home_without_libnvvm_is_in_the_way(monkeypatch, tmp_path):
    compiler(monkeypatch)
    reason = toolchain.why_cuda_home_is_in_the_way(str(tmp_path))
    assert_says(reason, r"CUDA_HOME is .*would look for libnvvm and find none: unset CUDA_HOME and CUDA_PATH")


def test_older_cuda_home_is_in_the_way(monkeypatch, toolkit):
    compiler(monkeypatch)
    reason = toolchain.why_cuda_home_is_in_the_way(toolkit("13.0"))
    assert_says(reason, r"\(CUDA 13\.4\) would take the ptxas of CUDA 13\.0: unset .* CUDA 13\.4 or later")


def test_cuda_home_of_the_same_release_is_fine(monkeypatch, toolkit):
    compiler(monkeypatch)
    assert toolchain.why_cuda_home_is_in_the_way(toolkit("13.4", libnvvm="lib/libnvvm.so.4")) is None


def test_cuda_home_that_cuda_tile_hides_from_the_compiler_is_fine(monkeypatch, toolkit):
    compiler(monkeypatch, obeys_cuda_home=False)
    assert toolchain.why_cuda_home_is_in_the_way(toolkit("12.8")) is None


def test_the_compiler_installed_here_is_found():
    found = toolchain.find_compiler()
    assert found is not None
    assert found.path.endswith("tileiras")
    assert (13, 2) <= found.release < (13, 5)
    assert toolchain.why_no_compiler() is None


def test_versions_name_all_that_a_kernel_needs(installed):
    assert toolchain.versions() | {"tileiras": None} == {
        "cuda-tile": "1.7.0",
        "nvidia-cuda-tileiras": "13.4.92",
        "nvidia-cuda-nvcc": "13.4.92",
        "nvidia-nvvm": "13.4.92",
        "torch": torch.__version__,
        "torch's CUDA": torch.version.cuda,
        "tileiras": None,
    }


def assert_says(reason, pattern):
    assert reason is not None
    assert "\n" not in reason
    assert reason.endswith(".")
    with pytest.raises(RuntimeError, match=pattern):
        raise RuntimeError(reason)
