"""Training and search rarely read tensor values, because the host waits for a GPU at each read.

Tensors on the meta device have shapes but no values: code that runs there never reads one, and takes the paths of a
device other than the CPU. On a CPU every read is counted, with its place. The last tests need a GPU.
"""

import itertools
import traceback
import warnings
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from transformers import TrainerCallback

from vanilla_transformer.model import modeling_vanilla_transformer, steps_vanilla_transformer
from vanilla_transformer.model.masks_vanilla_transformer import without_cudnn
from vanilla_transformer.model.search_vanilla_transformer import Restrictions, exact_top_k
from vanilla_transformer.model.steps_vanilla_transformer import StepwiseDecoder
from vanilla_transformer.translation import translate
from vanilla_transformer.translation.precision import in_precision


DROPOUTS = ("dropout", "attention_dropout", "activation_dropout", "source_word_dropout", "target_word_dropout")
LOOKS = {"tolist", "item", "__bool__", "__int__", "__float__", "__index__", "nonzero", "numpy", "cpu", "__array__"}


class Looks(TorchFunctionMode):
    """Counts, by function, the reads of tensor values at which the host would wait for a device."""

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
def test_training_step_reads_no_tensor_values(make_model, options, output_bias):
    model = make_model(label_smoothing=0.1, output_bias=output_bias, **options).train().to("meta")
    model.tie_weights()  # moving to the meta device builds every matrix anew
    batch = {
        "input_ids": torch.ones(4, 7, dtype=torch.long, device="meta"),
        "attention_mask": torch.ones(4, 7, dtype=torch.long, device="meta"),
        "labels": torch.ones(4, 9, dtype=torch.long, device="meta"),
    }
    alignment = torch.ones(4, 9, 7, device="meta")
    for without_logits, guide in itertools.product((False, True), (None, alignment)):
        model.zero_grad()
        model(**batch, alignment=guide, return_logits=not without_logits).loss.backward()
        assert all(parameter.grad is not None for parameter in model.parameters())


def test_search_step_reads_no_tensor_values(make_model):
    model = make_model().eval().to("meta")
    tokens = torch.ones(3, 4, dtype=torch.long, device="meta")
    restrictions, before = Restrictions(forbidden=(5, 6), unrepeated=3), tokens[..., None].expand(-1, -1, 7)
    with torch.no_grad():
        decoder = StepwiseDecoder(model, torch.ones(3, 5, model.config.d_model, device="meta"), None, beams=4)
        for _ in range(3):
            scores = restrictions.on(decoder.scores(tokens), 7, before)
            values, places = exact_top_k(scores.log_softmax(dim=-1).flatten(1), 8)
            decoder.continue_from(places[:, :4] // scores.shape[2])
        decoder.keep(torch.ones(2, dtype=torch.long, device="meta"))
        assert decoder.scores(tokens[:2]).shape == (2, 4, model.config.vocab_size)
    assert exact_top_k(torch.empty(3, 8000, device="meta"), 8)[0].shape == values.shape == (3, 8)


ON_A_GPU = SimpleNamespace(device=torch.device("cuda"))


class CuDNN(TorchFunctionMode):
    """Records for each sdpa call whether torch may choose cuDNN's kernel."""

    def __init__(self):
        super().__init__()
        self.allowed: list[bool] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.scaled_dot_product_attention:
            self.allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return func(*args, **(kwargs or {}))


def test_sdpa_for_a_gpu_disables_cudnn(make_model, monkeypatch):
    """Everywhere in the model and in the search; the CPU runs the GPU's code path here."""
    for module in (modeling_vanilla_transformer, steps_vanilla_transformer):
        monkeypatch.setattr(module, "without_cudnn", lambda query: without_cudnn(ON_A_GPU))
    model = make_model(attn_implementation="sdpa", dropout=0.0, encoder_layers=2, decoder_layers=2)
    ids = torch.arange(70, 88).view(2, 9)
    for run, count in (
        (lambda: model.train()(input_ids=ids, labels=ids).loss.backward(), 6),
        (lambda: model.eval().generate(input_ids=ids, max_new_tokens=1, num_beams=2), 2 + 4),
    ):
        with CuDNN() as cudnn:
            run()
        assert cudnn.allowed == [False] * count
        assert torch.backends.cuda.cudnn_sdp_enabled()


def test_outermost_context_restores_cudnn_after_an_error():
    def fails():
        with without_cudnn(ON_A_GPU):
            with without_cudnn(ON_A_GPU):
                assert not torch.backends.cuda.cudnn_sdp_enabled()
            assert not torch.backends.cuda.cudnn_sdp_enabled()
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    "chosen",
    [[SDPBackend.CUDNN_ATTENTION], [SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH], [SDPBackend.EFFICIENT_ATTENTION]],
)
def test_kernels_chosen_by_the_user_are_kept(chosen):
    with sdpa_kernel(chosen):
        for _ in range(2):
            with without_cudnn(ON_A_GPU):
                assert torch.backends.cuda.cudnn_sdp_enabled() == (SDPBackend.CUDNN_ATTENTION in chosen)
        assert torch.backends.cuda.cudnn_sdp_enabled() == (SDPBackend.CUDNN_ATTENTION in chosen)


