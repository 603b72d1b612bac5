"""The strategies, one folder per algorithm, and their registry.

`strategy.py` of a folder holds an algorithm: its settings (keys, defaults, ranges, checks), its state, and `plan`.
Parts of several algorithms are in `shared/`, the machinery of a round in `base/`, array functions in `core/`.

The classes are attributes of this package by their names, `florets.strategies.CLoVE`, imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Type checkers see here what `__getattr__` imports.
    from florets.strategies.centralised.strategy import Centralised as Centralised
    from florets.strategies.cfl_gp.strategy import CFLGP as CFLGP
    from florets.strategies.cfl_s.strategy import CFLS as CFLS
    from florets.strategies.clove.strategy import CLoVE as CLoVE
    from florets.strategies.discovery.strategy import Discovery as Discovery
    from florets.strategies.ditto.strategy import Ditto as Ditto
    from florets.strategies.fedala.strategy import FedALA as FedALA
    from florets.strategies.fedavg.strategy import FedAvg as FedAvg
    from florets.strategies.fedclust.strategy import FedClust as FedClust
    from florets.strategies.feddrift.strategy import FedDrift as FedDrift
    from florets.strategies.fedem.strategy import FedEM as FedEM
    from florets.strategies.fedgwc.strategy import FedGWC as FedGWC
    from florets.strategies.fedpac.strategy import FedPAC as FedPAC
    from florets.strategies.fedproto.strategy import FedProto as FedProto
    from florets.strategies.fedprox.strategy import FedProx as FedProx
    from florets.strategies.fedrc.strategy import FedRC as FedRC
    from florets.strategies.fedsoft.strategy import FedSoft as FedSoft
    from florets.strategies.fesem.strategy import FeSEM as FeSEM
    from florets.strategies.flexcfl.strategy import FlexCFL as FlexCFL
    from florets.strategies.flux.strategy import FLUX as FLUX
    from florets.strategies.ifca.strategy import IFCA as IFCA
    from florets.strategies.k_fed.strategy import KFED as KFED
    from florets.strategies.local.strategy import Local as Local
    from florets.strategies.one_shot.strategy import OneShot as OneShot
    from florets.strategies.oracle.strategy import Oracle as Oracle
    from florets.strategies.pacfl.strategy import PACFL as PACFL
    from florets.strategies.per_fedavg.strategy import PerFedAvg as PerFedAvg
    from florets.strategies.sr_fca.strategy import SRFCA as SRFCA
    from florets.strategies.stocfl.strategy import StoCFL as StoCFL
    from florets.strategies.two_phase.strategy import TwoPhase as TwoPhase

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


def __getattr__(name: str) -> Any:
    folders = {cls: folder for folder, cls in STRATEGIES.items()}
    if name not in folders:
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}; its strategies are {', '.join(folders)}"
        )
    return getattr(import_module(f"{__name__}.{folders[name]}.strategy"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *STRATEGIES.values()})
