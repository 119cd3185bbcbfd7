"""A run whose updates are no longer finite ends with a clear line, a file and a checkpoint."""

import json

from vanilla_transformer.run.folder import RunFolder

from .conftest import lines_of, refused


def test_diverging_run_stops_with_report_and_checkpoint(corpus, tmp_path):
    folder = RunFolder(tmp_path / "run")
    # After the first update the products of the weights overflow, so every later update is skipped.
    settings = {"noam_factor": "1e30", "eval_steps": 12, "save_steps": 12, "max_skipped_updates": 4}
    typed = ["train", corpus / "recipe.yaml", "--data.folder", corpus, "--output", folder.path]
    typed += [word for name, value in settings.items() for word in (f"--training.{name}", value)]
    for last in (5, 9):  # the run can be resumed, and then gets as many tries as before
        said = refused(*typed, *(["--resume"] if last > 5 else []))
        assert said.startswith(f"vanilla-transformer: Stopped after update {last}: 4 updates in a row were skipped")
        assert str(folder.not_finite) in said
        assert f"checkpoint-{last}" in said
        assert [path.name for path in folder.good_checkpoints()][-1] == f"checkpoint-{last}"
        rows = [json.loads(line) for line in lines_of(folder.not_finite)]
        assert f"The {len(rows)} pairs of update {last} are in" in said
        pairs = set(zip(lines_of(corpus / "train.en"), lines_of(corpus / "train.de"), strict=True))
        assert rows
        assert all(row["update"] == last and (row["source"], row["target"]) in pairs for row in rows)
        skipped = [record["skipped_updates"] for record in folder.log_records() if "loss" in record]
        assert skipped == [0, *[1] * (last - 1)]
