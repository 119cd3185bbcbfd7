"""Which checkpoints a run keeps after a kill, after damage, and after a failed save."""

import json
import os
import shutil
from itertools import product
from types import SimpleNamespace

import pytest

from vanilla_transformer.data.batch_stream import TokenBatchStream
from vanilla_transformer.data.batching import TranslationCollator
from vanilla_transformer.data.corpora import PairStream
from vanilla_transformer.files import write_json
from vanilla_transformer.hub import StreamLostError
from vanilla_transformer.run.digests import DIGESTS, DamagedError, write_digests
from vanilla_transformer.run.folder import RunFolder
from vanilla_transformer.training.checkpoints import recover, saving
from vanilla_transformer.training.run import _fit


@pytest.fixture
def run(make_trainer, tmp_path):
    """Makes a run folder with these checkpoints, whose trainer states name the best one."""
    make_trainer(max_steps=1, save_strategy="steps", save_steps=1).train()
    made = (tmp_path / "checkpoints").rename(tmp_path / "made") / "checkpoint-1"

    def run(*steps, best=None):
        folder = RunFolder(tmp_path / "run")
        folder.path.mkdir(exist_ok=True)
        write_json(folder.environment, {"run": "this", "packages": {"vanilla-transformer": "0.1.0"}})
        for step in steps:
            path = shutil.copytree(made, folder.checkpoints / f"checkpoint-{step}")
            state = json.loads((path / "trainer_state.json").read_bytes())
            state |= {"global_step": step, "best_model_checkpoint": best and f"elsewhere/checkpoint-{best}"}
            write_json(path / "trainer_state.json", state)
            write_digests(path, run="this", step=step)
        return folder

    return run


def arguments(save_total_limit, *, save_steps=10, average_last=0, max_steps=1000):
    return SimpleNamespace(
        save_strategy="steps", save_steps=save_steps, save_total_limit=save_total_limit, average_last=average_last,
        max_steps=max_steps, max_minutes=None, early_stopping_patience=None,
    )  # fmt: skip


def names(folder):
    return sorted(path.name.removeprefix("checkpoint-") for path in folder.checkpoints.iterdir())


def test_half_written_checkpoint_is_removed(run):
    for last_written in (["trainer_state.json", DIGESTS], [DIGESTS]):
        folder = run(10, 20, 30)
        for name in last_written:
            (folder.checkpoints / "checkpoint-30" / name).unlink()
        recover(folder, arguments(3))
        assert names(folder) == ["10", "20"]
        shutil.rmtree(folder.path)


def test_best_and_newest_checkpoints_are_kept(run):
    folder = run(10, 20, 30, best=10)
    recover(folder, arguments(2))
    assert names(folder) == ["10", "30"]
    for best, left in ((10, ["10", "30", "40"]), (30, ["30", "40"])):  # an old best one is not averaged
        shutil.rmtree(folder.path)
        folder = run(10, 20, 30, 40, best=best)
        recover(folder, arguments(2, average_last=2))
        assert names(folder) == left


def test_requested_checkpoint_is_not_counted_and_later_removed(run):
    cases = (((), []), ((10, 20, 25), ["10", "20", "25"]), ((10, 20, 25, 30), ["20", "30"]))
    for (steps, left), every in product(cases, (10, 0.01)):  # a share of the 1,000 updates
        folder = run(*steps)
        recover(folder, arguments(2, save_steps=every))
        assert [path.name.removeprefix("checkpoint-") for path in folder.good_checkpoints()] == left
        assert folder.checkpoint_folders() == folder.good_checkpoints()
        shutil.rmtree(folder.path)


def test_checkpoints_are_ordered_by_update_not_by_time(run, make_trainer, tmp_path):
    folder = run(8, 12, 60)
    for age, step in enumerate((60, 12, 8)):
        os.utime(folder.checkpoints / f"checkpoint-{step}", (1e9 + age, 1e9 + age))
    recover(folder, arguments(9, save_steps=4))
    assert [path.name for path in folder.good_checkpoints()] == [f"checkpoint-{step}" for step in (8, 12, 60)]
    # The clock is set back while the trainer saves: its newest checkpoint has the oldest time but is kept.
    trainer = make_trainer(max_steps=4, save_strategy="steps", save_steps=1, save_total_limit=2, average_last=0)
    for step in (1, 2, 3):
        (tmp_path / "checkpoints" / f"checkpoint-{step}").mkdir(parents=True)
        os.utime(tmp_path / "checkpoints" / f"checkpoint-{step}", (2e9, 2e9))
    trainer.train()
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["checkpoint-3", "checkpoint-4"]


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def zeros(path):
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(content[:half] + bytes(min(64, len(content) - half)) + content[half + 64 :])


