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


# ------------------------------------------------------------------------------------------------------------ mean


def test_mean_is_numpys_mean(tmp_path):
    mean = averaged(folders_of(tmp_path), tmp_path)
    for name, weight in mean.items():
        rows = np.stack([random_weights(seed)[name].numpy().astype(np.float64) for seed in range(3)])
        np.testing.assert_array_equal(weight.numpy(), rows.mean(axis=0).astype(np.float32))


def test_sum_does_not_lose_small_differences(tmp_path):
    # In float32, 2^24 + 1 is 2^24: a sum taken in it would forget the ones.
    rows = [2.0**24, 1.0, 1.0, 1.0]
    folders = [checkpoint(tmp_path / f"c{i}", {"w": torch.tensor([row])}) for i, row in enumerate(rows)]
    assert averaged(folders, tmp_path)["w"].double().item() == np.float32((2**24 + 3) / 4)


def test_bfloat16_weights_stay_bfloat16_and_are_rounded_once(tmp_path):
    mean = averaged(folders_of(tmp_path, torch.bfloat16), tmp_path)
    for name, weight in mean.items():
        exact = torch.stack([random_weights(seed, torch.bfloat16)[name].double() for seed in range(3)]).mean(dim=0)
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, exact.to(torch.bfloat16))


def test_mean_of_one_is_itself(tmp_path):
    mean = averaged(folders_of(tmp_path, count=1), tmp_path)
    assert all(torch.equal(weight, random_weights(0)[name]) for name, weight in mean.items())


def test_paths_may_be_strings(tmp_path):
    average_checkpoints([str(folder) for folder in folders_of(tmp_path)], str(tmp_path / "mean"))
    assert names(tmp_path / "mean") == ["model.safetensors"]


# ----------------------------------------------------------------------------------------------------------- model


@pytest.fixture
def checkpoints(tmp_path, make_model, tokenizer):
    folders = [tmp_path / "checkpoint-1", tmp_path / "checkpoint-2"]
    for seed, folder in enumerate(folders):
        make_model(seed).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "recipe.yaml").write_text(f"description: {seed}\n")
        (folder / "optimizer.pt").write_bytes(b"not part of a model")
    return folders


def test_output_is_a_model_with_its_tokenizer(checkpoints, tmp_path, tokenizer):
    average_checkpoints(checkpoints, tmp_path / "mean")
    mean = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "mean")
    weights = [AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict() for folder in checkpoints]
    for name, weight in mean.state_dict().items():
        torch.testing.assert_close(weight, (weights[0][name] + weights[1][name]) / 2, rtol=1e-6, atol=1e-7)
    assert mean.lm_head.weight is mean.model.shared.weight
    loaded = AutoTokenizer.from_pretrained(tmp_path / "mean")
    assert loaded("tiny words").input_ids == tokenizer("tiny words").input_ids


def test_output_has_the_decoding_and_recipe_of_the_last_and_nothing_of_the_trainer(checkpoints, tmp_path):
    average_checkpoints(checkpoints, tmp_path / "mean")
    code = {path.name for path in checkpoints[-1].glob("*.py")}
    assert "modeling_vanilla_transformer.py" in code
    model = {"config.json", "generation_config.json", "model.safetensors"} | code
    assert set(names(tmp_path / "mean")) == model | {"recipe.yaml", "tokenizer.json", "tokenizer_config.json"}
    assert (tmp_path / "mean" / "recipe.yaml").read_text() == "description: 1\n"


# ---------------------------------------------------------------------------------------------------------- faults


def refuse(checkpoints, tmp_path, error, message):
    """Asserts that averaging fails so, and leaves everything as it was."""
    before = names(tmp_path)
    with pytest.raises(error, match=message):
        average_checkpoints(checkpoints, tmp_path / "mean")
    assert names(tmp_path) == before


def test_no_checkpoints_are_refused(tmp_path):
    refuse([], tmp_path, ValueError, "no checkpoints to average")


def test_different_shapes_are_named(tmp_path):
    folders = [*folders_of(tmp_path), checkpoint(tmp_path / "other", {**random_weights(0), "b": torch.zeros(6)})]
    refuse(
        folders, tmp_path, ValueError, r"c0 and .*other are not of one architecture: b has the shapes \(5,\) and \(6,\)"
    )


@pytest.mark.parametrize("extra_first", [True, False])
def test_different_names_are_named(extra_first, tmp_path):
    folders = [*folders_of(tmp_path, count=1), checkpoint(tmp_path / "o", {**random_weights(0), "z": torch.zeros(2)})]
    shapes = r"\(2,\) and none" if extra_first else r"none and \(2,\)"
    refuse(folders[::-1] if extra_first else folders, tmp_path, ValueError, f"z has the shapes {shapes}")


def test_missing_weights_are_named(tmp_path):
    (tmp_path / "empty").mkdir()
    refuse([*folders_of(tmp_path), tmp_path / "empty"], tmp_path, FileNotFoundError, "empty has no model.safetensors")


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_truncated_weights_are_named(length, tmp_path):
    folders = folders_of(tmp_path)
    path = folders[1] / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    refuse(folders, tmp_path, ValueError, r"c1/model.safetensors is damaged .* leave this checkpoint out")


def test_existing_output_is_not_overwritten(tmp_path):
    (tmp_path / "mean").mkdir()
    refuse(folders_of(tmp_path), tmp_path, FileExistsError, "mean exists already")
    assert names(tmp_path / "mean") == []
