"""A YAML file in which no name may stand twice: YAML itself takes the last one without a word."""

from pathlib import Path
from typing import Any

import yaml


class _UniqueKeys(yaml.SafeLoader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"{twice} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """Return what a file holds.

    Raises
    ------
    OSError, ValueError
        If it cannot be read.
    yaml.YAMLError
        If it is not YAML, or a name stands twice in one mapping.
    """
    # As yaml.safe_load does with its own loader: plain values alone are made.
    loader = _UniqueKeys(path.read_text(encoding="utf-8"))
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()
