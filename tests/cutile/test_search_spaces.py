"""The search space of each tuned function: host code takes it, entries hold it, it compiles; and the wheel's tables."""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import asdict
from typing import get_type_hints

import pytest
import torch

from tilegym import get_registry_info
from tilegym.records import from_json
from tilegym.testing import load_implementation, materialize
from tilegym_cutile import attention_config, gemm_config, tables, tuning
from tilegym_cutile.compilation import Case, compile_case
from tilegym_cutile.runtime import ARCHITECTURES, recording
from tilegym_cutile.tune_command import _difference

IMPLEMENTATIONS = {
    op: load_implementation(op, "cutile") for op, backends in get_registry_info().items() if "cutile" in backends
}
NAMES = [
    name for name, function in tuning._functions.items() if function.heuristic.__module__.startswith("tilegym_cutile.")
]
DTYPE = torch.bfloat16


def launches_of(op, sample):
    """What a call on a sample launches on an sm_90, forward and backward."""
    implementation = IMPLEMENTATIONS[op]
    with recording(arch="sm_90") as launches:
        arguments = materialize(sample, dtype=DTYPE, device="meta")
        implementation(arguments)
        if implementation.contract.gradient is not None and arguments.get("out") is None:
            implementation.differentiate(arguments)
    return launches


@functools.cache
def questions():
    """Name of a tuned function → one of the questions that benchmarks ask it, with the op and sample."""
    found = {}
    for op, implementation in IMPLEMENTATIONS.items():
        for sample in (implementation.contract.benchmarks or implementation.contract.samples)():
            with tuning.observed() as asked:
                launches_of(op, sample)
            for question in asked:
                found.setdefault(question.function.name, (question, op, sample))
    return found


def test_there_are_a_few_configurations_to_try_for_each_function():
    few = {name: len(question.space) for name, (question, _, _) in questions().items()}
    assert {name: number for name, number in few.items() if not 3 <= number <= 60} == {}


@pytest.mark.parametrize("target", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_there_are_for_problems_of_any_size(target):
    """Few columns and few terms too, which large tiles are not for."""
    found = {}
    for size, blocked, dtype in itertools.product((1, 16, 64, 300, 4096), (True, False), (DTYPE, torch.float8_e4m3fn)):
        how = (dtype, False, blocked, target)
        found[("group", size, *how)] = gemm_config.group_search_space(size, *how)
        for k in (1, 64, 4096):
            more = (dtype, False, blocked, True, target)
            found[("gemm", size, k, *how)] = gemm_config.search_space(size, 4096, k, (False, False), *more)
    found |= {("attention", size): attention_config.forward_space(size, target) for size in (16, 64, 128, 256, 512)}
    few = {problem: len(set(space)) for problem, space in found.items()}
    assert {problem: number for problem, number in few.items() if not 3 <= number <= 60} == {}


@pytest.mark.parametrize("name", NAMES)
def test_host_code_takes_every_configuration_and_an_entry_holds_it(name):
    question, op, sample = questions()[name]
    for config in question.space:
        assert _difference(question.plain, config)
        assert from_json(type(question.plain), json.loads(json.dumps(asdict(config))), "entry") == config
        with tuning.forced(question, config):
            assert launches_of(op, sample)


def new_launches(question, op, sample):
    """What the first configuration launches that compiles to another kernel than what the heuristic's own does."""
    known = {(launch.kernel, launch.signature.symbol) for launch in launches_of(op, sample)}
    for config in question.space:
        with tuning.forced(question, config):
            launches = {(one.kernel, one.signature.symbol): one for one in launches_of(op, sample)}
        if new := launches.keys() - known:
            return [launches[key] for key in new]
    raise AssertionError("no configuration makes a difference to what is compiled")


@pytest.mark.parametrize("name", NAMES)
def test_the_first_configuration_compiles(name):
    question, op, sample = questions()[name]
    for launch in new_launches(question, op, sample):
        usage = compile_case(Case(op=op, sample=sample.name, dtype=DTYPE, launch=launch), "sm_90").usage
        assert 0 < usage.registers <= 255


@pytest.mark.parametrize("path", sorted(tables.FOLDER.glob("*.json")), ids=lambda path: path.name)
def test_a_table_of_the_wheel_is_of_a_gpu_and_fits_the_functions_of_today(path):
    table = tables.read(path)
    assert path.name == tables.file_name(table.device)
    assert table.device != "cutile-cpu"
    for name, entries in table.functions.items():
        config = get_type_hints(tuning._functions[name].heuristic)["return"]
        for key, fields in entries.items():
            from_json(config, fields, f"{name} {key}")
