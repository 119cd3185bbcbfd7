"""The code that travels with a saved model: `trust_remote_code=True` loads it where this package is not installed.

The configuration's `save_pretrained` lays this folder's files beside `config.json` and names our classes in it.
Everything that saves or uploads a model goes through it, in the main process alone: `model.save_pretrained`, also with
`push_to_hub`, whose upload begins before it returns; `push_to_hub`; Trainer's checkpoints; pipelines. transformers' own
way, `register_for_auto_class`, would name only the saved class, and inspect it at every decoding step.

Checked on transformers 5.17 and 5.23.
"""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from transformers.utils import CONFIG_NAME, TRANSFORMERS_DYNAMIC_MODULE_NAME


if TYPE_CHECKING:
    # transformers fetches a file and the files that it imports in lines like these. Through them each file leads to
    # all others: a model loaded that way can pass on all of the code, whichever class was asked for.
    from .checks_vanilla_transformer import check_token  # noqa: F401
    from .classification_vanilla_transformer import VanillaTransformerForSequenceClassification  # noqa: F401
    from .confidence_vanilla_transformer import Calibration  # noqa: F401
    from .configuration_vanilla_transformer import VanillaTransformerConfig  # noqa: F401
    from .constraints_vanilla_transformer import LexicalConstraints  # noqa: F401
    from .conversion_vanilla_transformer import from_marian  # noqa: F401
    from .dropout_vanilla_transformer import dropout  # noqa: F401
    from .ensemble_vanilla_transformer import EnsembleForConditionalGeneration  # noqa: F401
    from .generation_vanilla_transformer import PaperGeneration  # noqa: F401
    from .linear_vanilla_transformer import projected  # noqa: F401
    from .loss_vanilla_transformer import linear_cross_entropy  # noqa: F401
    from .modeling_vanilla_transformer import VanillaTransformerModel  # noqa: F401
    from .pipeline_vanilla_transformer import TranslationPipeline  # noqa: F401
    from .search_vanilla_transformer import beam_search  # noqa: F401
    from .steps_vanilla_transformer import StepwiseDecoder  # noqa: F401
    from .weights_vanilla_transformer import SafetensorsOnly  # noqa: F401


LANGUAGES_TASK = re.compile(r"translation_(\w+)_to_(\w+)")

_CLASSIFIER = "VanillaTransformerForSequenceClassification"
_AUTO_MAP = {
    "AutoConfig": "configuration_vanilla_transformer.VanillaTransformerConfig",
    "AutoModel": "modeling_vanilla_transformer.VanillaTransformerModel",
    "AutoModelForSeq2SeqLM": "modeling_vanilla_transformer.VanillaTransformerForConditionalGeneration",
    "AutoModelForSequenceClassification": f"classification_vanilla_transformer.{_CLASSIFIER}",
}
_PIPELINES = {
    "translation": {"impl": "pipeline_vanilla_transformer.TranslationPipeline", "pt": ["AutoModelForSeq2SeqLM"]}
}


def save_code(folder: str | os.PathLike) -> None:
    """Lays our files beside a saved `config.json` and enters our classes in it.

    Each file is complete from the moment it appears. The configuration comes last, so what it names is already there.

    Args:
        folder: Where the configuration was saved.
    """
    for path in Path(__file__).parent.glob("*_vanilla_transformer.py"):
        _replace(Path(folder) / path.name, path.read_bytes())
    file = Path(folder) / CONFIG_NAME
    fields = json.loads(file.read_text(encoding="utf-8")) | {"auto_map": _AUTO_MAP, "custom_pipelines": _PIPELINES}
    if _CLASSIFIER in (fields.get("architectures") or ()):
        del fields["custom_pipelines"]  # `pipeline(model=...)` would make up a decoder for it
    _replace(file, (json.dumps(fields, indent=2, sort_keys=True) + "\n").encode())


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def without_code(fields: dict) -> dict:
    """The fields of a `config.json` that a configuration should keep.

    If this package is installed, these are all fields except the entries of `save_code`. Those would ask for trust that
    no user needs to give, and would make a loaded configuration differ from the saved one. If this file itself came
    with a model, these are all fields, and the pipeline works for every pair of languages.
    """
    if not __name__.startswith(f"{TRANSFORMERS_DYNAMIC_MODULE_NAME}."):
        return {name: value for name, value in fields.items() if name not in ("auto_map", "custom_pipelines")}
    if fields.get("custom_pipelines"):
        return {**fields, "custom_pipelines": TranslationTasks(fields["custom_pipelines"])}
    return fields


class TranslationTasks(dict):
    """The pipelines that come with a model, with `translation_xx_to_yy` as an alias of `translation`.

    An entry is handed out as a copy: transformers writes classes into it, and a configuration with classes in it cannot
    be saved.
    """

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or bool("translation" in self.keys() and LANGUAGES_TASK.fullmatch(str(task)))

    def __getitem__(self, task: str) -> dict:
        return dict(super().__getitem__(task if super().__contains__(task) else "translation"))


__all__ = ["LANGUAGES_TASK", "TranslationTasks", "save_code", "without_code"]
