"""The only module that talks to the Hub: which revision is read, what is retried, and what the Hub's errors mean."""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from huggingface_hub import CommitInfo

logger = logging.getLogger(__name__)

FIRST_WAIT = 1.0  # seconds before the second try; each wait after it is twice as long
_PATIENCE = 60.0  # seconds for which publishing is retried
_LONGEST_WAIT = 300.0  # seconds; the Hub counts requests in windows of five minutes
_PICKLE = "training_args.bin"  # left by Trainer's own pushes


class StreamLostError(OSError):
    """A corpus could not be read, at first or again, within the time allowed for retries."""


class Waits:
    """Waits between tries, each twice as long as the one before, up to `longest` seconds; a success resets them."""

    def __init__(self, longest: float = 60.0, pause: Callable[[float], Any] = time.sleep):
        self.longest, self.pause = longest, pause
        self.succeeded()

    def succeeded(self) -> None:
        self.since, self.next = time.monotonic(), FIRST_WAIT

    def seconds(self) -> float:
        """Seconds since the last success."""
        return time.monotonic() - self.since

    def wait(self, told: str, *values, at_least: float = 0.0) -> None:
        """Logs `told`, a format whose last value is the seconds to wait, and waits."""
        seconds = max(self.next, at_least)
        logger.warning(told, *values, seconds)
        self.pause(seconds)
        self.next = min(2 * self.next, self.longest)


# ------------------------------------------------------------------------------------------------------------ reading


def is_of_the_hub(path: str | Path) -> bool:
    """Whether `path` can only be USER/NAME or USER/NAME@REVISION: there is no folder USER here."""
    return bool(re.fullmatch(r"[\w-][\w.-]*/[\w.-]+(@[\w./-]+)?/?", str(path))) and not Path(path).parent.exists()


def fetched_model(name: str, patterns: Sequence[str]) -> Path:
    """The cache's folder for the model USER/NAME or USER/NAME@REVISION, with the files that match one of the patterns.

    Raises what `run.loading.find_model` raises.
    """
    from huggingface_hub import errors, is_offline_mode, snapshot_download

    repository, _, revision = name.removesuffix("/").partition("@")
    no_folder, checkpoints = f"There is no folder {name}", ["*/*"]  # training pushes the latter
    try:
        fetched = snapshot_download(
            repository, revision=revision or None, allow_patterns=list(patterns), ignore_patterns=checkpoints
        )
    except errors.RevisionNotFoundError as error:
        raise FileNotFoundError(f"{repository} on the Hub has no revision {revision}.") from error
    except errors.RepositoryNotFoundError as error:
        told = f"{no_folder}, and no such model on the Hub that you may read: log in with `hf auth login`."
        raise FileNotFoundError(told) from error
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, errors.HTTPError, ConnectionError) as error:
        if is_offline_mode():
            told = f"{no_folder} and no such model of the Hub in the cache; HF_HUB_OFFLINE is set: unset it."
            raise ConnectionError(told) from error
        if _status(error) in (401, 403):
            told = f"{no_folder}, and the Hub does not know your token: log in with `hf auth login`."
            raise PermissionError(told) from error
        told = f"{no_folder}, and the Hub could not be asked for it ({type(error).__name__}): try again."
        raise ConnectionError(told) from error
    if not Path(fetched, "config.json").is_file():
        raise FileNotFoundError(f"{repository} on the Hub holds no model: it has no config.json.")
    return Path(fetched)


def dataset_commit(repository: str, revision: str | None, name: str, patience: float) -> str:
    """The commit that a branch or tag of a dataset points to now. Raises what `persistently` raises."""
    from huggingface_hub import HfApi

    return persistently(lambda: HfApi().dataset_info(repository, revision=revision).sha, name, patience)


def persistently(action: Callable, name: str, patience: float):
    """Returns what `action()` reads from the Hub; retries for `patience` seconds while a connection is broken.

    Raises FileNotFoundError if `name` was never there, so that waiting does not help, and otherwise StreamLostError.
    """
    waits = Waits()
    while True:
        try:
            return action()
        except (*broken_connections(), json.JSONDecodeError) as error:  # the latter: something else answered
            if _was_never_there(error):
                raise FileNotFoundError(
                    f"{name} does not exist, or you may not read it ({one_line(error)})."
                ) from error
            if waits.seconds() > patience:
                raise StreamLostError(f"{name} cannot be reached ({one_line(error)}).") from error
            waits.wait("%s cannot be reached (%s); trying again in %.0f seconds.", name, one_line(error))


def broken_connections() -> tuple[type[Exception], ...]:
    """The errors of `datasets` and its parts when a connection or a server fails, or a file is incomplete."""
    from huggingface_hub.errors import HTTPError
    from pyarrow import ArrowException

    return (OSError, HTTPError, ArrowException)


