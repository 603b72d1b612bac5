"""The strategies, one folder per algorithm, and their registry; those they are compared with are in `florets.zoo`.

`strategy.py` of a folder holds an algorithm: its settings (keys, defaults, ranges, checks), its state, and `round`.
Parts of several algorithms are in `shared/`, the machinery of a round in `base/`, array functions in `core/`.

The classes are attributes of this package by their names, `florets.strategies.CLoVE`, imported when first used.
"""

from importlib import import_module
from pathlib import Path
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
    from florets.zoo.cfl_s import CFLS as CFLS
    from florets.zoo.fedala import FedALA as FedALA
    from florets.zoo.fedclust import FedClust as FedClust
    from florets.zoo.feddrift import FedDrift as FedDrift
    from florets.zoo.fedem import FedEM as FedEM
    from florets.zoo.fedgwc import FedGWC as FedGWC
    from florets.zoo.fedpac import FedPAC as FedPAC
    from florets.zoo.fedproto import FedProto as FedProto
    from florets.zoo.fedrc import FedRC as FedRC
    from florets.zoo.fedsoft import FedSoft as FedSoft
    from florets.zoo.fesem import FeSEM as FeSEM
    from florets.zoo.flexcfl import FlexCFL as FlexCFL
    from florets.zoo.flux import FLUX as FLUX
    from florets.zoo.k_fed import KFED as KFED
    from florets.zoo.pacfl import PACFL as PACFL
    from florets.zoo.per_fedavg import PerFedAvg as PerFedAvg
    from florets.zoo.sr_fca import SRFCA as SRFCA
    from florets.zoo.stocfl import StoCFL as StoCFL

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


def module_of(name: str) -> str:
    """Return the module of a strategy of the registry: in a folder of this package, else in `florets.zoo`."""
    # A folder alone may be a leftover: caches outlast a file that has moved.
    is_ours = Path(__file__).with_name(name).joinpath("strategy.py").is_file()
    return f"florets.strategies.{name}.strategy" if is_ours else f"florets.zoo.{name}"


def __getattr__(name: str) -> Any:
    folders = {cls: folder for folder, cls in STRATEGIES.items()}
    if name not in folders:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; its strategies are {', '.join(folders)}"
        )
    return getattr(import_module(module_of(folders[name])), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *STRATEGIES.values()})
