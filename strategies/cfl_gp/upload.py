"""Compression of what CFL-GP's clients send: message settings, and the entries of the profile."""

from florets.strategies.cfl_gp.settings import CFLGPSettings
from florets.strategies.core import IntArray
from florets.task.randomness import Purpose, generator
from florets.task.wire import Layout, kinds
from florets.task.wire.compression import coordinates


def decimals(settings: CFLGPSettings) -> dict[str, str | int]:
    """Return the settings of every training message; none where all decimals are kept."""
    if settings.quantise == "none":
        return {}
    return {kinds.QUANTISE: settings.quantise, kinds.QUANTISE_DIGITS: settings.quantise_digits}


def probe_message(settings: CFLGPSettings, seed: int) -> dict[str, object]:
    """Return the settings of a message with a probe; `seed` draws the profile's coordinates, once for a run."""
    own = {kinds.PROFILE_RATIO: settings.compression, kinds.PROFILE_SEED: seed}
    return {**decimals(settings), **own, kinds.PROFILE_LAYERS: list(settings.profile_layers)}


def profile_entries(settings: CFLGPSettings, seed: int, layout: Layout) -> IntArray:
    """Return the entries of a flat model that make the profile, (d_hat,); clients find the same ones.

    Raises
    ------
    ValueError
        If the models lack one of the profile's layers.
    """
    rng = generator(seed, 0, Purpose.PROFILE_COORDINATES)
    return coordinates(layout, settings.profile_layers, settings.compression, rng)
