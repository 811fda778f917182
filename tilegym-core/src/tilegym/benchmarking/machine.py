"""What a run was on: the device and its clocks, versions, and the commit."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import importlib_metadata
import torch

from tilegym import registry
from tilegym.benchmarking.results import Clocks, Device
from tilegym.plugins import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable

_SECONDS = 20  # enough for nvidia-smi on a busy machine


def describe_device(device: torch.device) -> Device:
    """The facts of a device; what it does not tell is None."""
    if device.type != "cuda":
        return Device(
            name=_cpu_name(),
            type=device.type,
            arch=None,
            num_sms=None,
            memory_bytes=None,
            driver=None,
            clocks_mhz=None,
        )
    properties = torch.cuda.get_device_properties(device)
    driver, *clocks = _ask_driver(f"GPU-{properties.uuid}")
    return Device(
        name=properties.name,
        type="cuda",
        arch=f"sm_{properties.major}{properties.minor}",
        num_sms=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        driver=driver,
        clocks_mhz=Clocks(sm=float(clocks[0]), memory=float(clocks[1])) if clocks else None,
    )


def folder_name(device: Device) -> str:
    """The device's folder below `benchmarks/results`: `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", device.name.lower()).strip("-")


def _cpu_name() -> str:
    with suppress(OSError):
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def _ask_driver(uuid: str) -> list[Any]:
    """Driver version, SM clock and memory clock, as `nvidia-smi` has them now; [None] if it does not tell."""
    query = ["nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.mem", "--format=csv,noheader,nounits"]
    answer = _output([*query, f"--id={uuid}"]).split(", ")
    numbers = all(re.fullmatch(r"\d+(\.\d+)?", text.strip()) for text in answer[1:])
    return answer if len(answer) == 3 and numbers else [None]


def versions(backends: Iterable[str]) -> dict[str, str]:
    """Versions of Python, PyTorch, core, and what the backends are made of, as far as they tell."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if torch.version.cuda is not None:
        found["cuda"] = torch.version.cuda
    for name in ("tilegym-core", "triton"):
        with suppress(importlib_metadata.PackageNotFoundError):
            found[name] = importlib_metadata.version(name)
    for name in backends:
        backend, owner = registry.backends()[name], catalogue().owners.get(name)
        if owner is not None:
            found[owner.distribution] = owner.version
        with suppress(Exception):  # a backend that cannot tell is timed all the same
            found |= {fact: value for fact, value in (backend.facts() if backend.facts else {}).items() if value}
    return found


def commit() -> str | None:
    """The commit of the checkout that this process was started in, `-dirty` if files differ; None outside of one."""
    found = _output(["git", "rev-parse", "HEAD"])
    if not found:
        return None
    return found + ("-dirty" if _output(["git", "status", "--porcelain", "--untracked-files=no"]) else "")


def _output(command: list[str]) -> str:
    """What a command prints; nothing if it is not installed or fails."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 - git and nvidia-smi, with arguments of our own
            [program, *command[1:]], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
