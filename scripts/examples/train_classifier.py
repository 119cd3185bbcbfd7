"""Trains the encoder as a classifier, with transformers' own Trainer, on the sentence polarity data.

    python scripts/examples/train_classifier.py sentence_polarity --output runs/polarity
    python scripts/examples/train_classifier.py sentence_polarity --output runs/polarity --test \\
        --card model_cards/polarity.md

The first command trains every pooling with every seed and shows how good each is on the validation part, beside a
logistic regression on bags of words. The test part is not read before --test, which scores the existing models. Each
finished run is kept in OUTPUT: the same command resumes after an interruption.
"""

import argparse
import json
import logging
import platform
import shlex
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from classifier_card import classifier_card, comparison_rows
from sentence_classification import BagOfWords, LabelledSentences, split_by_hash
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_callback import PrinterCallback
from transformers.utils.logging import disable_progress_bar

from vanilla_transformer import VanillaTransformerConfig  # the import registers our models with the Auto classes
from vanilla_transformer.commands.process import prepare_for_training
from vanilla_transformer.data.tokenizer import TokenizerSettings, learn_tokenizer
from vanilla_transformer.files import write_json, write_text, written_beside


logger = logging.getLogger("train_classifier")

CLASSES = {0: "negative", 1: "positive"}
FILES = {0: "rt-polarity.neg", 1: "rt-polarity.pos"}
POOLINGS = ["mean", "max", "first", "last"]
PENALTIES = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)


@dataclass(frozen=True)
class Settings:
    """The settings of all runs in a folder."""

    vocab_size: int = 6000
    d_model: int = 128
    layers: int = 2
    attention_heads: int = 4
    ffn_dim: int = 256
    dropout: float = 0.3
    learning_rate: float = 1e-3
    warmup_steps: int = 200
    batch_size: int = 64
    epochs: int = 10


def main() -> None:
    options = parsed_options()
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logger.setLevel(logging.INFO)
    disable_progress_bar()
    prepare_for_training()
    try:
        compare(options)
    except (ValueError, OSError) as error:
        sys.exit(f"train_classifier.py: {error}")


def compare(options: argparse.Namespace) -> None:
    parts = split_by_hash({label: options.data / name for label, name in FILES.items()})
    runs = Runs(options.output, Settings(**{name: getattr(options, name) for name in asdict(Settings())}))
    tokenizer = runs.tokenizer(parts["train"])
    for pooling in options.poolings:
        for seed in options.seeds:
            runs.train(pooling, seed, tokenizer, parts)
    runs.fit_baseline(parts)
    if options.test:
        runs.test(parts["test"], parts["train"])
    print(json.dumps(runs.record, indent=2) if options.json else table(runs.record))
    if options.card:
        command = shlex.join(["python", "scripts/examples/train_classifier.py", *sys.argv[1:]])
        write_text(options.card, classifier_card(runs.record, runs.best_model(), command=command))


def parsed_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help=f"folder with {' and '.join(FILES.values())}")
    parser.add_argument("--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--poolings", nargs="+", choices=POOLINGS, default=POOLINGS, help="which to compare")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3], help="of the runs of each pooling")
    parser.add_argument("--test", action="store_true", help="score on the test part: once, when all is decided")
    parser.add_argument("--json", action="store_true", help="print what is kept in OUTPUT/results.json, not a table")
    parser.add_argument("--card", type=Path, help="with --test: write a model card of the runs to this file")
    for name, value in asdict(Settings()).items():
        parser.add_argument(f"--{name}", type=type(value), default=value, help=f"default: {value}")
    options = parser.parse_args()
    if not all(0 <= seed < 2**32 for seed in options.seeds):
        parser.error(f"seeds are from 0 to {2**32 - 1}, not {options.seeds}")
    if options.epochs < 1:
        parser.error(f"--epochs must be 1 or more, not {options.epochs}")
    if options.card and not options.test:
        parser.error("--card needs --test: a card says how good a model is on sentences that decided nothing")
    return options


