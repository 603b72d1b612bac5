"""Consent of a node's owner to code that a run names by an import path."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from florets.task import given
from florets.task.imported import module_of

ALLOW = "allow"
"""Key of the node config: packages, or modules in them, whose functions a run may name here."""


class Refused(ValueError):
    """The owner of this node does not let it do what a run asks; the text names the rule and what can be changed."""


@dataclass(frozen=True)
class Consent:
    """What a run may name: the owner's packages, on one's own machine everything."""

    packages: tuple[str, ...] | None
    """Dotted names of packages and modules, with those inside; None: whatever is named."""

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> "Consent":
        """Read the owner's consent: a list, or names with commas between them; without the key nothing is allowed."""
        stated = node_config.get(ALLOW, "")
        names = stated if isinstance(stated, list) else str(stated).split(",")
        return cls(tuple(name for name in (str(name).strip() for name in names) if name))

    def allows(self, module: str) -> bool:
        """Return whether code of a module may be run."""
        return self.packages is None or any(f"{module}.".startswith(f"{name}.") for name in self.packages)

    def require(self, key: str, path: str) -> None:
        """Refuse an import path that this node's owner has not allowed, before anything of it is imported."""
        if ":" not in path:
            return
        module = module_of(f"{key}={path!r}", path)
        if given.is_given(path) and self.packages is not None and module not in self.packages:
            # Whoever allows all of florets has not seen it: it is no code of an installed package.
            raise Refused(
                f"{key}={path}: is an object that was given in Python, which no node takes over the network; put it "
                "into a module that the nodes have installed, and name it as package.module:name"
            )
        if self.allows(module):
            return
        raise Refused(
            f"{key}={path}: this node does not allow that code; if you trust its package, add "
            f"{ALLOW}='{module.partition('.')[0]}' to the SuperNode's --node-config"
        )


EVERYTHING = Consent(None)
