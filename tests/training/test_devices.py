"""What a GPU would be kept waiting by: training and searching look at values as rarely as is written down.

Tensors of the meta device have shapes and no values: what runs on it never asks for one, and takes the ways of a device
that is not the CPU. On a CPU every look is counted, and where it is.
"""

import traceback
from collections import Counter

import pytest
import torch
from torch.overrides import TorchFunctionMode

from vanilla_transformer.model.search_vanilla_transformer import exact_top_k
from vanilla_transformer.model.steps_vanilla_transformer import StepwiseDecoder


DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "source_word_dropout", "target_word_dropout")
LOOKS = {"tolist", "item", "__bool__", "__int__", "__float__", "__index__", "nonzero", "numpy", "cpu", "__array__"}


class Looks(TorchFunctionMode):
    """Counts the functions that look at a tensor's values in which the host would wait for a device."""

    def __init__(self):
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        index = args[1:] if name == "__getitem__" else ()
        by_mask = any(isinstance(each, torch.Tensor) and each.dtype == torch.bool for each in index)
        if name in LOOKS or by_mask:
            frames = [frame for frame in traceback.extract_stack()[:-1] if frame.filename != torch.overrides.__file__]
            self.found[frames[-1].name] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("options", [{}, dict.fromkeys(DROPOUTS, 0.1), {"r_drop_alpha": 5.0, "dropout": 0.1}])
@pytest.mark.parametrize("output_bias", [False, True])
def test_a_training_step_asks_for_no_value(make_model, options, output_bias):
    model = make_model(label_smoothing=0.1, output_bias=output_bias, **options).train().to("meta")
    model.tie_weights()  # the meta device builds every matrix anew
    batch = {
        "input_ids": torch.ones(4, 7, dtype=torch.long, device="meta"),
        "attention_mask": torch.ones(4, 7, dtype=torch.long, device="meta"),
        "labels": torch.ones(4, 9, dtype=torch.long, device="meta"),
    }
    for without_logits in (False, True):
        model.zero_grad()
        model(**batch, return_logits=not without_logits).loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_step_of_the_search_asks_for_no_value(make_model):
    model = make_model().eval().to("meta")
    tokens = torch.ones(3, 4, dtype=torch.long, device="meta")
    with torch.no_grad():
        decoder = StepwiseDecoder(model, torch.ones(3, 5, model.config.d_model, device="meta"), None, beams=4)
        for _ in range(3):
            scores = decoder.scores(tokens)
            values, places = exact_top_k(scores.log_softmax(dim=-1).flatten(1), 8)
            decoder.continue_from(places[:, :4] // scores.shape[2])
        decoder.keep(torch.ones(2, dtype=torch.long, device="meta"))
        assert decoder.scores(tokens[:2]).shape == (2, 4, model.config.vocab_size)
    assert exact_top_k(torch.empty(3, 8000, device="meta"), 8)[0].shape == values.shape == (3, 8)


# Where values are looked at on a CPU alone.
ON_CPU = {"check_source_mask", "_softmax_", "_loss_without_logits"}


@pytest.mark.parametrize("batches", [1, 2])
def test_an_update_waits_once(make_trainer, batches):
    trainer = make_trainer(logging_steps=100, max_steps=8, gradient_accumulation_steps=batches, max_grad_norm=1.0)
    with Looks() as looks:
        trainer.train()
    rest = {name: count for name, count in looks.found.items() if name not in ON_CPU}
    assert rest.pop("_measure") == 8  # the guard's, once an update: it is the test of a finite loss
    # The rest is of an epoch, when torch's loader draws its seed on the host, and of the end.
    assert sum(rest.values()) <= 1 + 2 * (1 + 8 * batches // len(trainer.train_batches)), rest


@pytest.mark.parametrize(("options", "looks_a_step"), [({"num_beams": 4}, 2), ({"num_beams": 1}, 1)])
def test_a_search_waits_for_what_it_has_found_and_no_more(make_model, options, looks_a_step):
    model, counts = make_model().eval(), []
    source = torch.arange(70, 88).view(2, 9)
    for steps in (6, 12):
        with Looks() as looks:
            model.generate(input_ids=source, max_new_tokens=steps, eos_token_id=None, **options)
        counts.append(sum(looks.found.values()))
    assert counts[1] - counts[0] == 6 * looks_a_step
