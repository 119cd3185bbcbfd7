"""A model, with everything that belongs to it, as a repository of the Hub."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import CommitInfo, is_offline_mode

from .. import hub
from ..data.known_words import KNOWN_WORDS
from ..files import temporary_folder, write_text
from ..model.code_vanilla_transformer import save_code
from ..model.confidence_vanilla_transformer import CONFIDENCE, load_calibration
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..run.digests import DIGESTS, DamagedError, check_digests
from ..run.folder import WEIGHTS, RunFolder
from ..run.loading import find_model
from ..run.recipe import load_recipe
from .card_sections import is_classifier
from .model_card import bare_card, model_card


_ALL_HAVE = ("config.json", WEIGHTS, "tokenizer_config.json")
_TRANSLATORS_HAVE = ("generation_config.json",)
_OUR_TOKENIZER, _MARIANS_TOKENIZER = ("tokenizer.json",), ("source.spm", "target.spm", "vocab.json")
_SOME_HAVE = ("recipe.yaml", "special_tokens_map.json", KNOWN_WORDS, CONFIDENCE)
_RECORDS = ("scores.json", "data.json", "environment.json", "log.jsonl", "learning_curve.png", "attention.png")
_OF_A_MODEL = (*_ALL_HAVE, *_TRANSLATORS_HAVE, *_OUR_TOKENIZER, *_MARIANS_TOKENIZER, *_SOME_HAVE)


@dataclass(frozen=True)
class Publication:
    """The result of publishing, or of a dry run."""

    repository: str
    files: dict[str, int]  # sizes in bytes by path in the repository
    commit: CommitInfo | None  # None for a dry run


def publish(
    path: str | Path,
    repository: str,
    *,
    title: str | None = None,
    license: str | None = None,
    datasets: Sequence[str] = (),
    private: bool = False,
    revision: str | None = None,
    tag: str | None = None,
    pull_request: bool = False,
    message: str | None = None,
    dry_run: bool = False,
) -> Publication:
    """Publishes a model: weights, configurations, tokenizer, code, and for a run its card, recipe, scores and pictures.

    All of it is one commit: whoever loads the model meanwhile gets the old one or the new one. Publishing again after a
    failure finishes the job; files that are there already are not sent again. The token is the one that `hf auth login`
    saved, or `HF_TOKEN`.

    Args:
        path: A run folder, whose model is published with the run's records, or a model's folder.
        repository: Its name on the Hub, "user/name".
        title, license, datasets: See `model_card`; the title is by default the repository's name.
        private: Make the repository private, if it is new.
        revision: The branch, made if it is missing; by default the repository's main one.
        tag: A name for the commit, say "v1".
        pull_request: Open a pull request instead of changing the branch.
        message: Message of the commit.
        dry_run: Send nothing.

    Raises:
        FileNotFoundError: There is no model at `path`, or the run is not finished.
        ValueError: `path` lacks something that a repository needs, is damaged or is not a model of ours; names, branch
            and tag are invalid or do not go together; or the Hub refuses something.
        PermissionError: The Hub does not know the token, or the token may not write there.
        ConnectionError: The Hub did not answer for a minute, answered only with errors, or must not be contacted.
    """
    place = {"revision": revision, "tag": tag, "pull_request": pull_request}
    hub.check_names(repository, **place)
    if is_offline_mode() and not dry_run:
        raise ConnectionError("HF_HUB_OFFLINE is set, so nothing can be published: unset it.")
    model = find_model(path)
    _check_complete(model)
    with _gathered(Path(path), model, repository, title, license, datasets) as files:
        sizes = {name: file.stat().st_size for name, file in sorted(files.items())}
        if dry_run:
            return Publication(repository, sizes, None)
        message = message or f"{title or repository}: model, code, card"
        commit = hub.commit_files(repository, files, message=message, private=private, replaces=_is_of_a_model, **place)
    return Publication(repository, sizes, commit)


def _check_complete(model: Path) -> None:
    """Checks that a folder holds one of our models with all that a repository needs."""
    try:
        kind = json.loads((model / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (ValueError, TypeError, KeyError):
        raise ValueError(
            f"{model / 'config.json'} is not a configuration of a model: publish another folder."
        ) from None
    if kind != VanillaTransformerConfig.model_type:
        raise ValueError(
            f"{model} is a model of the kind {kind}, which our code does not fit (`vanilla-transformer convert` makes "
            "Marian's ours)."
        )
    needed = [*_ALL_HAVE, *(_MARIANS_TOKENIZER if (model / "source.spm").is_file() else _OUR_TOKENIZER)]
    if not is_classifier(VanillaTransformerConfig.from_pretrained(model)):
        needed += _TRANSLATORS_HAVE
    if missing := [name for name in needed if not (model / name).is_file()]:
        raise ValueError(
            f"{model} lacks {', '.join(missing)}: publish a run folder, or a model saved with its tokenizer."
        )
    if (model / CONFIDENCE).is_file():
        load_calibration(model)
    try:
        check_digests(model, [*needed, *_SOME_HAVE])
    except DamagedError as error:
        raise ValueError(f"{error} If it was changed on purpose, remove {model / DIGESTS}.") from error


def _is_of_a_model(name: str) -> bool:
    """Whether a file in the repository belongs to the model that was there before: a new one may lack it."""
    return name in (*_OF_A_MODEL, *_RECORDS) or re.fullmatch(r"translations/[^/]+\.jsonl", name) is not None


@contextmanager
def _gathered(
    path: Path, model: Path, repository: str, title: str | None, license: str | None, datasets: Sequence[str]
) -> Iterator[dict[str, Path]]:
    """The repository's files by their names there. Files made for it are deleted afterwards."""
    run = RunFolder(path)
    title = title or repository.rpartition("/")[2]
    files = {name: model / name for name in _OF_A_MODEL if (model / name).is_file()}
    with temporary_folder() as made:
        shutil.copy(model / "config.json", made)
        save_code(made)
        if run.environment.is_file() and (run.finished.is_file() or run.checkpoints.is_dir()):
            card = model_card(path, title=title, repository=repository, license=license, datasets=datasets)
            files |= {name: path / name for name in _RECORDS if (path / name).is_file()}
            if not load_recipe(run.recipe).is_parser:  # most treebanks may not be passed on
                files |= {f"{run.translations.name}/{file.name}": file for file in run.translations.glob("*.jsonl")}
        else:
            card = bare_card(model, title=title, repository=repository, license=license, datasets=datasets)
        write_text(made / "README.md", card)
        yield files | {file.name: file for file in made.iterdir()}
