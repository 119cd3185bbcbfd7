"""What CTranslate2's converter of models of transformers asks for ours; see `ctranslate2.py` beside it."""

from ctranslate2.converters.transformers import register_loader


@register_loader("VanillaTransformerConfig")
class VanillaTransformerLoader:
    """Fills CTranslate2's specification with a model that the converter has loaded."""

    architecture_name = "AutoModelForSeq2SeqLM"

    def __call__(self, model, tokenizer):
        """The specification, complete. What that needs is imported now: converting another model costs nothing more."""
        from .ctranslate2 import specification

        return specification(model, tokenizer)
