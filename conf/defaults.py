"""A configuration beside the defaults: what it says, whichever keys its version of the code had."""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from florets.conf.layers import is_option
from florets.conf.schema import Chosen, Config, as_plain
from florets.strategies.registry import DEFAULT, UnknownStrategy, settings_type


def dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a plain configuration with their values; option mappings count as one value."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and not is_option(key):
            yield from dotted(value, f"{key}.")
        else:
            yield key, value


def default_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of the dotted keys that a plain configuration with this strategy can have.

    The strategy's name has none: the other keys' defaults depend on it.
    """
    strategy = values.get("strategy")
    return _defaults(str(strategy.get("name", DEFAULT)) if isinstance(strategy, Mapping) else DEFAULT)


def beyond_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the dotted keys of a plain configuration that are not at their defaults, the strategy's name among them.

    Unlike the whole configuration it does not change when the code gets a new key.
    """
    defaults = default_values(values)
    return {key: value for key, value in dotted(values) if key not in defaults or defaults[key] != value}


@lru_cache(maxsize=256)
def _defaults(strategy: str) -> dict[str, Any]:
    try:
        own = as_plain(Config(strategy=Chosen(strategy, settings_type(strategy)())))
        del own["strategy"]["name"]
    except UnknownStrategy:
        # It was registered elsewhere, or is gone: there is nothing that its settings could be compared with.
        own = as_plain(Config())
        del own["strategy"]
    return dict(dotted(json.loads(json.dumps(own))))
