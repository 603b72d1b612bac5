"""`florets reproduce --results-page`: make a page's tables of results folders, and of what is stored beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.saved import absolute
from florets.reports.console import counted, say
from florets.reports.folder import write_whole
from florets.server_app.reproduce.overview import overview_block
from florets.server_app.reproduce.page import item_block, made_page
from florets.server_app.reproduce.page_pictures import PagePictures
from florets.server_app.reproduce.page_tables import PageTables
from florets.server_app.sweep.sweep_store import store_sweeps, stored_jobs, sweep_text

_SWEEP = "sweep."
_FOLDERS = ("data_dir", "results_dir")
_WORDS = ("where", "columns")


def remake(words: Sequence[str], caller: Path) -> int:
    """Make the tables of a page anew, and store what they are made of in the folder that is named as the page.

    Parameters
    ----------
    words
        The page; keys of all its items; ``sweep.<name>=<folder>,...`` of sweeps that are to be stored anew.

    Raises
    ------
    ConfigError
        If there is not one page, it cannot be read, or a block of it is wrong.
    """
    names = [word for word in words if "=" not in word]
    if len(names) != 1:
        raise ConfigError(["--results-page: name one page, as florets reproduce --results-page docs/results.md."])
    path = absolute(names[0], caller)
    given = [word for word in words if "=" in word and not word.startswith(_SWEEP)]
    if wrong := [word for word in given if word.partition("=")[0] not in _FOLDERS]:
        raise ConfigError(
            [
                f"{word}: only {' and '.join(_FOLDERS)} may follow a page's name."
                f"{did_you_mean(word.partition('=')[0], _FOLDERS)} What makes another table belongs into its block."
                for word in wrong
            ]
        )
    folder = path.with_suffix("")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read ({error.strerror})."]) from error
    for word in words:
        if word.startswith(_SWEEP):
            name, _, found = word.removeprefix(_SWEEP).partition("=")
            folders = [absolute(one, caller) for one in found.split(",")]
            say(f"sweep {name}: {counted(store_sweeps(folders, _stored_sweep(folder, name)), 'job')} stored")

    asked_of = PageTables(folder, given, caller)
    pictures, described = PagePictures(folder), set[str]()
    made = made_page(
        text,
        {
            "reproduce": lambda block: item_block(block, asked_of, pictures, described),
            "sweep": lambda block: sweep_block(block, folder),
            "overview": lambda block: overview_block(block, text, asked_of),
        },
    )
    write_whole(path, made.text)
    for line in made.told:
        say(line)
    say(f"Page: {path}")
    if not folder.is_dir():
        say(f"No cell is stored: there is no folder {folder}, and none is finished in results_dir.")
    return 0


def sweep_block(words: Sequence[str], folder: Path) -> tuple[str | None, str]:
    """Return the table of a stored sweep as a block's text.

    Parameters
    ----------
    words
        ``<name> [where=<key>:<value>,...] [columns=...]``.
    folder
        Where the sweep is stored.

    Raises
    ------
    ConfigError
        If the words name nothing.
    """
    names = [word for word in words if "=" not in word]
    own: Mapping[str, str] = dict(word.split("=", 1) for word in words if "=" in word)
    if len(names) != 1 or not set(own) <= set(_WORDS):
        raise ConfigError(
            [f"<!-- sweep {' '.join(words)} -->: must be <name> [where=<key>:<value>,...] [columns=...]."]
        )
    if not (path := _stored_sweep(folder, names[0])).is_file():
        return None, f"no such sweep is stored (sweep.{names[0]}=<its folder>); left as it was"
    jobs_of_it = stored_jobs(path)
    where = dict(pair.partition(":")[::2] for pair in own["where"].split(",")) if "where" in own else {}
    columns = own["columns"].split(",") if "columns" in own else ()
    try:
        return sweep_text(jobs_of_it, columns, where), counted(len(jobs_of_it), "job")
    except ValueError as error:
        raise ConfigError([f"<!-- sweep {' '.join(words)} -->: {error}"]) from error


def _stored_sweep(folder: Path, name: str) -> Path:
    return folder / f"sweep-{name}.csv"
