"""Registers this package with transformers' Auto classes, without paying for them before they are used.

transformers has no plugin discovery: this package must call `AutoModel.register`, which needs the model's class, and
importing that takes a second or more. So the call waits until transformers itself loads the module that keeps the
registry. CTranslate2's converter has a registry of its own, and is treated in the same way.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec


_CONFIG_REGISTRY = "transformers.models.auto.configuration_auto"
_MODEL_REGISTRY = "transformers.models.auto.modeling_auto"
_PIPELINE_REGISTRY = "transformers.pipelines"
_CONVERTER = "ctranslate2.converters.transformers"
_PIPELINE = "vanilla_transformer.model.pipeline_vanilla_transformer"
_MODELS = (
    "vanilla_transformer.model.modeling_vanilla_transformer",
    "vanilla_transformer.model.classification_vanilla_transformer",
)
# A module of transformers that our models need, and that loads the registry of models during its own import.
_FOUNDATION = "transformers.modeling_layers"
_WATCHED = {_FOUNDATION, _CONFIG_REGISTRY, _MODEL_REGISTRY, _PIPELINE_REGISTRY, _PIPELINE, _CONVERTER, *_MODELS}
_REGISTERED: set[str] = set()  # where: a second time would replace what the user has registered since


def register_with_transformers() -> None:
    """Registers our classes with the Auto classes, `pipeline()` and CTranslate2's converter, once these are loaded.

    Checked on transformers 5.17 and 5.23.
    """
    loaded = {name for name in _WATCHED if name in sys.modules}
    if not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport(loaded))
    _register(loaded)


def _register(loaded: set[str]) -> None:
    # Our modules load the registries in which they are registered: until their import ends there is no class.
    begun = {name for name in _WATCHED if name in sys.modules and name not in loaded}
    if _CONFIG_REGISTRY in loaded and _CONFIG_REGISTRY not in _REGISTERED:
        from transformers.models.auto.configuration_auto import AutoConfig

        from .model.configuration_vanilla_transformer import VanillaTransformerConfig

        AutoConfig.register(VanillaTransformerConfig.model_type, VanillaTransformerConfig)
        _REGISTERED.add(_CONFIG_REGISTRY)
    if _MODEL_REGISTRY in loaded and begun.isdisjoint({_FOUNDATION, *_MODELS}) and _MODEL_REGISTRY not in _REGISTERED:
        from transformers.models.auto import modeling_auto as auto

        from .model import classification_vanilla_transformer as classification
        from .model import modeling_vanilla_transformer as modeling
        from .model.configuration_vanilla_transformer import VanillaTransformerConfig as Config

        auto.AutoModel.register(Config, modeling.VanillaTransformerModel)
        auto.AutoModelForSeq2SeqLM.register(Config, modeling.VanillaTransformerForConditionalGeneration)
        for_classes = classification.VanillaTransformerForSequenceClassification
        auto.AutoModelForSequenceClassification.register(Config, for_classes)
        _REGISTERED.add(_MODEL_REGISTRY)
    if _PIPELINE_REGISTRY in loaded and _PIPELINE not in begun and _PIPELINE_REGISTRY not in _REGISTERED:
        from .model.pipeline_vanilla_transformer import register_translation_pipeline

        register_translation_pipeline()
        _REGISTERED.add(_PIPELINE_REGISTRY)
    if _CONVERTER in loaded and _CONVERTER not in _REGISTERED:
        _register_with_ctranslate2()
        _REGISTERED.add(_CONVERTER)


def _register_with_ctranslate2() -> None:
    """Gives CTranslate2's converter a loader that fills its specification from ours (see `export/ctranslate2.py`)."""
    from ctranslate2.converters.transformers import register_loader

    @register_loader("VanillaTransformerConfig")
    class VanillaTransformerLoader:
        architecture_name = "AutoModelForSeq2SeqLM"

        def __call__(self, model, tokenizer):
            from .export.ctranslate2 import specification  # only now: converting other models must cost nothing more

            return specification(model, tokenizer)


class _AfterImport:
    """Lets the ordinary finders find the watched modules, and registers after each of them has been executed.

    It acts as a finder but does not inherit from one: `importlib.abc` would take three quarters of our import time.
    """

    def __init__(self, loaded: set[str]):
        self.loaded = loaded
        self.waiting = _WATCHED - loaded

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        self.waiting.discard(fullname)  # so that the call below asks the ordinary finders
        try:
            spec = find_spec(fullname)
        finally:
            self.waiting.add(fullname)  # someone may only have looked for it
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def then_register(module) -> None:
                execute(module)  # after an interrupt the next import is watched as well
                self.waiting.discard(fullname)
                self.loaded.add(fullname)
                _register(self.loaded)

            spec.loader.exec_module = then_register
        return spec
