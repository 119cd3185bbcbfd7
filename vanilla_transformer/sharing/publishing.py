"""A model, with all that belongs to it, as a repository of the Hub."""

import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, is_offline_mode
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError, LocalTokenNotFoundError
from huggingface_hub.utils import validate_repo_id

from ..files import write_text
from ..model.code_vanilla_transformer import save_code
from ..model.configuration_vanilla_transformer import VanillaTransformerConfig
from ..run_folder import WEIGHTS, RunFolder, find_model
from ..training.recipe import load_recipe
from .bare_card import bare_card
from .card_sections import is_classifier
from .model_card import model_card


logger = logging.getLogger(__name__)

_ALL_HAVE = ("config.json", WEIGHTS, "tokenizer_config.json")
_TRANSLATORS_HAVE = ("generation_config.json",)
_OUR_TOKENIZER, _MARIANS_TOKENIZER = ("tokenizer.json",), ("source.spm", "target.spm", "vocab.json")
_SOME_HAVE = ("recipe.yaml", "special_tokens_map.json")
_FIRST_WAIT, _PATIENCE = 1.0, 60.0  # seconds
_PICKLE = "training_args.bin"  # which Trainer's own pushes leave
_LONGEST_WAIT = 300.0  # seconds; the Hub counts requests in windows of five minutes


@dataclass(frozen=True)
class Publication:
    """What was published, or would be.

    Attributes:
        repository: Its name.
        files: Sizes in bytes by path in the repository.
        commit: The commit that was made; None of a dry run, or if the repository had all of it already.
    """

    repository: str
    files: dict[str, int]
    commit: CommitInfo | None


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
    """Publishes a model: weights, configurations, tokenizer, code, and of a run its card, recipe, scores and pictures.

    All of it is one commit: whoever loads the model meanwhile gets the old one or the new one. Publishing again after
    a failure finishes the job; what is there already is not sent again. The token is the one that `hf auth login` has
    saved, or `HF_TOKEN`.

    Args:
        path: A run folder, whose averaged (else best) model is taken with the run's records, or a model's folder.
        repository: Its name on the Hub, "user/name".
        title: The card's heading; the repository's name if it is not given.
        license: See `model_card`.
        datasets: See `model_card`.
        private: Make the repository a private one, if it is new.
        revision: The branch, made if it is missing; the repository's main one if it is not given.
        tag: A name to give to the commit, say "v1".
        pull_request: Open a pull request instead of changing the branch.
        message: Of the commit.
        dry_run: Send nothing.

    Raises:
        FileNotFoundError: There is no model at `path`, or the run is not finished.
        ValueError: `path` lacks something that a repository needs or is no model of ours; names, branch and tag are
            none, or do not go together; or the Hub refuses something.
        PermissionError: The Hub does not know the token, or it may not write there.
        ConnectionError: The Hub did not answer for a minute, answered with errors only, or must not be asked.
    """
    _check_names(repository, revision, tag, pull_request)
    if is_offline_mode() and not dry_run:
        raise ConnectionError("HF_HUB_OFFLINE is set, so that nothing can be published: unset it.")
    model = find_model(path)
    _check_complete(model)
    with _gathered(Path(path), model, repository, title, license, datasets) as files:
        sizes = {name: file.stat().st_size for name, file in sorted(files.items())}
        if dry_run:
            return Publication(repository, sizes, None)
        api = HfApi()
        with _explained(repository):
            _persistently(lambda: api.create_repo(repository, private=private, exist_ok=True))
            if revision is not None and not revision.startswith("refs/"):
                _persistently(lambda: api.create_branch(repository, branch=revision, exist_ok=True))
            operations = [CommitOperationAdd(name, file) for name, file in files.items()]
            if _persistently(lambda: api.file_exists(repository, _PICKLE, revision=revision)):
                operations.append(CommitOperationDelete(_PICKLE))
            commit = _persistently(
                lambda: api.create_commit(  # not upload_folder, which makes several if it takes long
                    repository,
                    operations,
                    commit_message=message or f"{title or repository}: model, code, card",
                    revision=revision,
                    create_pr=pull_request,
                )
            )
            if tag is not None:
                _tag(api, repository, tag, commit)
    return Publication(repository, sizes, commit)


def _check_names(repository: str, revision: str | None, tag: str | None, pull_request: bool) -> None:
    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ValueError(f"{repository!r} is no name on the Hub: {error}") from None
    if "/" not in repository:
        raise ValueError(f"{repository!r} is no name on the Hub: give USER/NAME.")
    if revision is not None and re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(f"{revision} is a commit, which cannot be changed: give the name of a branch.")
    if pull_request and revision is not None:
        raise ValueError("A pull request is for the main branch: give no other one.")
    if pull_request and tag is not None:
        raise ValueError("A pull request is no part of the model yet: give no tag.")


