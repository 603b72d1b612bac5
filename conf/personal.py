"""Checks of `personal` and `personal_options`, the personal method within the groups that a strategy finds."""

from florets.conf.schema import Config
from florets.conf.typed import read_settings, show
from florets.strategies.registry import personal_settings_type
from florets.strategies.settings import Settings
from florets.task.keys import range_problems

_PREFIX = "personal_options."
_NOT_ITS_OWN = "fraction_train"


def personal_settings(config: Config, problems: list[str]) -> Settings | None:
    """Return the settings of the personal method, None without one; what is wrong is appended to `problems`."""
    if config.personal in (None, "none"):
        return None
    given = dict(config.personal_options)
    if _NOT_ITS_OWN in given:
        del given[_NOT_ITS_OWN]
        problems.append(
            f"{_PREFIX}{_NOT_ITS_OWN}: the strategy says who takes part; use strategy.{_NOT_ITS_OWN} instead."
        )
    return read_settings(personal_settings_type(str(config.personal)), given, _PREFIX, problems)


def personal_problems(config: Config) -> list[str]:
    """Return one line for each setting of the personal method that cannot work: key and value, rule, remedy."""
    problems: list[str] = []
    settings = personal_settings(config, problems)
    if settings is None:
        if not config.personal_options:
            return problems
        return [
            f"personal_options={show(config.personal_options)}: has an effect only with personal=ditto, fedala, "
            "fedproto or intercept; add one, or leave it out."
        ]
    problems += range_problems(settings, _PREFIX)
    # The method's own words, for a strategy of its own.
    own = [*settings.conflicts(), *settings.problems(config)]
    problems += [line.replace("strategy.", _PREFIX).replace("another strategy", "personal=none") for line in own]
    if config.averaging == "gradients":
        problems.append(
            f"averaging=gradients: clients of personal={config.personal} send models; use averaging=models, or "
            "personal=none."
        )
    return problems
