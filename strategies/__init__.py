"""The strategies, one folder per algorithm, and their registry; those they are compared with stand in `florets.zoo`.

`strategy.py` of a folder holds an algorithm: its settings (keys, defaults, ranges, checks), its state, and `round`.
Parts of several algorithms are in `shared/`, the machinery of a round in `base/`, array functions in `core/`.

The classes are attributes of this package by their names, `florets.strategies.CLoVE`, imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers see here what `__getattr__` imports.
    from florets.strategies.centralised.strategy import Centralised as Centralised
    from florets.strategies.cfl_gp.strategy import CFLGP as CFLGP
    from florets.strategies.clove.strategy import CLoVE as CLoVE
    from florets.strategies.discovery.strategy import Discovery as Discovery
    from florets.strategies.ditto.strategy import Ditto as Ditto
    from florets.strategies.fedavg.strategy import FedAvg as FedAvg
    from florets.strategies.fedprox.strategy import FedProx as FedProx
    from florets.strategies.ifca.strategy import IFCA as IFCA
    from florets.strategies.local.strategy import Local as Local
    from florets.strategies.one_shot.strategy import OneShot as OneShot
    from florets.strategies.oracle.strategy import Oracle as Oracle
    from florets.strategies.two_phase.strategy import TwoPhase as TwoPhase
    from florets.zoo.cfl_s.strategy import CFLS as CFLS
    from florets.zoo.fedala.strategy import FedALA as FedALA
    from florets.zoo.fedclust.strategy import FedClust as FedClust
    from florets.zoo.feddrift.strategy import FedDrift as FedDrift
    from florets.zoo.fedem.strategy import FedEM as FedEM
    from florets.zoo.fedgwc.strategy import FedGWC as FedGWC
    from florets.zoo.fedpac.strategy import FedPAC as FedPAC
    from florets.zoo.fedproto.strategy import FedProto as FedProto
    from florets.zoo.fedrc.strategy import FedRC as FedRC
    from florets.zoo.fedsoft.strategy import FedSoft as FedSoft
    from florets.zoo.fesem.strategy import FeSEM as FeSEM
    from florets.zoo.flexcfl.strategy import FlexCFL as FlexCFL
    from florets.zoo.flux.strategy import FLUX as FLUX
    from florets.zoo.k_fed.strategy import KFED as KFED
    from florets.zoo.pacfl.strategy import PACFL as PACFL
    from florets.zoo.per_fedavg.strategy import PerFedAvg as PerFedAvg
    from florets.zoo.sr_fca.strategy import SRFCA as SRFCA
    from florets.zoo.stocfl.strategy import StoCFL as StoCFL

STRATEGIES = {
    "clove": "CLoVE",
    "ifca": "IFCA",
    "cfl_gp": "CFLGP",
    "two_phase": "TwoPhase",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "local": "Local",
    "centralised": "Centralised",
    "ditto": "Ditto",
    "per_fedavg": "PerFedAvg",
    "fedala": "FedALA",
    "fedproto": "FedProto",
    "fedpac": "FedPAC",
    "oracle": "Oracle",
    "one_shot": "OneShot",
    "k_fed": "KFED",
    "discovery": "Discovery",
    "flexcfl": "FlexCFL",
    "cfl_s": "CFLS",
    "fesem": "FeSEM",
    "pacfl": "PACFL",
    "stocfl": "StoCFL",
    "fedclust": "FedClust",
    "sr_fca": "SRFCA",
    "flux": "FLUX",
    "fedgwc": "FedGWC",
    "fedem": "FedEM",
    "feddrift": "FedDrift",
    "fedrc": "FedRC",
    "fedsoft": "FedSoft",
}
"""The registry: a strategy's name, which is its folder's, and its class."""

_IN_ZOO = frozenset(
    {"per_fedavg", "fedala", "fedproto", "fedpac", "k_fed", "flexcfl", "cfl_s", "fesem", "pacfl", "stocfl"}
    | {"fedclust", "sr_fca", "flux", "fedgwc", "fedem", "feddrift", "fedrc", "fedsoft"}
)
"""Those whose folder is in `florets.zoo`."""

PERSONAL = {
    "intercept": "random_effects.strategy:InterceptClients",
    "slopes": "random_effects.strategy:SlopesClients",
}
"""Values of `personal`, and the path of each one's class within this package."""

TITLES = STRATEGIES | {
    "cfl_gp": "CFL-GP",
    "two_phase": "Two-phase",
    "local": "Local-only",
    "per_fedavg": "Per-FedAvg",
    "one_shot": "One-shot",
    "k_fed": "k-FED",
    "cfl_s": "CFL-S",
    "sr_fca": "SR-FCA",
}
"""The names that papers give them, for tables and figures."""


def package_of(name: str) -> str:
    """Return the package of a strategy of the registry."""
    return f"florets.{'zoo' if name in _IN_ZOO else 'strategies'}.{name}"


def __getattr__(name: str) -> Any:
    folders = {cls: folder for folder, cls in STRATEGIES.items()}
    if name not in folders:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; its strategies are {', '.join(folders)}"
        )
    return getattr(import_module(f"{package_of(folders[name])}.strategy"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *STRATEGIES.values()})