FILES = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "config.json")


def test_damage_to_any_checkpoint_file_is_detected(run):
    folder = run(10, 20, 30)
    last = folder.checkpoints / "checkpoint-30"
    for name in (*FILES, DIGESTS):
        for damage in (flipped, zeros, lambda p: p.write_bytes(b""), lambda p: os.truncate(p, 9), lambda p: p.unlink()):
            before = (last / name).read_bytes()
            damage(last / name)
            fault = folder.fault_of(last)
            assert fault, (name, damage)
            assert name in fault or name == DIGESTS, fault
            (last / name).write_bytes(before)
    assert folder.fault_of(last) is None
    shutil.copy(folder.checkpoints / "checkpoint-20" / "trainer_state.json", last)
    assert "trainer_state.json is damaged" in folder.fault_of(last)


def test_checkpoint_of_other_run_or_update_is_ignored(run):
    folder = run(10, 20, 30)
    write_digests(folder.checkpoints / "checkpoint-20", run="another", step=20)
    shutil.rmtree(folder.checkpoints / "checkpoint-30")
    shutil.copytree(folder.checkpoints / "checkpoint-10", folder.checkpoints / "checkpoint-30")
    assert folder.fault_of(folder.checkpoints / "checkpoint-20") == "it is of another run"
    assert folder.fault_of(folder.checkpoints / "checkpoint-30") == "it is of update 10"
    assert folder.good_checkpoints() == [folder.checkpoints / "checkpoint-10"]


def test_removing_checkpoint_keeps_user_files_and_copies(run):
    folder = run(10, 20, 30)
    users = [".notes.txt", "myconfig.json", "newstest.pt", "optimizer.txt", "token_counts.json"]
    for name in users:
        (folder.checkpoints / "checkpoint-10" / name).write_text("of value")
    shutil.copytree(folder.checkpoints / "checkpoint-10", folder.checkpoints / "checkpoint-10-copy")
    recover(folder, arguments(2))
    assert names(folder) == ["10-copy", "10.kept", "20", "30"]
    assert sorted(path.name for path in (folder.checkpoints / "checkpoint-10.kept").iterdir()) == users
    assert (folder.checkpoints / "checkpoint-10-copy" / "optimizer.pt").exists()


def test_a_damaged_checkpoint_is_moved_aside_and_named(run, caplog):
    folder = run(10, 20, 30)
    flipped(folder.checkpoints / "checkpoint-30" / "optimizer.pt")
    recover(folder, arguments(3))
    assert names(folder) == ["10", "20", "30.damaged"]
    assert "checkpoint-30/optimizer.pt is damaged: its content is not what was written" in caplog.text


def test_training_goes_back_only_for_a_needed_checkpoint(run, caplog):
    for needed, best in ((False, None), (True, None), (False, 20)):
        folder = run(10, 20, 30, 40, best=best)
        write_json(folder.finished, {"max_steps": 40})
        flipped(folder.checkpoints / "checkpoint-20" / "model.safetensors")
        recover(folder, arguments(9, average_last=3, max_steps=40 if needed else 90))
        goes_back = needed or best
        later = ["30.later", "40.later"] if goes_back else ["30", "40"]
        assert names(folder) == ["10", "20.damaged", *later]
        assert folder.finished.exists() is not bool(goes_back)
        assert ("going back to" in caplog.text) is bool(goes_back)
        shutil.rmtree(folder.path)
        caplog.clear()


def test_endless_run_is_recovered_at_once(run):
    folder = run(10, 20)
    recover(folder, arguments(9, average_last=3, max_steps=10**15))  # would count a thousand million million updates
    assert names(folder) == ["10", "20"]


