"""Averaging: the mean of every weight, a model that loads, and nothing left behind when it fails."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from vanilla_transformer.training.averaging import average_checkpoints


def checkpoint(folder, weights):
    folder.mkdir()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def random_weights(seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    shapes = {"a": (3, 4), "b": (5,), "scalar": ()}
    return {name: torch.randn(shape, generator=generator).to(dtype) for name, shape in shapes.items()}


def folders_of(tmp_path, dtype=torch.float32, count=3):
    return [checkpoint(tmp_path / f"c{seed}", random_weights(seed, dtype)) for seed in range(count)]


def averaged(checkpoints, tmp_path):
    average_checkpoints(checkpoints, tmp_path / "mean")
    return load_file(tmp_path / "mean" / "model.safetensors")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_mean_is_numpys_mean(tmp_path):
    mean = averaged(folders_of(tmp_path), tmp_path)
    for name, weight in mean.items():
        rows = np.stack([random_weights(seed)[name].numpy().astype(np.float64) for seed in range(3)])
        np.testing.assert_array_equal(weight.numpy(), rows.mean(axis=0).astype(np.float32))


def test_mean_that_is_not_finite_is_not_saved(tmp_path):
    values = {"c": 1.0, "d": torch.nan}
    folders = [checkpoint(tmp_path / name, {"a": torch.tensor([1.0, value])}) for name, value in values.items()]
    with pytest.raises(FloatingPointError, match=r"are not finite \(a\): the model is of no use"):
        averaged(folders, tmp_path)
    assert names(tmp_path) == ["c", "d"]


def test_sum_does_not_lose_small_differences(tmp_path):
    # In float32, 2^24 + 1 is 2^24: a float32 sum would lose the ones.
    rows = [2.0**24, 1.0, 1.0, 1.0]
    folders = [checkpoint(tmp_path / f"c{i}", {"w": torch.tensor([row])}) for i, row in enumerate(rows)]
    assert averaged(folders, tmp_path)["w"].double().item() == np.float32((2**24 + 3) / 4)


def test_bfloat16_weights_stay_bfloat16_and_are_rounded_once(tmp_path):
    mean = averaged(folders_of(tmp_path, torch.bfloat16), tmp_path)
    for name, weight in mean.items():
        exact = torch.stack([random_weights(seed, torch.bfloat16)[name].double() for seed in range(3)]).mean(dim=0)
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, exact.to(torch.bfloat16))


def test_mean_of_one_is_itself_and_paths_may_be_strings(tmp_path):
    average_checkpoints([str(folder) for folder in folders_of(tmp_path, count=1)], str(tmp_path / "mean"))
    mean = load_file(tmp_path / "mean" / "model.safetensors")
    assert all(torch.equal(weight, random_weights(0)[name]) for name, weight in mean.items())
    assert names(tmp_path / "mean") == ["digests.json", "model.safetensors"]


def test_output_is_complete_model_without_trainer_files(make_model, tokenizer, tmp_path):
    folders = [tmp_path / "checkpoint-1", tmp_path / "checkpoint-2"]
    for seed, folder in enumerate(folders):
        make_model(seed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "recipe.yaml").write_text(f"description: {seed}\n")
        (folder / "optimizer.pt").write_bytes(b"not part of a model")
    average_checkpoints(folders, tmp_path / "mean")
    mean = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean")
    weights = [AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict() for folder in folders]
    for name, weight in mean.state_dict().items():
        torch.testing.assert_close(weight, (weights[0][name] + weights[1][name]) / 2, rtol=1e-6, atol=1e-7)
    assert mean.lm_head.weight is mean.model.shared.weight
    loaded = AutoTokenizer.from_pretrained(tmp_path / "mean")
    assert loaded("tiny words").input_ids == tokenizer("tiny words").input_ids
    code = {path.name for path in folders[-1].glob("*.py")}
    assert "modeling_vanilla_transformer.py" in code
    model = {"config.json", "generation_config.json", "model.safetensors", "digests.json"} | code
    assert set(names(tmp_path / "mean")) == model | {"recipe.yaml", "tokenizer.json", "tokenizer_config.json"}
    assert (tmp_path / "mean" / "recipe.yaml").read_text() == "description: 1\n"


def test_invalid_checkpoints_are_named_and_nothing_is_written(tmp_path):
    folders = folders_of(tmp_path)
    shape = checkpoint(tmp_path / "shape", {**random_weights(0), "b": torch.zeros(6)})
    extra = checkpoint(tmp_path / "extra", {**random_weights(0), "z": torch.zeros(2)})
    (tmp_path / "empty").mkdir()
    wrong = [
        ([], ValueError, "no checkpoints to average"),
        ([*folders, shape], ValueError, r"c0 and .*shape are not of one architecture: b has .* \(5,\) and \(6,\)"),
        ([folders[0], extra], ValueError, r"z has the shapes none and \(2,\)"),
        ([extra, folders[0]], ValueError, r"z has the shapes \(2,\) and none"),
        ([*folders, tmp_path / "empty"], FileNotFoundError, "empty has no model.safetensors"),
    ]
    for number, length in enumerate((0, 5, 100, -1)):
        cut = checkpoint(tmp_path / f"cut{number}", random_weights(1))
        (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:length])
        said = rf"cut{number}/model.safetensors is damaged .* leave this checkpoint out"
        wrong.append(([*folders, cut], ValueError, said))
    before = names(tmp_path)
    for checkpoints, error, message in wrong:
        with pytest.raises(error, match=message):
            average_checkpoints(checkpoints, tmp_path / "mean")
        assert names(tmp_path) == before
    (tmp_path / "mean").mkdir()
    with pytest.raises(FileExistsError, match="mean exists already"):
        average_checkpoints(folders, tmp_path / "mean")
    assert names(tmp_path / "mean") == []