class Runs:
    """A folder of runs: `results.json`, and a model with its tokenizer for each pooling and seed.

    Raises:
        ValueError: The folder was begun with other settings, or its results file is something else.
        FileExistsError: The folder is a file.
    """

    def __init__(self, folder: Path, settings: Settings):
        self.folder, self.settings, self.file = folder, settings, folder / "results.json"
        if folder.exists() and not folder.is_dir():
            raise FileExistsError(f"{folder} is a file: choose another --output.")
        folder.mkdir(parents=True, exist_ok=True)
        self.record = {"settings": asdict(settings), "runs": []}
        if self.file.exists():
            self.record = self._kept()
            if self.record["settings"] != asdict(settings):
                raise ValueError(f"{folder} was begun with {self.record['settings']}: choose another --output.")

    def _kept(self) -> dict:
        try:
            record = json.loads(self.file.read_text(encoding="utf-8"))
            return {"settings": record["settings"], "runs": record["runs"], **record}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.file} is not a results file of this script: choose another --output.") from error

    def tokenizer(self, train: LabelledSentences) -> PreTrainedTokenizerBase:
        """Learned from the training part alone, so that it is the same every time."""
        chosen = TokenizerSettings(vocab_size=self.settings.vocab_size, pretokenized=True)
        return learn_tokenizer(train.sentences, chosen)

    def train(self, pooling: str, seed: int, tokenizer: PreTrainedTokenizerBase, parts: dict) -> None:
        """Does one run, unless it is done already, and keeps the epoch that is best on the validation part."""
        if any((run["pooling"], run["seed"]) == (pooling, seed) for run in self.record["runs"]):
            return
        began, place = time.perf_counter(), self.folder / f"{pooling}-{seed}"
        shutil.rmtree(place, ignore_errors=True)  # left by an interrupted run
        set_seed(seed)
        model = AutoModelForSequenceClassification.from_config(self._config(pooling, len(tokenizer)))
        trainer = Trainer(
            model,
            self._arguments(place / "checkpoints", seed),
            train_dataset=rows_of(parts["train"], tokenizer),
            eval_dataset=rows_of(parts["validation"], tokenizer),
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=lambda found: {"accuracy": 100 * float(np.mean(found[0].argmax(axis=1) == found[1]))},
        )
        trainer.remove_callback(PrinterCallback)  # standard output is for the table
        trainer.train()
        with written_beside(place / "model") as beside:
            trainer.model.save_pretrained(beside)
            tokenizer.save_pretrained(beside)
        curve = [entry["eval_accuracy"] for entry in trainer.state.log_history if "eval_accuracy" in entry]
        self.record["runs"].append(
            {
                "pooling": pooling,
                "seed": seed,
                "validation_accuracy": max(curve),
                "validation_accuracy_by_epoch": curve,
                "parameters": model.num_parameters(),
                "seconds": round(time.perf_counter() - began, 1),
                "environment": environment(),
            }
        )
        shutil.rmtree(place / "checkpoints")
        self._keep()
        logger.info("%s pooling, seed %d: %.1f %% of the validation part", pooling, seed, max(curve))

    def _config(self, pooling: str, vocab_size: int) -> VanillaTransformerConfig:
        s = self.settings
        return VanillaTransformerConfig(
            vocab_size=vocab_size,
            d_model=s.d_model,
            encoder_layers=s.layers,
            encoder_attention_heads=s.attention_heads,
            encoder_ffn_dim=s.ffn_dim,
            decoder_attention_heads=s.attention_heads,  # there is no decoder
            dropout=s.dropout,
            classifier_pooling=pooling,
            id2label=CLASSES,
            label2id={name: label for label, name in CLASSES.items()},
        )

    def _arguments(self, folder: Path, seed: int) -> TrainingArguments:
        s = self.settings
        return TrainingArguments(
            str(folder),
            seed=seed,
            num_train_epochs=s.epochs,
            per_device_train_batch_size=s.batch_size,
            per_device_eval_batch_size=256,
            learning_rate=s.learning_rate,
            warmup_steps=s.warmup_steps,
            adam_beta2=0.98,
            adam_epsilon=1e-9,
            train_sampling_strategy="group_by_length",
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            load_best_model_at_end=True,
            metric_for_best_model="accuracy",
            report_to="none",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )

    def fit_baseline(self, parts: dict) -> None:
        """Logistic regression, with the penalty that is best on the validation part."""
        if "bag_of_words" in self.record:
            return
        found = []
        for penalty in PENALTIES:
            began = time.perf_counter()
            model = BagOfWords(parts["train"], penalty)
            seconds = round(time.perf_counter() - began, 1)
            accuracy = model.accuracy(parts["validation"])
            found.append(
                {
                    "penalty": penalty,
                    "validation_accuracy": accuracy,
                    "parameters": model.parameters,
                    "seconds": seconds,
                }
            )
        self.record["bag_of_words"] = max(found, key=lambda each: each["validation_accuracy"])
        self.record["sentences"] = {name: len(part) for name, part in parts.items()}
        self._keep()

    def test(self, test: LabelledSentences, train: LabelledSentences) -> None:
        """Scores every model that has no score on the test part yet."""
        for run in self.record["runs"]:
            if "test_accuracy" not in run:
                run["test_accuracy"] = accuracy_of(self._model_of(run), test)
                self._keep()
        baseline = self.record["bag_of_words"]
        if "test_accuracy" not in baseline:
            baseline["test_accuracy"] = BagOfWords(train, baseline["penalty"]).accuracy(test)
            self._keep()

    def _model_of(self, run: dict) -> Path:
        return self.folder / f"{run['pooling']}-{run['seed']}" / "model"

    def best_model(self) -> Path:
        """The model that is best on the validation part."""
        return self._model_of(max(self.record["runs"], key=lambda run: run["validation_accuracy"]))

    def _keep(self) -> None:
        write_json(self.file, self.record)


def environment() -> dict:
    """Everything that a run's figures may depend on."""
    return {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": torch.get_num_threads(),
    }


def rows_of(part: LabelledSentences, tokenizer: PreTrainedTokenizerBase) -> list[dict]:
    encoded = tokenizer(part.sentences).input_ids
    return [{"input_ids": ids, "labels": label} for ids, label in zip(encoded, part.labels, strict=True)]


@torch.no_grad()
def accuracy_of(folder: Path, part: LabelledSentences) -> float:
    """A saved model's percentage of right answers."""
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    right = 0
    for start in range(0, len(part), 128):
        batch = tokenizer(part.sentences[start : start + 128], padding=True, return_tensors="pt")
        labels = torch.tensor(part.labels[start : start + 128])
        right += int((model.eval()(**batch).logits.argmax(dim=1) == labels).sum())
    return 100 * right / len(part)


def table(record: dict) -> str:
    """Mean and standard deviation over the seeds, one line per pooling."""
    head = ("model", "runs", "validation", "test", "parameters", "seconds")
    rows = [head, *comparison_rows(record)]
    return "\n".join(f"{row[0]:<16}{row[1]:>5}" + "".join(f"{cell:>14}" for cell in row[2:]) for row in rows)


if __name__ == "__main__":
    main()
