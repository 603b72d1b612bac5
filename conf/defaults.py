"""Defaults of a configuration's keys, and what differs from them."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from florets.conf.follow import follow
from florets.conf.layers import dotted
from florets.conf.schema import Chosen, Config, as_plain
from florets.strategies.registry import DEFAULT, UnknownStrategy, settings_type


def default_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of the dotted keys that a plain configuration with this strategy can have.

    Run-level choices such as ``averaging`` have the value that the strategy takes by itself. The strategy's name has
    no default: those of the other keys depend on it.
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
        settings = settings_type(strategy)
    except UnknownStrategy:
        # It was registered elsewhere, or is gone: there is nothing that its settings could be compared with.
        own = as_plain(Config())
        del own["strategy"]
    else:
        own = as_plain(Config(strategy=Chosen(strategy, settings())))
        follow(own, settings, {}, strategy)
        del own["strategy"]["name"]
    return dict(dotted(json.loads(json.dumps(own))))
