"""`florets tune`: choose settings by validation data."""

from collections.abc import Sequence

from florets.commands.given_keys import key_texts
from florets.conf.problems import ConfigError

HELP = """florets tune <key>=<values> ... [trials=20] [sampler=tpe|random|grid] [n_jobs=1] [<key>=<value> ...]
  Run an experiment with different settings, and name the best by its validation figure (`measure`), never by test
  data, on the last line and in best.yaml in the sweep's folder. Without task.validation_fraction a fifth of each
  client's training records is held out.

  train.learning_rate=0.01,0.03,0.1                      one of these
  'train.learning_rate=tag(log,interval(0.001,0.1))'     a number from an interval, on a logarithmic scale
  'train.local_epochs=interval(1,5)'                     an integer from 1 to 5

  sampler=tpe      learns from earlier trials (Optuna, the extra `tune`)
  sampler=random   draws at random (Optuna)
  sampler=grid     all combinations, as above if there are at most `trials`; with several seeds their mean counts
  n_jobs=4         trials at a time, in separate processes (the extra `sweep`)"""

_OWN = ("trials", "sampler", "n_jobs")


def main(arguments: Sequence[str]) -> int:
    """Run `florets tune` and return its exit code: 0, 1 if a trial failed, 130 if interrupted."""
    if not arguments:
        print(HELP)
        return 0
    search = read_words(arguments)
    # Hydra and the engines cost seconds, which the help should not.
    from florets.api.sweep import run_tune

    return run_tune(*search)[0]


def read_words(arguments: Sequence[str]) -> tuple[list[str], int | None, str, int]:
    """Return the overrides, the number of trials, the sampler and the number of trials at a time."""
    words = key_texts("tune", arguments)
    own = {key: text.partition("=")[2] for text in words if (key := text.partition("=")[0]) in _OWN}
    numbers = {key: own[key] for key in ("trials", "n_jobs") if key in own}
    if wrong := [key for key, text in numbers.items() if not text.removeprefix("-").isdecimal()]:
        raise ConfigError([f"{key}={own[key]}: must be an integer." for key in wrong])
    overrides = [text for text in words if text.partition("=")[0] not in _OWN]
    trials = int(own["trials"]) if "trials" in own else None
    return overrides, trials, own.get("sampler", "tpe"), int(own.get("n_jobs", "1"))
