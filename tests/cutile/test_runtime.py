"""The seam: who runs a launch, on which device, with which hints."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace

import cuda.tile as ct
import pytest
import torch

from tilegym_cutile import capture, runtime
from tilegym_cutile.runtime import Hints, Target, executor_of, launch, recording, register_executor, target_of


@ct.kernel
def nothing(x, y, factor: float, SIZE: ct.Constant[int]) -> None:
    pass


@ct.kernel(occupancy=2)
def hinted(x) -> None:
    pass


class FakeExecutor:
    """Keeps launches; a target that tells its device."""

    def __init__(self, device):
        self.device = device
        self.launches = []
        num_sms = 7 + (device.index or 0)
        self.target = Target(name="Fake", arch="sm_90", capability=(9, 0), num_sms=num_sms, shared_memory=1024)

    def launch(self, kernel, grid, args):
        self.launches.append((kernel, grid, args))


@pytest.fixture
def made(executors):
    """The executors made for device type meta, in order."""
    made = []

    def factory(device):
        made.append(FakeExecutor(device))
        return made[-1]

    register_executor("meta", factory)
    return made


def test_launch_goes_to_the_executor_of_the_tensors_device(made):
    x = torch.empty(3, device="meta")
    launch(nothing, (2, 3), (x, x, 1.5, 4))
    assert [executor.launches for executor in made] == [[(nothing, (2, 3), (x, x, 1.5, 4))]]


def test_device_is_that_of_the_first_tensor_however_deep(made):
    x = torch.empty(3, device="meta")
    launch(nothing, (1,), (2, (3, 4), ((), (x,)), torch.empty(3), 4))
    assert len(made[0].launches) == 1


def test_launch_without_a_tensor_says_so(made):
    with pytest.raises(TypeError, match=r"first tensor among the kernel's arguments: there is none in \(1, 2\)"):
        launch(nothing, (1,), (1, 2))


def test_each_device_has_one_executor_and_target(made):
    first, second = torch.device("meta", 0), torch.device("meta", 1)
    on_first, on_second = (SimpleNamespace(device=device) for device in (first, second))
    assert executor_of(on_first) is executor_of(on_first)
    assert target_of(on_second).num_sms == 8
    assert target_of(torch.empty(1, device="meta")).num_sms == 7
    assert [executor.device for executor in made] == [first, second, torch.device("meta")]


def test_registering_anew_replaces_executors_already_made(made):
    x = torch.empty(3, device="meta")
    launch(hinted, (1,), (x,))
    replacement = FakeExecutor(x.device)
    register_executor("meta", lambda _: replacement)
    launch(hinted, (1,), (x,))
    assert (len(made[0].launches), len(replacement.launches)) == (1, 1)


def test_cpu_tensors_without_an_executor_are_told_what_to_install(executors):
    runtime._factories.pop("cpu", None)
    with pytest.raises(RuntimeError, match=r"expected tensors on a CUDA device, got one on cpu.*tilegym-cutile-cpu"):
        launch(hinted, (1,), (torch.empty(1),))


def test_other_device_types_are_told_which_are_possible(executors):
    runtime._factories.pop("cpu", None)
    with pytest.raises(RuntimeError, match=r"device type 'meta': expected one of \['cuda'\]"):
        target_of(torch.empty(1, device="meta"))


def test_hints_replace_those_given_and_leave_the_others(made):
    x = torch.empty(3, device="meta")
    launch(hinted, (1,), (x,), hints=Hints(num_worker_warps=8))
    [(kernel, _, _)] = made[0].launches
    assert (kernel._compiler_options.num_worker_warps, kernel._compiler_options.occupancy) == (8, 2)
    assert hinted._compiler_options.num_worker_warps is None


def test_a_kernel_with_equal_hints_is_one_object(made):
    x = torch.empty(3, device="meta")
    for hints in (Hints(occupancy=4), Hints(occupancy=4), Hints(occupancy=8)):
        launch(hinted, (1,), (x,), hints=hints)
    first, second, third = (kernel for kernel, _, _ in made[0].launches)
    assert first is second
    assert third is not first


@pytest.mark.parametrize(
    ("hints", "num_sms", "blocks"),
    [
        (Hints(), 132, 132),
        (Hints(occupancy=2), 132, 264),
        (Hints(num_ctas=2), 132, 66),
        (Hints(num_ctas=2, occupancy=2), 132, 132),
        (Hints(num_ctas=4), 132, 32),  # in 8 clusters of 16 or 18 SMs
        (Hints(num_ctas=4), 8, 1),
    ],
)
def test_as_many_blocks_run_at_once_as_clusters_of_sms_hold(hints, num_sms, blocks):
    assert hints.at_once(num_sms) == blocks


def test_recording_keeps_launches_and_runs_none(made):
    x, y = torch.empty(8, 16, dtype=torch.bfloat16), torch.empty(8, 16, device="meta")
    with recording() as launches:
        launch(nothing, (5,), (x, y, 2.0, 16), hints=Hints(occupancy=4))
    launch(hinted, (1,), (y,))
    [kept] = launches
    assert (kept.grid, kept.args) == ((5,), (x, y, 2.0, 16))
    assert kept.kernel._compiler_options.occupancy == 4
    assert [str(parameter.dtype) for parameter in kept.signature.parameters[:3]] == ["bfloat16", "float32", "float32"]
    assert kept.signature.parameters[3].value == 16
    assert len(made[0].launches) == 1


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
def test_recording_makes_believe_a_device_of_the_architecture(arch):
    with recording(arch=arch):
        target = target_of(torch.empty(1))
    assert target.arch == arch
    assert f"sm_{target.capability[0]}{target.capability[1]}" == arch
    assert target.shared_memory == {"sm_80": 163, "sm_120": 99}.get(arch, 227) * 1024


def test_recording_refuses_an_unknown_architecture():
    with pytest.raises(ValueError, match=r"no architecture 'sm_42': expected one of \['sm_100', .*'sm_90'\]"):
        recording(arch="sm_42").__enter__()


def test_recording_is_for_the_thread_that_asked(made):
    x = torch.empty(3, device="meta")
    with recording() as launches:
        thread = threading.Thread(target=launch, args=(hinted, (1,), (x,)))
        thread.start()
        thread.join()
    assert (launches, len(made[0].launches)) == ([], 1)


@pytest.fixture
def two_gpus(executors, monkeypatch):
    """Two make-believe GPUs, of which device 0 is current; tells where `ct.launch` was called, and on which stream."""
    state = SimpleNamespace(current=0, launches=[], capturing=False, mode=0)

    @contextlib.contextmanager
    def device(index):
        state.current, before = index, state.current
        yield
        state.current = before

    properties = SimpleNamespace(
        name="NVIDIA H200", major=9, minor=0, multi_processor_count=132, shared_memory_per_block_optin=232448
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: state.current, raising=False)
    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 1000 + index, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.capturing)
    monkeypatch.setattr(ct, "launch", lambda stream, *_: state.launches.append((state.current, stream, state.mode)))

    def exchange(mode):
        state.mode, mode._obj.value = mode._obj.value, state.mode
        return 0

    monkeypatch.setattr(capture, "_driver", lambda: SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange))
    return state


@pytest.mark.parametrize("index", [0, 1])
def test_gpu_launches_on_the_tensors_device_and_its_current_stream(two_gpus, index):
    executor = runtime._new_executor(torch.device("cuda", index))
    executor.launch(hinted, (1,), ())
    assert two_gpus.launches == [(index, 1000 + index, 0)]
    assert two_gpus.current == 0
    target = executor.target
    assert (target.name, target.arch, target.capability) == ("NVIDIA H200", "sm_90", (9, 0))
    assert (target.num_sms, target.shared_memory) == (132, 232448)


@pytest.mark.parametrize("index", [0, 1])
def test_a_kernel_may_be_loaded_while_a_graph_is_captured(two_gpus, index, monkeypatch):
    """The launching thread's capture mode is relaxed (2) for the launch alone, whether or not that fails."""
    two_gpus.capturing, two_gpus.mode = True, 1
    executor = runtime._new_executor(torch.device("cuda", index))
    executor.launch(hinted, (1,), ())
    assert two_gpus.launches == [(index, 1000 + index, 2)]
    assert two_gpus.mode == 1

    def fails(*_):
        raise ValueError("it does not compile")

    monkeypatch.setattr(ct, "launch", fails)
    with pytest.raises(ValueError, match="it does not compile"):
        executor.launch(hinted, (1,), ())
    assert two_gpus.mode == 1


def test_a_driver_that_refuses_is_told(monkeypatch):
    driver = SimpleNamespace(cuThreadExchangeStreamCaptureMode=lambda _: 3)
    monkeypatch.setattr(capture, "_driver", lambda: driver)
    with pytest.raises(RuntimeError, match="failed with CUDA error 3"), capture.loading_allowed():
        raise AssertionError("the block ran")
