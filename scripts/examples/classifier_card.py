"""The model card of classifiers compared on the sentence polarity data, made from the comparison's record."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from huggingface_hub import EvalResult, ModelCardData

from vanilla_transformer.model.configuration_vanilla_transformer import VanillaTransformerConfig
from vanilla_transformer.sharing.card_sections import CITATION, fenced, how_to_classify, markdown_table


DATA_CITATION = """\
```bibtex
@inproceedings{pang2005seeing,
  title     = {Seeing Stars: Exploiting Class Relationships for Sentiment Categorization with Respect to Rating Scales},
  author    = {Pang, Bo and Lee, Lillian},
  booktitle = {Proceedings of the 43rd Annual Meeting of the Association for Computational Linguistics},
  pages     = {115--124},
  year      = {2005}
}
```"""


def comparison_rows(record: Mapping) -> list[list[str]]:
    """Model, runs, validation and test accuracy (mean ± standard deviation of the seeds), parameters, mean seconds.

    Args:
        record: The contents of train_classifier.py's `results.json`.
    """
    groups: dict[str, list[Mapping]] = {}
    for run in record["runs"]:
        groups.setdefault(f"encoder, {run['pooling']}", []).append(run)
    groups["bag of words"] = [record["bag_of_words"]]
    return [
        [
            name,
            str(len(runs)),
            *(_spread([run.get(f"{part}_accuracy") for run in runs]) for part in ("validation", "test")),
            f"{runs[0]['parameters']:,}",
            f"{statistics.mean(run['seconds'] for run in runs):.0f}",
        ]
        for name, runs in groups.items()
    ]


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "–"
    mean = f"{statistics.mean(known):.1f}"
    return f"{mean} ± {statistics.stdev(known):.1f}" if len(known) > 1 else mean


def classifier_card(record: Mapping, model: Path, *, command: str) -> str:
    """Writes down what was compared and how good each model was.

    Args:
        record: As for `comparison_rows`, with the scores of the test part.
        model: The folder of the model that the card is for, one of the runs.
        command: The command line that reproduces everything.
    """
    config = VanillaTransformerConfig.from_pretrained(model)
    name, seed = model.parent.name.rsplit("-", 1)
    [run] = [each for each in record["runs"] if (each["pooling"], str(each["seed"])) == (name, seed)]
    metadata = ModelCardData(
        language="en",
        library_name="transformers",
        pipeline_tag="text-classification",
        tags=["vanilla_transformer", "attention-is-all-you-need"],
        metrics=["accuracy"],
        model_name="Sentence polarity, the encoder alone",
        eval_results=[
            EvalResult(
                task_type="text-classification",
                dataset_type="sentence_polarity",
                dataset_name="sentence polarity 1.0, a tenth by hash",
                metric_type="accuracy",
                metric_value=round(run["test_accuracy"], 2),
            )
        ],
    )
    head = ["model", "runs", "validation", "test", "parameters", "seconds"]
    table = markdown_table(head, comparison_rows(record), range(1, 6))
    baseline, encoders = record["bag_of_words"]["test_accuracy"], [each["test_accuracy"] for each in record["runs"]]
    better = sum(accuracy > baseline for accuracy in encoders)
    counts = ", ".join(f"{number:,} for {part}" for part, number in record["sentences"].items())
    settings = ", ".join(f"{field} {value}" for field, value in record["settings"].items())
    environments = [
        ", ".join(f"{name} {value}" for name, value in each["environment"].items()) for each in record["runs"]
    ]
    sections = [
        f"---\n{metadata.to_yaml()}\n---",
        "# Sentence polarity, the encoder alone",
        f"Says whether a sentence of a film review is {' or '.join(config.id2label.values())}. The sentence must be in "
        "lower case, with spaces between words. "
        f'The encoder of "Attention Is All You Need" ({config.encoder_layers} layers, d_model {config.d_model}, '
        f"{config.encoder_attention_heads} heads, d_ff {config.encoder_ffn_dim}, a vocabulary of "
        f"{config.vocab_size:,}), its states pooled into one vector ({config.classifier_pooling}), and a linear layer; "
        f"{run['parameters']:,} parameters, trained from random weights.",
        how_to_classify("USER/sentence-polarity", "a gripping , beautiful film ."),
        "## How good it is\n\nAccuracy in percent, mean and standard deviation over seeds; seconds of a run. Bag of "
        "words is a logistic regression on which words are there. Everything was chosen on the validation part: how "
        "long each run trains, the regression's penalty, and which run this card is of "
        f"({run['pooling']}, seed {run['seed']}: {run['test_accuracy']:.1f} on the test part). "
        f"On the test part, {better} of the {len(encoders)} encoders beat the bag of words.\n\n{table}",
        "## Intended use and limits\n\nTeaching: it shows what an encoder learns from a few thousand sentences, "
        "and what can be learned without one. It knows the words of film reviews from before 2005, and nothing "
        "of the meaning behind them; nobody should use it to make decisions about people.",
        "## Training data\n\nSentence polarity data set 1.0 (Pang and Lee 2005; CC BY 4.0), "
        f"{counts}, by SHA-256 of each sentence.",
        f"## Training\n\n{fenced(command)}\n\nSettings: {settings}. {'; '.join(dict.fromkeys(environments))}.",
        f"## Citation\n\n{CITATION}\n\n{DATA_CITATION}",
    ]
    return "\n\n".join(sections) + "\n"
