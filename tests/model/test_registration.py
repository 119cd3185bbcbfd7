"""`import vanilla_transformer` teaches the Auto classes the architecture, in any order of imports."""

from pathlib import Path

import pytest

from ..warm_python import LIBRARIES


REPOSITORY = Path(__file__).parents[2]

# Every Auto class must build the right model from a configuration and know its type.
CHECK = """
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification
sizes = dict(vocab_size=9, d_model=4, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
             decoder_attention_heads=1, encoder_ffn_dim=4, decoder_ffn_dim=4)
config = AutoConfig.for_model("vanilla_transformer", **sizes)
autos = AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification
made = [config, *(auto.from_config(config) for auto in autos)]
import vanilla_transformer
for each in made:
    name = type(each).__name__
    print(name, type(each) is getattr(vanilla_transformer, name))
"""
CLASSES = ("Config", "Model", "ForConditionalGeneration", "ForSequenceClassification")

ORDERS = {
    "package first": "import vanilla_transformer",
    "auto classes first": "from transformers import AutoModel, AutoModelForSeq2SeqLM\nimport vanilla_transformer",
    "configuration registry first": "from transformers import AutoConfig\nimport vanilla_transformer",
    "model module directly": "import vanilla_transformer.model.modeling_vanilla_transformer",
    "configuration module directly": "import vanilla_transformer.model.configuration_vanilla_transformer",
    "pipeline and Trainer first": "from transformers import Trainer, pipeline\nimport vanilla_transformer",
    "pipeline and Trainer after": "import vanilla_transformer\nfrom transformers import Trainer, pipeline",
    "another model after": "import vanilla_transformer\nfrom transformers import BertModel",
    "a foundation after": "import vanilla_transformer\nimport transformers.modeling_layers",
    "imported twice": (
        "import sys, importlib, vanilla_transformer\n"
        "vanilla_transformer.VanillaTransformerConfig, vanilla_transformer.VanillaTransformerModel\n"
        "importlib.reload(vanilla_transformer)\n"
        "vanilla_transformer.register_with_transformers()"
    ),
    "reloaded before its first use": (
        "import importlib, vanilla_transformer, vanilla_transformer._registration as registration\n"
        "importlib.reload(registration)\n"
        "importlib.reload(vanilla_transformer)"
    ),
}


def python(code: str) -> str:
    """Runs code in a process that has loaded torch but not transformers, and returns its output."""
    alone = "import sys; assert not {'transformers', 'vanilla_transformer'} & sys.modules.keys()"
    finished = LIBRARIES.run(f"{alone}\n{code}", cwd=REPOSITORY)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return finished.stdout


QUICK = ("package first", "auto classes first", "pipeline and Trainer first", "reloaded before its first use")


@pytest.mark.parametrize(
    "order", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ORDERS]
)
def test_auto_classes_know_the_architecture(order):
    found = python(f"{ORDERS[order]}\n{CHECK}").splitlines()
    assert found == [f"VanillaTransformer{name} True" for name in CLASSES]


def test_what_a_user_registers_stays():
    found = python("""
import importlib.util
import vanilla_transformer
importlib.util.find_spec("transformers.pipelines")  # only looks
from transformers import AutoModelForSeq2SeqLM
from vanilla_transformer import VanillaTransformerConfig, VanillaTransformerForConditionalGeneration
class Mine(VanillaTransformerForConditionalGeneration):
    pass
AutoModelForSeq2SeqLM.register(VanillaTransformerConfig, Mine, exist_ok=True)
from transformers.pipelines import PIPELINE_REGISTRY
print(AutoModelForSeq2SeqLM._model_mapping[VanillaTransformerConfig].__name__)
print("translation" in PIPELINE_REGISTRY.get_supported_tasks())
""")
    assert found.splitlines() == ["Mine", "True"]


def test_saved_folder_loads_through_the_auto_classes(tiny_model, tmp_path):
    tiny_model().save_pretrained(tmp_path)
    code = f"""
import vanilla_transformer
from transformers import AutoConfig, AutoModelForSeq2SeqLM, GenerationConfig
model = AutoModelForSeq2SeqLM.from_pretrained({str(tmp_path)!r})
print(type(model).__name__, model.config.d_model, AutoConfig.from_pretrained({str(tmp_path)!r}).model_type)
"""
    assert python(code).split() == ["VanillaTransformerForConditionalGeneration", "16", "vanilla_transformer"]


def test_unknown_name_raises_attribute_error():
    import vanilla_transformer

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        vanilla_transformer.nonsense  # noqa: B018
