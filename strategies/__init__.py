"""The strategies, one folder per algorithm, and their registry.

A folder holds `settings.py` (keys, defaults, ranges, checks; it imports the standard library alone, so that a
mistyped key costs no Flower), `strategy.py` (the algorithm: its state and `plan`), and the functions that it alone
uses. Parts of several algorithms are in `shared/`, the machinery of a round in `base/`, array functions in `core/`.
"""

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
"""The registry: a strategy's name, which is its folder's, and its class; `<class>Settings` are its settings."""

PERSONAL = {"intercept": "Intercept"}
"""Personal methods that are no strategies of their own: `<class>Clients` in `personal.py`, `<class>Settings`."""

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
