"""Settings of discovery."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from florets.strategies.settings import SharedLayers
from florets.task.keys import setting


@dataclass(frozen=True)
class DiscoverySettings(SharedLayers):
    """Finds in round 1 whether there are groups, how many and which; then each group trains a model of its own."""

    fold_upload: Literal["projection", "signs", "full"] = setting(
        "projection", "how clients send what they learned on a fold: projected, as signs (128 bytes), or all of it"
    )
    fold_width: int | None = setting(
        None,
        "entries of what is sent of a fold; null: a fifth of the parameters, 256 to 1024 (signs: 1024)",
        least=8,
    )
    level: float = setting(
        0.005, "how often clients that do not differ may be divided: the level of the test", above=0, below=1
    )
    tolerance: float | None = setting(
        None,
        "a smaller number of groups is taken if it costs less than this share of the score; null: 0.01, and with at "
        "most six clients 0.05",
        least=0,
        below=1,
    )
    clients_needed: int | None = setting(
        None,
        "clients that take part before groups are looked for, where rounds are samples of them; null: five for each "
        "of k groups, or 40 (k=auto), but no more than three of four clients",
        least=2,
    )
    first_look: int | None = setting(
        None,
        "round in which groups are looked for, with what the one model has learned until then; null: 1, and in a "
        "regression as soon as the model has learned what all clients share",
        least=1,
    )
    second_look: int = setting(
        0,
        "round in which groups are looked for again where none were found, with what the one model has learned until "
        "then (k=auto); 0: never",
        least=0,
        note="0 means never",
    )
    place_one_class: bool = setting(
        False,
        "clients whose training records are all of one class take no part in the search for groups, and are placed "
        "afterwards: they differ from all others, whatever rule tells the classes apart",
    )
    rediscover_every: int = setting(
        0,
        "rounds after which groups are looked for again, among all clients; 0: never",
        least=0,
        note="0 means never",
    )

    grows: ClassVar[bool] = True
    finds_k: ClassVar[bool] = True
