"""How sure a model is of a translation: the log-probabilities of its tokens, and a calibrated probability from them.

A calibration is fitted on translations whose references are known (`vanilla-transformer calibrate`) and lies beside the
weights as `confidence.json`.
"""

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path

import torch


CONFIDENCE = "confidence.json"

# The signals that judge a translation, in nats per token. Each is computed from the log-probabilities of the tokens
# and, under dropout, from those of the whole translation. A surprisal is -log P.
SIGNALS: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "mean_surprisal": lambda tokens, samples: -math.fsum(tokens) / len(tokens),
    "largest_surprisal": lambda tokens, samples: -min(tokens),
    "dropout_surprisal": lambda tokens, samples: -math.fsum(samples) / len(samples) / len(tokens),
    "dropout_deviation": lambda tokens, samples: _deviation(samples) / len(tokens),
}
PLAIN_SIGNALS = ("mean_surprisal", "largest_surprisal")  # those that need no dropout
_MOST_SAMPLES = 10_000  # more take memory, and tell no more
_LEAST = 1e-6  # nats: float32 has no surprisal nearer to 0


def log_signal(name: str, tokens: Sequence[float], samples: Sequence[float]) -> float:
    """The logarithm of one of `SIGNALS`, which spreads sure translations as much as the others."""
    return math.log(max(SIGNALS[name](tokens, samples), _LEAST))


def _deviation(samples: Sequence[float]) -> float:
    mean = math.fsum(samples) / len(samples)
    return math.sqrt(math.fsum((each - mean) ** 2 for each in samples) / len(samples))


@dataclass(frozen=True)
class Calibration:
    """The probability that a translation is good: sigmoid(intercept + sum of weight times log(signal)).

    It is the scaling of Platt (1999) with several signals, `SIGNALS`: the mean surprisal -log P of a token, the largest
    one, and, where `dropout_samples` is not 0, the mean surprisal in that many passes with dropout and its standard
    deviation over the passes (Gal & Ghahramani 2016; Fomicheva et al. 2020). All are in nats per token, with `</s>`.

    Attributes:
        threshold: A translation is good if its sentence chrF, from 0 to 100, is at least this.
        intercept: See the formula.
        weights: The weight of each signal by its name.
        dropout_samples: Passes with dropout; 0: none.
        seed: Random seed of the passes.
        weights_sha256: Digest of the model's weights; a calibration holds for no others.
        record: The data it was fitted on, when, and how well it does on unseen data.
    """

    threshold: float
    intercept: float
    weights: dict[str, float]
    dropout_samples: int = 0
    seed: int = 0
    weights_sha256: str = ""
    record: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = self.weights.keys() - SIGNALS.keys()
        numbers = (self.threshold, self.intercept, *self.weights.values())
        if unknown or not self.weights or not all(math.isfinite(each) for each in numbers):
            raise ValueError(f"weights must name some of {', '.join(SIGNALS)}, and all numbers must be finite")
        needed = self.weights.keys() - {*PLAIN_SIGNALS}
        bounds = {"dropout_samples": (2 if needed else 0, _MOST_SAMPLES), "seed": (0, 2**32 - 1)}
        for name, (least, most) in bounds.items():
            if type(found := getattr(self, name)) is not int or not least <= found <= most:
                raise ValueError(f"{name} must be a whole number from {least} to {most:,}, not {found!r:.100}")

    def confidence(self, tokens: Sequence[float], samples: Sequence[float] = ()) -> float:
        """The probability that a translation is good, from 0 to 1.

        Args:
            tokens: Log-probabilities of its tokens.
            samples: Log-probability of the whole translation in each pass with dropout.
        """
        z = self.intercept + sum(weight * log_signal(name, tokens, samples) for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-z)) if z >= 0 else math.exp(z) / (1 + math.exp(z))

    def to_json(self) -> dict:
        """The content of `confidence.json`."""
        definition = f"probability that the sentence chrF of a translation is at least {self.threshold:g}"
        return {"definition": definition, **asdict(self)}


