"""The installed packages and the machine: a run records them, and `vanilla-transformer env` shows them.

Only `seen_by_torch` and `has_bfloat16` import torch: if that fails, the rest is still available.
"""

import os
import platform
import re
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path

from . import __version__


_NAME = "vanilla-transformer"
_PACKAGES = ("torch", "transformers", "tokenizers", "datasets", "huggingface-hub", "accelerate", "sacrebleu")
_FOR_DEVELOPERS = {"docs", "test"}
# Instructions that make matrix products fast on x86 and on Arm, by Linux's names.
_INSTRUCTIONS = {
    "avx2": "AVX2", "avx512f": "AVX-512", "avx_vnni": "AVX-VNNI", "avx512_vnni": "AVX-512 VNNI",
    "avx512_bf16": "AVX-512 BF16", "avx512_fp16": "AVX-512 FP16", "amx_int8": "AMX INT8", "amx_bf16": "AMX BF16",
    "asimd": "NEON", "asimddp": "NEON dot product", "sve": "SVE", "i8mm": "I8MM", "bf16": "BF16",
}  # fmt: skip
_PROCESSOR = Path("/proc/cpuinfo")
# Linux's limit for a container's memory, in cgroups 2 and 1.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
_DRIVER = Path("/proc/driver/nvidia/version")


# -------------------------------------------------------------------------------------------------------- what is here


def versions() -> dict:
    """`python`, and `packages`: versions by name, None for what is missing."""
    packages = {_NAME: __version__, **{name: _version(name) for name in _PACKAGES}}
    return {"python": platform.python_version(), "packages": packages}


def extras() -> dict[str, dict]:
    """For each extra, by name: its `packages` with their versions, and those `missing` or of a wrong version.

    Empty where the package is on the path but was never installed.
    """
    from packaging.requirements import Requirement

    try:
        about = metadata(_NAME)
    except PackageNotFoundError:
        return {}
    needed = [Requirement(line) for line in about.get_all("Requires-Dist", ())]
    needed = [each for each in needed if each.marker is not None and not each.marker.evaluate({"extra": ""})]
    found = {}
    for name in sorted({*about.get_all("Provides-Extra", ())} - _FOR_DEVELOPERS):
        packages, missing = {}, []
        for each in needed:
            if each.marker.evaluate({"extra": name}):
                packages[each.name] = there = _version(each.name)
                if there is None or not each.specifier.contains(there, prereleases=True):
                    missing.append(f"{each.name}{each.specifier}")
        found[name] = {"packages": packages, "missing": missing}
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


# --------------------------------------------------------------------------------------------------------- the machine


def machine() -> dict:
    """`platform`, `processor`, `instructions` (empty where unknown), `cpu_cores` and `memory` in bytes.

    Cores and memory are those that this process may use.
    """
    processor, instructions = _processor()
    return {
        "platform": platform.platform(),
        "processor": processor,
        "instructions": instructions,
        "cpu_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": _memory(),
    }


def nvidia_driver() -> str | None:
    """The driver's version, even where torch finds no GPU; known only on Linux."""
    with suppress(OSError):
        if found := re.search(r"^NVRM version:.*?\s(\d+\.[\d.]+)\s", _DRIVER.read_text(encoding="utf-8")):
            return found[1]
    return None


def _processor() -> tuple[str, list[str]]:
    """Its name, and those of its instructions that matter here."""
    fields = {}
    with suppress(OSError):
        for line in _PROCESSOR.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", fields.get("Features", "")).split()
    name = fields.get("model name") or platform.processor() or platform.machine()
    return name, [shown for flag, shown in _INSTRUCTIONS.items() if flag in flags]


def _memory() -> int | None:
    """Bytes of the machine, or of the container if that has fewer; None where unknown."""
    sizes = []
    with suppress(AttributeError, OSError, ValueError):  # Windows has no sysconf
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in _LIMITS:
        with suppress(OSError, ValueError):  # "max" where there is no limit
            sizes.append(int(limit.read_text(encoding="ascii")))
    return min(sizes, default=None)


def resident_bytes(field: str = "VmRSS", process: int | str = "self") -> int | None:
    """The resident memory of a process: now ("VmRSS"), or the most so far ("VmHWM").

    None on systems without Linux's /proc, or if the process has ended. (`ru_maxrss` would begin with that of the
    parent process.)
    """
    return _bytes_in(Path(f"/proc/{process}/status"), field)


def free_bytes() -> int | None:
    """How much memory Linux could give to processes now; None elsewhere."""
    return _bytes_in(Path("/proc/meminfo"), "MemAvailable")


def _bytes_in(file: Path, field: str) -> int | None:
    """Bytes from a line such as `VmRSS:  1024 kB` in a file of /proc; None without the file or the line."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
    except (OSError, ValueError, StopIteration):
        return None


# ----------------------------------------------------------------------------------------------------- what torch sees


def seen_by_torch() -> dict:
    """`threads`, `fast_bfloat16` (on the processor), `cuda` (the version torch was built for) and `gpus`.

    Each GPU has a `name`; those of CUDA have `memory` in bytes and their compute `capability`.

    Raises:
        ImportError, OSError: torch cannot be imported.
    """
    import torch

    gpus = [{"name": "mps"}] if torch.backends.mps.is_available() else []
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        of_gpu = torch.cuda.get_device_properties(number)
        capability = f"{of_gpu.major}.{of_gpu.minor}"
        gpus.append({"name": of_gpu.name, "memory": of_gpu.total_memory, "capability": capability})
    return {
        "threads": torch.get_num_threads(),
        "fast_bfloat16": has_bfloat16(use_cpu=True),
        "cuda": torch.version.cuda,
        "gpus": gpus,
    }


def has_bfloat16(use_cpu: bool) -> bool:
    """Whether torch multiplies fast in bfloat16, on x86 by AVX-512. Unknown devices are assumed to."""
    import torch

    if use_cpu:
        return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return not torch.cuda.is_available() or torch.cuda.is_bf16_supported(including_emulation=False)
