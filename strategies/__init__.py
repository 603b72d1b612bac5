"""The strategies, one folder per algorithm, and their registry.

A folder holds `settings.py` (keys, defaults, ranges, checks; it imports the standard library alone, so that a
mistyped key costs no Flower), `strategy.py` (the algorithm: its state and `plan`), and the functions that it alone
uses. Parts of several algorithms are in `shared/`, the machinery of a round in `base/`, array functions in `core/`.
"""

STRATEGIES = {
    "clove": "Clove",
    "ifca": "Ifca",
    "cfl_gp": "CflGp",
    "two_phase": "TwoPhase",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "local": "Local",
    "centralised": "Centralised",
    "ditto": "Ditto",
    "per_fedavg": "PerFedAvg",
    "fedala": "FedAla",
    "fedproto": "FedProto",
    "fedpac": "FedPac",
    "oracle": "Oracle",
    "one_shot": "OneShot",
    "k_fed": "KFed",
    "discovery": "Discovery",
    "flexcfl": "FlexCfl",
    "cfl_s": "CflS",
    "fesem": "FeSem",
    "pacfl": "Pacfl",
    "stocfl": "StoCfl",
    "fedclust": "FedClust",
    "sr_fca": "SrFca",
    "flux": "Flux",
    "fedgwc": "FedGwc",
    "fedem": "FedEm",
    "feddrift": "FedDrift",
    "fedrc": "FedRc",
    "fedsoft": "FedSoft",
}
"""The registry: a strategy's name, which is its folder's, and its class; `<class>Settings` are its settings."""

PERSONAL = {"intercept": "Intercept"}
"""Personal methods that are no strategies of their own: `<class>Clients` in `personal.py`, `<class>Settings`."""