def test_recover_raises_and_moves_nothing_if_all_damaged(run):
    folder = run(10, 20)
    for step in (10, 20):
        flipped(folder.checkpoints / f"checkpoint-{step}" / "rng_state.pth")
    said = r"no whole checkpoint to go on from .*checkpoint-10/rng_state\.pth is damaged"
    with pytest.raises(ValueError, match=said):
        recover(folder, arguments(1))
    assert names(folder) == ["10", "20"]


def test_file_or_link_instead_of_checkpoint_is_named(run, tmp_path):
    folder = run(10)
    for make in (lambda p: p.write_text("x"), lambda p: p.symlink_to(tmp_path), lambda p: p.symlink_to("nowhere")):
        path = folder.checkpoints / "checkpoint-20"
        make(path)
        with pytest.raises(NotADirectoryError, match=r"checkpoint-20 is a (file|symbolic link), not the folder of a"):
            recover(folder, arguments(1))
        path.unlink()


def test_trainer_rejects_a_damaged_checkpoint(make_trainer, tmp_path):
    make_trainer(max_steps=2, save_strategy="steps", save_steps=1).train()
    last = tmp_path / "checkpoints" / "checkpoint-1"
    flipped(last / "optimizer.pt")
    with pytest.raises(DamagedError, match=r"checkpoint-1/optimizer\.pt is damaged"):
        make_trainer(max_steps=2).train(resume_from_checkpoint=str(last))


def test_stream_lost_right_after_a_resume_keeps_its_place(make_trainer, tokenizer, tmp_path):
    def stream(unit_of) -> TokenBatchStream:
        pairs = PairStream("made up", 4, unit_of, {}, patience=0.01)
        return TokenBatchStream(pairs, tokenizer, 80, buffer_pairs=20, collate=TranslationCollator())

    def lost(number):
        yield from ()
        raise ConnectionResetError("gone")

    whole = stream(lambda number: (("tiny words", f"words {row}") for row in range(40)))
    make_trainer(train_dataset=whole, save_strategy="steps", save_steps=3).train()
    place = tmp_path / "checkpoints" / "checkpoint-3" / "stream_0.json"
    before = json.loads(place.read_text())
    assert before != json.loads(json.dumps(stream(lost).state_dict()))
    trainer = make_trainer(train_dataset=stream(lost), max_steps=6, logging_steps=100)
    with pytest.raises(StreamLostError):
        trainer.train(resume_from_checkpoint=True)
    trainer.save_checkpoint()
    assert json.loads(place.read_text()) == before


def test_stream_lost_right_after_a_save_saves_nothing_again(make_trainer, tokenizer, tmp_path):
    def unit_of(number):
        yield from (("tiny words", f"words {row}") for row in range(40 * (number == 0)))
        if number:
            raise ConnectionResetError("gone")

    pairs = PairStream("made up", 2, unit_of, {}, patience=0.01)
    stream = TokenBatchStream(pairs, tokenizer, 80, buffer_pairs=20, collate=TranslationCollator())
    trainer = make_trainer(train_dataset=stream, save_strategy="steps", save_steps=1, max_steps=100)
    saved, save = [], trainer._save_checkpoint
    trainer._save_checkpoint = lambda *given, **others: (
        saved.append(trainer.state.global_step),
        save(*given, **others),
    )
    with pytest.raises(StreamLostError, match=r"The last checkpoint is .*/checkpoints/checkpoint-[1-9]"):
        _fit(trainer, RunFolder(tmp_path), "")
    assert saved == [*range(1, trainer.state.global_step + 1)] != []


def test_failed_save_leaves_no_checkpoint(tmp_path):
    checkpoint = tmp_path / "checkpoint-10"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text('{"global_st')
    said = r"checkpoint-10 could not be saved: no room\. Those before it are whole"
    with pytest.raises(OSError, match=said), saving(checkpoint):
        raise RuntimeError("no room")
    assert not checkpoint.exists()


def test_failure_after_saving_keeps_the_checkpoint(run):
    checkpoint = run(10).checkpoints / "checkpoint-10"
    with pytest.raises(ConnectionError, match="no Hub"), saving(checkpoint):
        raise ConnectionError("no Hub")
    assert (checkpoint / "model.safetensors").exists()
