"""Makes transformers' Auto classes know this package, without paying for them before they are used.

transformers has no plugin discovery: somebody must call `AutoModel.register`, which needs the model's class, whose
import takes a second or more. So the call waits until transformers itself loads the module that keeps the registry.
`evaluate`, whose evaluators ask transformers for a name that it no longer has, is served in the same way, and
CTranslate2, whose converter has a registry of its own.
"""

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec


_CONFIG_REGISTRY = "transformers.models.auto.configuration_auto"
_MODEL_REGISTRY = "transformers.models.auto.modeling_auto"
_PIPELINE_REGISTRY = "transformers.pipelines"
_EVALUATOR = "evaluate.evaluator.base"
_CONVERTER = "ctranslate2.converters.transformers"
_PIPELINE = "vanilla_transformer.model.pipeline_vanilla_transformer"
_MODELS = (
    "vanilla_transformer.model.modeling_vanilla_transformer",
    "vanilla_transformer.model.classification_vanilla_transformer",
)
# Of transformers' own modules, one that our models need and that loads the registry of models while it is being loaded.
_FOUNDATION = "transformers.modeling_layers"
_WATCHED = {
    _FOUNDATION, _CONFIG_REGISTRY, _MODEL_REGISTRY, _PIPELINE_REGISTRY, _PIPELINE, _EVALUATOR, _CONVERTER, *_MODELS
}  # fmt: skip


def register_with_transformers() -> None:
    """Registers configuration and models with the Auto classes, and the translation pipeline with `pipeline()`.

    And a loader with CTranslate2's converter.

    Now if transformers has loaded them, else when it does.

    Checked on transformers 5.17 and 5.23.
    """
    loaded = {name for name in _WATCHED if name in sys.modules}
    if not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport(loaded))
    _register(loaded)


def _register(loaded: set[str]) -> None:
    # Our modules load the registries that they are to be entered in: until their import has ended there is no class.
    begun = {name for name in _WATCHED if name in sys.modules and name not in loaded}
    if _CONFIG_REGISTRY in loaded:
        from transformers.models.auto.configuration_auto import AutoConfig

        from .model.configuration_vanilla_transformer import VanillaTransformerConfig

        AutoConfig.register(VanillaTransformerConfig.model_type, VanillaTransformerConfig)
    if _MODEL_REGISTRY in loaded and begun.isdisjoint({_FOUNDATION, *_MODELS}):
        from transformers.models.auto.modeling_auto import (
            AutoModel,
            AutoModelForSeq2SeqLM,
            AutoModelForSequenceClassification,
        )

        from .model.classification_vanilla_transformer import VanillaTransformerForSequenceClassification
        from .model.configuration_vanilla_transformer import VanillaTransformerConfig
        from .model.modeling_vanilla_transformer import (
            VanillaTransformerForConditionalGeneration,
            VanillaTransformerModel,
        )

        AutoModel.register(VanillaTransformerConfig, VanillaTransformerModel)
        AutoModelForSeq2SeqLM.register(VanillaTransformerConfig, VanillaTransformerForConditionalGeneration)
        AutoModelForSequenceClassification.register(
            VanillaTransformerConfig, VanillaTransformerForSequenceClassification
        )
    if _PIPELINE_REGISTRY in loaded and _PIPELINE not in begun:
        from .model.pipeline_vanilla_transformer import register_translation_pipeline

        register_translation_pipeline()
    if _CONVERTER in loaded:
        from .export import ctranslate2_loader  # noqa: F401  (it registers itself)
    if _EVALUATOR in loaded:
        _make_room_for_pipelines_in_evaluate()


def _make_room_for_pipelines_in_evaluate() -> None:
    """Lets `evaluate.evaluator(...)` take a pipeline: it asks of each whether it is a model of TensorFlow.

    transformers 5 has no such models and therefore not the name, which is an AttributeError. Nothing is an instance of
    the class that stands in. It is there only where evaluators are. Checked on evaluate 0.4.1 and 0.4.6.
    """
    # The one that evaluate asks: there can be two, since transformers loads itself anew for its pipelines.
    transformers = sys.modules[_EVALUATOR].transformers
    if not hasattr(transformers, "TFPreTrainedModel"):
        doc = "No model is one: transformers 5 dropped TensorFlow."
        transformers.TFPreTrainedModel = type("TFPreTrainedModel", (), {"__doc__": doc, "__module__": __name__})


class _AfterImport(MetaPathFinder):
    """Lets the ordinary finders find those modules, and registers each time one of them has been executed."""

    def __init__(self, loaded: set[str]):
        self.loaded = loaded
        self.waiting = _WATCHED - loaded

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        self.waiting.discard(fullname)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenRegister(spec.loader, self.loaded)
        return spec


class _ThenRegister(Loader):
    def __init__(self, loader: Loader, loaded: set[str]):
        self.loader = loader
        self.loaded = loaded

    def create_module(self, spec: ModuleSpec):
        return self.loader.create_module(spec)

    def exec_module(self, module) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.loaded.add(module.__name__)
        _register(self.loaded)