# Functions that read values only on a CPU, or whose tensors are always there.
ON_CPU = {"check_source_mask", "_softmax_", "_loss_without_logits", "_digamma", "vectors", "_align_embeddings"}


@pytest.mark.parametrize(
    ("batches", "more"),
    [(1, {}), (2, {}), (1, {"guided_alignment": 0.1, "aligned_embeddings": 0.8}), (1, {"optim": "muon"})],
)
def test_update_waits_for_the_device_once(make_trainer, batches, more):
    options = {"logging_steps": 100, "max_steps": 8, "gradient_accumulation_steps": batches, "max_grad_norm": 1.0}
    trainer = make_trainer(**options, **more)
    with Looks() as looks:
        trainer.train()
    rest = {name: count for name, count in looks.found.items() if name not in ON_CPU}
    assert rest.pop("_measure") == 8  # the guard's test for a finite loss, once an update
    # The others come once an epoch, when torch's loader draws its seed on the host, and at the end.
    assert sum(rest.values()) <= 1 + 2 * (1 + 8 * batches // len(trainer.train_batches)), rest


# Methods of `Hypotheses` and `_Samples`, and a function of theirs: their tensors are on the host.
ON_HOST = {"advance", "_candidates", "_end", "append", "done", "translations"}


@pytest.mark.parametrize(("options", "looks_a_step"), [({"num_beams": 4}, 2), ({"num_beams": 1}, 1)])
def test_search_step_waits_only_for_its_results(make_model, options, looks_a_step):
    """On a CPU beam search reads scores and places separately; from a GPU they come as one tensor."""
    model, counts = make_model().eval(), []
    source = torch.arange(70, 88).view(2, 9)
    for steps in (6, 12):
        with Looks() as looks:
            model.generate(input_ids=source, max_new_tokens=steps, eos_token_id=None, **options)
        counts.append(sum(count for name, count in looks.found.items() if name not in ON_HOST))
    assert counts[1] - counts[0] == 6 * looks_a_step


# --------------------------------------------------------------------------------------------------------- on a GPU

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def a_batch(device, guided=False):
    """Four sources of 3 to 9 tokens and targets of 4 to 10, padded; if guided, each token aligned with every other."""
    generator = torch.Generator().manual_seed(3)
    ids, labels = (torch.randint(70, 90, (4, length), generator=generator) for length in (9, 10))
    mask = torch.arange(9) < torch.tensor([[9], [3], [6], [5]])
    labels = labels.masked_fill(torch.arange(10) >= torch.tensor([[4], [10], [7], [5]]), -100)
    batch = {"input_ids": ids.masked_fill(~mask, 1), "attention_mask": mask.long(), "labels": labels}
    batch |= {"alignment": 0.01 * mask[:, None] * (labels != -100)[..., None]} if guided else {}
    return {name: tensor.to(device) for name, tensor in batch.items()}


@on_a_gpu
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("without_logits", [False, True])
def test_gpu_loss_and_gradients_match_cpu(make_model, attention, without_logits):
    found = {}
    for device in ("cpu", "cuda"):
        model = make_model(attn_implementation=attention, label_smoothing=0.1, dropout=0.0).train().to(device)
        loss = model(**a_batch(device, guided=True), return_logits=not without_logits).loss
        loss.backward()
        found[device] = [loss.detach().cpu(), *(parameter.grad.cpu() for parameter in model.parameters())]
    torch.testing.assert_close(found["cuda"], found["cpu"], rtol=1e-4, atol=1e-5)


@on_a_gpu
@pytest.mark.parametrize("options", [{}, dict.fromkeys(DROPOUTS, 0.1), {"r_drop_alpha": 5.0, "dropout": 0.1}])
@pytest.mark.parametrize("bf16", [False, True])
def test_torch_reports_no_sync_in_training_step(make_model, options, bf16):
    """Every synchronization that torch knows of is an error here, also inside its own functions."""
    model, batch = make_model(label_smoothing=0.1, **options).train().to("cuda"), a_batch("cuda", guided=True)
    for return_logits in (True, False):
        for mode in ("default", "error"):  # the first step may wait while it sets things up
            torch.cuda.set_sync_debug_mode(mode)
            try:
                with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
                    loss = model(**batch, return_logits=return_logits).loss
                loss.backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()


@on_a_gpu
@pytest.mark.parametrize("options", [{"num_beams": 4, "num_return_sequences": 4}, {"num_beams": 1}])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_gpu_translations_match_cpu(make_model, options, attention):
    found = {}
    for device in ("cpu", "cuda"):
        model, batch = make_model(attn_implementation=attention).eval().to(device), a_batch(device)
        del batch["labels"]
        found[device] = model.generate(
            **batch, max_new_tokens=12, return_dict_in_generate=True, output_scores=True, **options
        )
    assert found["cuda"].sequences.tolist() == found["cpu"].sequences.tolist()
    if "num_return_sequences" in options:
        torch.testing.assert_close(found["cuda"].sequences_scores.cpu(), found["cpu"].sequences_scores)


@on_a_gpu
@pytest.mark.parametrize("options", [{"num_beams": 4}, {"num_beams": 1}])
def test_torch_reports_one_sync_per_search_step(make_model, options):
    model, counts = make_model().eval().to("cuda"), []
    source = torch.arange(70, 88).view(2, 9).to("cuda")
    for steps in (6, 6, 12):  # the first run sets up what later ones reuse
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                model.generate(input_ids=source, max_new_tokens=steps, eos_token_id=None, **options)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        counts.append(sum("synchron" in str(each.message) for each in found))
    assert counts[2] - counts[1] == 6


@on_a_gpu
@pytest.mark.parametrize("bf16", [False, True])
def test_gpu_run_resumes_exactly(make_trainer, make_model, bf16):
    """With every dropout on: the checkpoint has the GPU's random state."""

    class Updates(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            updates.append(state.global_step)

    def trained(max_steps, resume=False, **options):
        model = make_model(attn_implementation="eager", **dict.fromkeys(DROPOUTS, 0.1))
        trainer = make_trainer(
            model, use_cpu=False, bf16=bf16, max_steps=max_steps, callbacks=[Updates()], **options
        )  # fmt: skip
        updates.clear()
        trainer.train(resume_from_checkpoint=resume)
        assert trainer.model.device.type == "cuda"
        return {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}

    updates = []
    whole = trained(8)
    assert trained(8) == whole
    trained(5, save_strategy="steps", save_steps=5)
    assert trained(8, True) == whole
    assert updates == [6, 7, 8]


@on_a_gpu
def test_gpu_attention_uses_cudnn_only_when_chosen(make_model):
    model = make_model(attn_implementation="sdpa").to("cuda", torch.bfloat16)
    ids = torch.arange(70, 88, device="cuda").view(2, 9)

    def takes_cudnn() -> bool:
        with torch.profiler.profile() as profile:
            model.train()(input_ids=ids, labels=ids).loss.backward()
            model.eval().generate(input_ids=ids, max_new_tokens=3, num_beams=2)
        return any("cudnn_attention" in event.name for event in profile.events())

    assert not takes_cudnn()
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.MATH], set_priority=True):
        assert takes_cudnn()


@on_a_gpu
def test_compiled_model_matches_eager_on_gpu(make_model):
    model, batch = make_model(label_smoothing=0.1, dropout=0.1).eval().to("cuda"), a_batch("cuda")
    compiled = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(compiled(**batch).loss, model(**batch).loss, rtol=1e-4, atol=1e-5)
    compiled(**batch).loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@on_a_gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "auto"])
def test_gpu_translates_in_every_precision(make_model, tokenizer, precision):
    texts = ["tiny words", "a tiny vocabulary of tiny words", "", "vocabulary"]
    expected = translate(make_model().eval(), tokenizer, texts, max_new_tokens=8)
    found = translate(in_precision(make_model().eval().to("cuda"), precision), tokenizer, texts, max_new_tokens=8)
    assert len(found) == 4
    assert precision != "float32" or found == expected
