"""What `import tilegym` costs beyond `import torch`, and how long a fresh process takes to its first result.

    python benchmarks/import_time.py

Each figure is the best of five fresh processes. The first result is `tilegym.ops.softmax` of a small CPU tensor on
whatever serves here: finding plugins, importing the contract and the implementation, choosing. The target of the import
is under 100 ms.
"""

from __future__ import annotations

import subprocess
import sys

PROCESSES = 5
SOURCE = """
import time
import torch
torch.set_num_threads(1)  # other load on the machine would otherwise be what is measured
x = torch.ones(4, 1000)
torch.softmax(x, dim=-1)
times = [time.perf_counter()]
import tilegym
times.append(time.perf_counter())
tilegym.ops.softmax(x)
times.append(time.perf_counter())
tilegym.ops.softmax(x)
times.append(time.perf_counter())
print(*(after - before for before, after in zip(times, times[1:])))
"""


def main() -> None:
    """Measure and print."""
    runs = [
        [float(seconds) for seconds in subprocess.check_output([sys.executable, "-c", SOURCE], text=True).split()]  # noqa: S603 - our own
        for _ in range(PROCESSES)
    ]
    names = ("import tilegym, after import torch", "first call", "second call")
    for name, seconds in zip(names, zip(*runs, strict=True), strict=True):
        print(f"{name:36} {1000 * min(seconds):8.2f} ms")


if __name__ == "__main__":
    main()
