"""What stands beside the score of a metric that sacreBLEU does not have."""

from importlib.metadata import PackageNotFoundError, version

from sacrebleu.metrics.base import Signature


class OwnSignature(Signature):
    """Signature of a metric that sacreBLEU does not have: `settings` of the metric, and our version."""

    def __init__(self, args: dict):
        super().__init__(args)
        self.info.update(args["settings"])
        self.info["version"] = f"vanilla-transformer-{_own_version()}"


def _own_version() -> str:
    try:
        return version("vanilla-transformer")
    except PackageNotFoundError:  # imported from a checkout that was never installed
        return "checkout"
