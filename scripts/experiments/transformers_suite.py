"""Runs transformers' own common tests of models on our three classes: python scripts/experiments/transformers_suite.py

The tests are those of the installed version's source distribution, which pip fetches into a temporary folder; pytest
and `parameterized` must be installed. Tests of generation and export are not included: ours are
tests/model/test_contract_generation.py. Further arguments are passed to pytest, say `-k gradient`.
"""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import transformers


REPOSITORY = Path(__file__).resolve().parents[2]

# Modules that the tests import but a source distribution lacks.
MISSING = {
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/test_configuration_utils.py": """
config_common_kwargs = {
    "return_dict": False, "output_hidden_states": True, "output_attentions": True, "dtype": "float16",
    "chunk_size_feed_forward": 5, "architectures": ["BertModel"], "id2label": {0: "label"}, "label2id": {"label": "0"},
    "problem_type": "regression",
}
""",
}

OURS = """
import unittest

import torch
from transformers.models.auto import modeling_auto
from vanilla_transformer.model.classification_vanilla_transformer import VanillaTransformerForSequenceClassification
from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.model.modeling_vanilla_transformer import (
    VanillaTransformerForConditionalGeneration,
    VanillaTransformerModel,
)

from .generation.test_utils import GenerationTesterMixin
from .test_configuration_common import ConfigTester
from .test_modeling_common import ModelTesterMixin, ids_tensor

# The tests know by these tables which labels a class takes.
modeling_auto.MODEL_MAPPING_NAMES["ours"] = "VanillaTransformerModel"
modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES["ours"] = "VanillaTransformerForConditionalGeneration"
modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES["ours"] = "VanillaTransformerForSequenceClassification"


class Tester:
    batch_size, seq_length, vocab_size, hidden_size, num_hidden_layers, num_attention_heads = 13, 7, 99, 16, 2, 4
    encoder_layers = decoder_layers = 2
    encoder_seq_length = decoder_seq_length = key_length = seq_length
    is_training, num_labels = True, 3

    def __init__(self, has_decoder):
        self.has_decoder = has_decoder

    def get_config(self):
        sides = {"layers": 2, "attention_heads": 4, "ffn_dim": 4}
        sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sides.items()}
        config = VanillaTransformerConfig(vocab_size=99, d_model=16, attention_dropout=0.1, **sizes)
        config.is_encoder_decoder = self.has_decoder
        return config

    def prepare_config_and_inputs(self):
        ids, target = (ids_tensor([self.batch_size, self.seq_length], self.vocab_size).clamp(3) for _ in range(2))
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self.has_decoder:
            inputs |= {"decoder_input_ids": target, "decoder_attention_mask": torch.ones_like(target)}
        return self.get_config(), inputs

    prepare_config_and_inputs_for_common = prepare_config_and_inputs


class TranslatorTest(ModelTesterMixin, GenerationTesterMixin, unittest.TestCase):
    all_model_classes = (VanillaTransformerModel, VanillaTransformerForConditionalGeneration)
    all_generative_model_classes = (VanillaTransformerForConditionalGeneration,)
    is_encoder_decoder = True

    def setUp(self):
        self.model_tester = Tester(has_decoder=True)

    def test_config(self):
        ConfigTester(self, config_class=VanillaTransformerConfig).run_common_tests()


class ClassifierTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (VanillaTransformerForSequenceClassification,)

    def setUp(self):
        self.model_tester = Tester(has_decoder=False)
"""


def main() -> None:
    version = transformers.__version__
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*pip, "--dest", folder, f"transformers=={version}"], check=True)
        with tarfile.open(Path(folder) / f"transformers-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        tests = Path(folder) / f"transformers-{version}" / "tests"
        for name, text in {**MISSING, "test_ours.py": OURS, "__init__.py": ""}.items():
            (tests / name).parent.mkdir(exist_ok=True)
            (tests / name).parent.joinpath("__init__.py").touch()
            (tests / name).write_text(text, encoding="utf-8")
        # Runs in that folder, because the tests are a package, but with the installed library, not the one there.
        command = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); import pytest; sys.exit(pytest.main())"
        options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", f"--rootdir={tests.parent}", "-c", "/dev/null"]
        run = [sys.executable, "-c", command, *options, str(tests / "test_ours.py"), *sys.argv[1:]]
        sys.exit(subprocess.run(run, cwd=tests.parent, check=False).returncode)


if __name__ == "__main__":
    main()