def one_line(error: Exception) -> str:
    """An error in at most 300 characters."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _was_never_there(error: Exception) -> bool:
    from huggingface_hub import errors

    link = error
    while link is not None:
        if isinstance(link, errors.LocalEntryNotFoundError):
            return False  # datasets calls this a missing file, but the Hub was not reached and the cache lacks it
        link = link.__cause__ or link.__context__
    never_there = (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.OfflineModeIsEnabled)
    return _status(error) in (401, 403) or isinstance(error, (FileNotFoundError, PermissionError, *never_there))


# ---------------------------------------------------------------------------------------------------------- publishing


def check_names(repository: str, revision: str | None, tag: str | None, pull_request: bool) -> None:
    """Raises ValueError if the Hub allows no such name, or names do not go together. The Hub is not asked."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise ValueError(f"{repository!r} is not a valid name on the Hub: {error}") from None
    if "/" not in repository:
        raise ValueError(f"{repository!r} is not a valid name on the Hub: give USER/NAME.")
    if revision is not None and re.fullmatch("[0-9a-f]{40}", revision):
        raise ValueError(f"{revision} is a commit, which cannot be changed: give the name of a branch.")
    for name in (revision, tag):
        if name is not None and (not re.fullmatch(r"\w[\w./+@,=-]*", name) or ".." in name or "@{" in name):
            raise ValueError(f"{name!r} is not a valid name of a branch or tag: use letters, digits and any of _ - . /")
    if pull_request and revision is not None:
        raise ValueError("A pull request is for the main branch: give no other one.")
    if pull_request and tag is not None:
        raise ValueError("A pull request is not part of the model yet: give no tag.")


def commit_files(
    repository: str,
    files: Mapping[str, Path],
    *,
    message: str,
    private: bool,
    revision: str | None,
    tag: str | None,
    pull_request: bool,
    replaces: Callable[[str], bool] = lambda name: False,
) -> "CommitInfo":
    """Makes one commit of files (by their paths in the repository), and the repository and branch if they are missing.

    Files in the repository are removed if `replaces(name)` is true and no new file has the name.

    Raises the errors of the Hub that `sharing.publishing.publish` raises.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    api = HfApi()
    with _explained(repository):
        _send(lambda: api.create_repo(repository, private=private, exist_ok=True))
        if revision is not None and not revision.startswith("refs/"):
            _send(lambda: api.create_branch(repository, branch=revision, exist_ok=True))
        added = [CommitOperationAdd(name, file) for name, file in files.items()]

        def commit_all() -> "CommitInfo":
            # Listed in every try: a commit whose answer was lost has removed the files already.
            there = api.list_repo_files(repository, revision=revision)
            stale = [name for name in there if name not in files and (name == _PICKLE or replaces(name))]
            operations = [*added, *map(CommitOperationDelete, stale)]
            return api.create_commit(  # not upload_folder, which makes several commits if it takes long
                repository, operations, commit_message=message, revision=revision, create_pr=pull_request
            )

        commit = _send(commit_all)
        if tag is not None:  # it may be there already, from an earlier try
            _send(lambda: api.create_tag(repository, tag=tag, revision=commit.oid, exist_ok=True))
            named = {ref.name: ref.target_commit for ref in _send(lambda: api.list_repo_refs(repository)).tags}
            if named.get(tag, commit.oid) != commit.oid:
                raise ValueError(
                    f"{repository} was published, as {commit.oid}, but {tag} is already the name of {named[tag]}: "
                    "publish again with another tag."
                )
    return commit


def _send(action: Callable[[], Any]) -> Any:
    """Returns `action()`, with retries: the client itself retries uploads, but not new repositories or commits."""
    waits = Waits(longest=16.0)
    while True:
        try:
            return action()
        except Exception as error:
            asked = _asked_to_wait(error)
            if not _may_pass(error) or waits.seconds() > _PATIENCE or asked > _LONGEST_WAIT:
                raise
            what = f"status {_status(error)}" if _status(error) else type(error).__name__
            waits.wait("The Hub did not answer as it should (%s); trying again in %.0f seconds.", what, at_least=asked)


def _may_pass(error: Exception) -> bool:
    """Whether the Hub or the connection is at fault, so that waiting may help."""
    from huggingface_hub.errors import HTTPError

    if isinstance(error, RuntimeError) and isinstance(error.__cause__, Exception):  # for a file that is being sent
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
    from huggingface_hub.errors import HfHubHTTPError

    response = getattr(error, "response", None)
    return response.status_code if isinstance(error, HfHubHTTPError) and response is not None else None


@contextmanager
def _explained(repository: str) -> Iterator[None]:
    """Turns the client's errors into ones that a user can act on, without the request, which contains the token."""
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        LocalTokenNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except LocalTokenNotFoundError:
        raise PermissionError(
            f"There is no token to write to {repository} with: log in with `hf auth login`."
        ) from None
    except Exception as error:
        status = _status(error) or _status(error.__cause__)
        if status in (401, 403, 404) and not isinstance(error, (EntryNotFoundError, RevisionNotFoundError)):
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