def load_calibration(folder: str | PathLike[str]) -> Calibration:
    """The calibration beside a model's weights.

    Raises:
        FileNotFoundError: There is no calibration.
        ValueError: It is damaged, or belongs to other weights.
    """
    path = Path(folder, CONFIDENCE)
    remedy = f"vanilla-transformer calibrate {folder} --sources FILE --references FILE"
    if not path.is_file():
        raise FileNotFoundError(f"The model in {folder} is not calibrated, so it has no confidence: {remedy}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = Calibration(**{name: value for name, value in content.items() if name != "definition"})
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"{path} is not a calibration ({error}). Calibrate again: {remedy}") from error
    if found.weights_sha256 != sha256_of_weights(folder):
        raise ValueError(f"{path} was made for other weights than those beside it. Calibrate again: {remedy}")
    return found


def sha256_of_weights(folder: str | PathLike[str]) -> str:
    """One digest of all the weights in a folder."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).glob("*.safetensors")):
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@torch.no_grad()
def token_log_probabilities(model, inputs: dict[str, torch.Tensor], labels: torch.LongTensor) -> torch.Tensor:
    """log P(token | source, tokens before it) of every token of given translations, in nats.

    Args:
        model: A sequence-to-sequence model. In training mode its dropout is on.
        inputs: `input_ids` and `attention_mask`, (batch, source).
        labels: (batch, target) token ids with `</s>`, -100 where there is padding.

    Returns:
        float32 (batch, target), 0 at padding.
    """
    # Without labels: with them, a model in training mode may return no logits, or those of two passes.
    decoder_input_ids = model.prepare_decoder_input_ids_from_labels(labels=labels)
    outputs = model(**inputs, decoder_input_ids=decoder_input_ids, use_cache=False, return_dict=True)
    scores = outputs.logits.float().log_softmax(dim=-1)
    return scores.gather(2, labels.clamp(min=0)[..., None])[..., 0].masked_fill(labels == -100, 0)


def dropout_log_probabilities(
    model, source: Sequence[int], target: Sequence[int], samples: int, seed: int
) -> list[float]:
    """Log-probability of a translation in several passes with dropout, which samples the model's posterior.

    Gal & Ghahramani (2016, "Dropout as a Bayesian Approximation"); for translations Fomicheva et al. (2020,
    "Unsupervised Quality Estimation for Neural Machine Translation"). The passes are the rows of one batch. The draws
    depend on the seed and the pair alone, not on other pairs, their order or the process.

    Args:
        model: A sequence-to-sequence model; its mode is left as it was.
        source, target: Token ids.
        samples: How many passes.
        seed: Seed for torch's generator, whose state is left as it was.
    """
    device = model.device
    inputs = {"input_ids": torch.tensor([[*source]] * samples, device=device)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    labels = torch.tensor([[*target]] * samples, device=device)
    own_seed = seed + zlib.crc32(repr((*source, -1, *target)).encode())
    with forked_generators(device), mode_of(model, training=True):
        torch.manual_seed(own_seed)
        return token_log_probabilities(model, inputs, labels).double().sum(dim=1).tolist()


def forked_generators(device: torch.device):
    """A context whose random draws leave torch's generators (the CPU's and the device's) unchanged."""
    devices, kind = ([], "cuda") if device.type == "cpu" else ([device], device.type)  # no devices: any type will do
    return torch.random.fork_rng(devices, device_type=kind)


@contextmanager
def mode_of(model, *, training: bool):
    """Puts a model into training or evaluation mode for the length of the block."""
    before = model.training
    model.train(training)
    try:
        yield
    finally:
        model.train(before)


__all__ = [
    "Calibration",
    "dropout_log_probabilities",
    "load_calibration",
    "sha256_of_weights",
    "token_log_probabilities",
]