def _check_complete(model: Path) -> None:
    """Whether a folder has what a repository needs, of a model of ours."""
    try:
        kind = json.loads((model / "config.json").read_text(encoding="utf-8"))["model_type"]
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{model / 'config.json'} is no configuration of a model: publish another folder.") from None
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


@contextmanager
def _gathered(
    path: Path, model: Path, repository: str, title: str | None, license: str | None, datasets: Sequence[str]
) -> Iterator[dict[str, Path]]:
    """The repository's files by their names there. Those that are made for it are gone afterwards."""
    run = RunFolder(path)
    title = title or repository.rpartition("/")[2]
    named = (*_ALL_HAVE, *_TRANSLATORS_HAVE, *_OUR_TOKENIZER, *_MARIANS_TOKENIZER, *_SOME_HAVE)
    files = {name: model / name for name in named if (model / name).is_file()}
    with TemporaryDirectory(prefix="vanilla-transformer-") as name:
        made = Path(name)
        shutil.copy(model / "config.json", made)
        save_code(made)
        if model in (run.averaged, run.best):
            card = model_card(path, title=title, repository=repository, license=license, datasets=datasets)
            records = [run.scores, run.data, run.environment, run.log, run.learning_curve, run.attention]
            files |= {record.name: record for record in records if record.is_file()}
            if not load_recipe(run.recipe).is_parser:  # most treebanks may not be passed on
                files |= {f"{run.translations.name}/{file.name}": file for file in run.translations.glob("*.jsonl")}
        else:
            card = bare_card(model, title=title, repository=repository, license=license, datasets=datasets)
        write_text(made / "README.md", card)
        yield files | {file.name: file for file in made.iterdir()}


def _tag(api: HfApi, repository: str, tag: str, commit: CommitInfo) -> None:
    """Names a commit. A name that it has already is left over from a try before this one; another's is not taken."""
    _persistently(lambda: api.create_tag(repository, tag=tag, revision=commit.oid, exist_ok=True))
    named = {ref.name: ref.target_commit for ref in _persistently(lambda: api.list_repo_refs(repository)).tags}
    if named.get(tag, commit.oid) != commit.oid:
        raise ValueError(
            f"{repository} was published, as {commit.oid}, but {tag} is already the name of {named[tag]}: publish "
            "again with another tag."
        )


def _persistently(action: Callable[[], Any]) -> Any:
    """What `action` returns, tried again while the Hub breaks off or answers with errors of its own.

    Its client tries parts of an upload again, but neither the making of a repository nor the commit itself.
    """
    begun, delay = time.monotonic(), _FIRST_WAIT
    while True:
        try:
            return action()
        except Exception as error:
            wait = max(delay, asked := _asked_to_wait(error))
            if not _may_pass(error) or time.monotonic() - begun > _PATIENCE or asked > _LONGEST_WAIT:
                raise
            what = f"status {_status(error)}" if _status(error) else type(error).__name__
            logger.warning("The Hub did not answer as it should (%s); trying again in %.0f seconds.", what, wait)
            time.sleep(wait)
            delay = min(2 * delay, 16.0)


def _may_pass(error: Exception) -> bool:
    """Whether it is the Hub's or the line's fault, which waiting may mend."""
    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):  # of a file that is being sent
        return _may_pass(error.__cause__)
    status = _status(error)
    if status is not None:
        return status >= 500 or status in (408, 429)
    return isinstance(error, (HTTPError, ConnectionError, TimeoutError))


def _asked_to_wait(error: Exception) -> float:
    """Seconds that the Hub asks for before the next try; 0 if it does not."""
    said = error.response.headers.get("Retry-After", "") if _status(error) else ""
    return float(said) if said.isdecimal() else 0.0  # it may also be a date, which the Hub does not send


def _status(error: BaseException | None) -> int | None:
    response = getattr(error, "response", None)
    return response.status_code if isinstance(error, HfHubHTTPError) and response is not None else None


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    """The client's errors as what a user can mend.

    They carry the request with them, and so the token: what is raised instead says neither.
    """
    try:
        yield
    except LocalTokenNotFoundError:
        raise PermissionError(
            f"There is no token to write to {repository} with: log in with `hf auth login`."
        ) from None
    except Exception as error:
        status = _status(error) or _status(error.__cause__)
        if status in (401, 403, 404):
            raise PermissionError(
                f"The Hub does not let you write to {repository} (status {status}): log in with `hf auth login`, with "
                "a token that may write there."
            ) from None
        if _may_pass(error):
            what = f"status {status}" if status else type(error).__name__
            later = f"in {asked:.0f} seconds" if (asked := _asked_to_wait(error)) else "later"
            raise ConnectionError(
                f"The Hub does not answer as it should ({what}): publish again {later}, which finishes the job."
            ) from None
        if status is not None:
            said = error.server_message if isinstance(error, HfHubHTTPError) else None
            raise ValueError(
                f"The Hub refuses this for {repository} (status {status}): {said or 'no reason'}"
            ) from None
        raise
