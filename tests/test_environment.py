"""The report on the machine and the installed packages, for runs and bug reports."""

import json
import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import packaging
import psutil
import torch
import transformers

import vanilla_transformer
from vanilla_transformer import environment
from vanilla_transformer.commands.env import env
from vanilla_transformer.environment import extras, machine, nvidia_driver, seen_by_torch, versions


def lines_of(capsys) -> dict[str, str]:
    env()
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("- ") for line in lines)
    return dict(line.removeprefix("- ").split(": ", 1) for line in lines)


def test_report_has_library_versions_and_threads(capsys):
    lines = lines_of(capsys)
    for library in (vanilla_transformer, torch, transformers):
        assert lines[library.__name__.replace("_", "-")] == library.__version__
    assert lines["Python"] == sys.version.split()[0]
    assert lines["threads"] == str(torch.get_num_threads())


def test_json_report_contains_every_part(capsys):
    env(json=True)
    found = json.loads(capsys.readouterr().out)
    assert found == {**versions(), "extras": extras(), **machine(), "nvidia_driver": nvidia_driver(), **seen_by_torch()}


def test_cores_and_memory_match_psutil_and_limits(tmp_path, monkeypatch):
    found = machine()
    assert found["cpu_cores"] == len(psutil.Process().cpu_affinity())
    assert found["memory"] <= psutil.virtual_memory().total
    monkeypatch.setattr(environment, "_LIMITS", (tmp_path / "none", tmp_path / "limit"))
    for limit, expected in (("max\n", psutil.virtual_memory().total), ("1048576\n", 2**20)):
        (tmp_path / "limit").write_text(limit)
        assert machine()["memory"] == expected


def test_processor_and_instructions_are_read_from_cpuinfo(tmp_path, monkeypatch):
    x86 = "processor\t: 0\nmodel name\t: A Processor\nflags\t\t: fpu avx avx2 avx512f amx_bf16 amx_tile\n"
    arm = "processor\t: 0\nFeatures\t: fp asimd sve bf16\n"
    for text, name, instructions in (
        (f"{x86}\n{x86}", "A Processor", ["AVX2", "AVX-512", "AMX BF16"]),
        (arm, "aarch64", ["NEON", "SVE", "BF16"]),
    ):
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(environment, "_PROCESSOR", tmp_path / "cpuinfo")
        monkeypatch.setattr(environment.platform, "processor", lambda: "")
        monkeypatch.setattr(environment.platform, "machine", lambda: "aarch64")
        found = machine()
        assert (found["processor"], found["instructions"]) == (name, instructions)


def test_extras_with_unmet_requirements_are_reported(capsys, monkeypatch):
    class Metadata:
        def get_all(self, field, otherwise):
            return {
                "Provides-Extra": ["whole", "half", "test"],
                "Requires-Dist": [
                    "torch>=2.6",
                    f'packaging=={packaging.__version__}; extra == "whole"',
                    'packaging>=9999; extra == "half"',
                    'no-such-package>=1 ; python_version >= "3.11" and extra == "half"',
                    'no-such-package ; python_version < "3" and extra == "whole"',
                    'no-such-package; extra == "test"',
                ],
            }[field]

    monkeypatch.setattr(environment, "metadata", lambda name: Metadata())
    lines = lines_of(capsys)
    assert lines["extras installed"] == f"whole (packaging {packaging.__version__})"
    assert lines["extras not installed"].startswith("half (lacks packaging>=9999")

    def not_found(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(environment, "metadata", not_found)
    assert extras() == {}


def test_nvidia_driver_version_is_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(environment, "_DRIVER", tmp_path / "version")
    assert nvidia_driver() is None
    for kind in ("x86_64 Kernel Module", "Open Kernel Module for x86_64"):
        text = (
            f"NVRM version: NVIDIA UNIX {kind}  570.133.20  Release Build  (builder@host)\nGCC version:  gcc 12.3.0\n"
        )
        (tmp_path / "version").write_text(text)
        assert nvidia_driver() == "570.133.20"
        assert lines_of(capsys)["CUDA"].endswith(", NVIDIA driver 570.133.20")


def test_every_gpu_has_a_line(capsys, monkeypatch):
    gpu = SimpleNamespace(name="A GPU", total_memory=80 * 2**30, major=9, minor=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: gpu)
    env()
    assert capsys.readouterr().out.count("- GPU: A GPU, 80.0 GiB, compute capability 9.0\n") == 2


def test_unimportable_torch_is_reported(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    lines = lines_of(capsys)
    assert "torch" in lines["torch cannot be imported"]
    assert lines["cores"] == str(machine()["cpu_cores"])
    assert "GPU" not in lines
