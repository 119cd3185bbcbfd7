"""What a bug report must say about the machine and the installed packages."""

import json as json_format


def env(*, json: bool = False) -> None:
    """Prints versions, processor, memory and GPUs, as Markdown to paste into a bug report.

    Args:
        json: Print JSON instead, for programs.
    """
    from ..environment import extras, machine, nvidia_driver, seen_by_torch, versions

    found = {**versions(), "extras": extras(), **machine(), "nvidia_driver": nvidia_driver()}
    try:
        found |= seen_by_torch()
    except (ImportError, OSError) as error:  # the report may be about just that
        found["torch_error"] = " ".join(str(error).split())
    print(json_format.dumps(found, indent=2) if json else _markdown(found))


def _markdown(found: dict) -> str:
    package, *others = [f"{name}: {number or 'not installed'}" for name, number in found["packages"].items()]
    extras = found["extras"].items()
    installed = [f"{name} ({_listed(each['packages'])})" for name, each in extras if not each["missing"]]
    lacking = [f"{name} (lacks {', '.join(each['missing'])})" for name, each in extras if each["missing"]]
    lines = [
        package,
        f"Python: {found['python']}",
        *others,
        f"extras installed: {', '.join(installed) or 'none'}",
        f"extras not installed: {', '.join(lacking) or 'none'}",
        f"platform: {found['platform']}",
        f"processor: {found['processor']}",
        f"cores: {found['cpu_cores']}",
        f"instructions: {', '.join(found['instructions']) or 'unknown'}",
        f"memory: {_size(found['memory'])}",
        *_seen_by_torch(found),
    ]
    return "\n".join(f"- {line}" for line in lines)


def _seen_by_torch(found: dict) -> list[str]:
    driver = f", NVIDIA driver {found['nvidia_driver']}" if found["nvidia_driver"] else ""
    if "torch_error" in found:
        return [f"torch cannot be imported{driver}: {found['torch_error']}"]
    return [
        f"threads: {found['threads']}",
        f"bfloat16 on the processor: {'fast' if found['fast_bfloat16'] else 'slow'}",
        f"CUDA: {found['cuda'] or 'torch is built without it'}{driver}",
        *([f"GPU: {_gpu(gpu)}" for gpu in found["gpus"]] or ["GPU: none"]),
    ]


def _gpu(gpu: dict) -> str:
    if "memory" not in gpu:
        return gpu["name"]
    return f"{gpu['name']}, {_size(gpu['memory'])}, compute capability {gpu['capability']}"


def _listed(packages: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def _size(count: int | None) -> str:
    return "unknown" if count is None else f"{count / 2**30:.1f} GiB"
