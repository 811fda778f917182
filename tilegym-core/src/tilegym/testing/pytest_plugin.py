"""The pytest plugin that `tilegym-core` brings: the conformance suite's options and cells, and what test classes need.

Loaded into every pytest run, so it imports nothing until the suite is collected or a `PyTestCase` runs.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    import torch

    from tilegym.hookspecs import Conformance

_PROPERTY: Final = "tilegym_cell"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the conformance suite."""
    group = parser.getgroup("tilegym", "TileGym conformance suite")
    group.addoption("--tilegym-backend", metavar="NAME", help="the backend to test")
    group.addoption("--tilegym-device", metavar="DEVICE", help="the device to test on; by default one it takes")
    group.addoption("--tilegym-report", metavar="FILE", help="write what held and what did not as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Begin the report, if one is asked for."""
    target = config.getoption("--tilegym-report")
    if target and not hasattr(config, "workerinput"):  # xdist's workers only run tests
        config.pluginmanager.register(_Report(Path(target)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per cell or op of the backend named by the option or by the module."""
    if "tilegym_backend" not in metafunc.fixturenames:
        return
    name = metafunc.config.getoption("--tilegym-backend") or getattr(metafunc.module, "TILEGYM_BACKEND", None)
    if name is None:
        raise pytest.UsageError("which backend? Give --tilegym-backend=NAME, or set TILEGYM_BACKEND in the test module")
    from tilegym.availability import find_backend
    from tilegym.conformance.cells import cells_of, declared, ops_of

    backend = find_backend(name).name
    metafunc.parametrize("tilegym_backend", [backend])
    if "tilegym_op" in metafunc.fixturenames:
        metafunc.parametrize("tilegym_op", ops_of(backend))
    if "tilegym_cell" in metafunc.fixturenames:
        promised = declared(backend)
        since = getattr(metafunc.function, "since", 1)
        cells = [
            pytest.param(cell, id=cell.name, marks=_marks(promised, cell.name, since)) for cell in cells_of(backend)
        ]
        metafunc.parametrize("tilegym_cell", cells)


def _marks(promised: Conformance, cell: str, since: int) -> list[pytest.MarkDecorator]:
    """A deviation that is declared must fail; a check newer than what the backend answers for may."""
    if cell in promised.deviations:
        return [pytest.mark.xfail(reason=promised.deviations[cell], strict=True)]
    if since > promised.suite:
        reason = f"a check of suite {since}; {promised.backend} answers for suite {promised.suite}"
        return [pytest.mark.xfail(reason=reason, strict=False)]
    return []


@pytest.fixture
def tilegym_device(request: pytest.FixtureRequest, tilegym_backend: str) -> torch.device:
    """The device to test on: the option's, else the first kind that the backend takes; skipped where it cannot run."""
    import torch

    from tilegym.availability import find_backend, why_unusable

    backend = find_backend(tilegym_backend)
    chosen = request.config.getoption("--tilegym-device")
    device = torch.device(chosen or next(iter(backend.device_types), "cpu"))
    reason = why_unusable(backend, device)
    if reason is not None:
        if request.config.getoption("--require-gpu", default=False):
            pytest.fail(f"--require-gpu: backend {backend.name} cannot run here: {reason}", pytrace=False)
        pytest.skip(f"backend {backend.name} cannot run here: {reason}")
    return device


@pytest.fixture
def arch() -> str:
    """The architecture of the current GPU, such as "sm_90"; "cpu" where there is none."""
    import torch

    if not torch.cuda.is_available():
        return "cpu"
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test of a `PyTestCase` leaves nothing changed, and is skipped if it asks for CUDA where there is none."""
    module = sys.modules.get("tilegym.testing.testcase")  # not imported: no test class derives from it
    if module is None or pyfuncitem.cls is None or not issubclass(pyfuncitem.cls, module.PyTestCase):
        return (yield)
    from tilegym.testing.isolation import isolated

    with isolated():
        try:
            return (yield)
        except (AssertionError, RuntimeError) as error:
            if not _came_from_cuda_initialisation(error):
                raise
            reason = f"no CUDA device: {str(error).splitlines()[0]}"
    if pyfuncitem.config.getoption("--require-gpu", default=False):
        pytest.fail(f"--require-gpu: {reason}", pytrace=False)
    pytest.skip(reason)


def _came_from_cuda_initialisation(error: BaseException) -> bool:
    """Whether torch raised it when a tensor was to be put on a CUDA device that is not there."""
    import torch

    if torch.cuda.is_available():
        return False
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_code is torch.cuda._lazy_init.__code__  # noqa: SLF001 - no public sign


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say in a test's report which cell it was: reports reach the session also from xdist's workers."""
    report = yield
    parameters: dict[str, Any] = (
        item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    )
    cell = parameters.get("tilegym_cell")
    if cell is not None and (report.when == "call" or (report.when == "setup" and not report.passed)):
        report.user_properties.append((_PROPERTY, (parameters["tilegym_backend"], cell.op, cell.name)))
    return report


class _Report:
    """What became of the cells, gathered from the tests' reports."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.backends: dict[str, dict[str, dict[str, Any]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a cell; those that did not pass are kept by name, with the reason."""
        found = dict(report.user_properties).get(_PROPERTY)
        if found is None or report.when == "teardown":
            return
        backend, op, name = cast("tuple[str, str, str]", found)
        counts = self.backends.setdefault(backend, {}).setdefault(op, {"passed": 0})
        status = "deviates" if hasattr(report, "wasxfail") else report.outcome.replace("skipped", "refused")
        if status == "passed":
            counts["passed"] += 1
        else:
            counts.setdefault(status, {})[name] = _reason(report)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        import torch

        from tilegym import __version__
        from tilegym.conformance import VERSION

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        report = {
            "suite": VERSION,
            "tilegym-core": __version__,
            "torch": torch.__version__,
            "device": device,
            "backends": self.backends,
        }
        self.target.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    return str(report.longrepr).strip().rpartition("\n")[2]
