"""Compression of a client's reply: coordinates of the profile, and decimals of everything."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from florets.task.wire.layout import Layout

Quantise = Literal["none", "round", "truncate"]


def coordinates(
    layout: Layout, layers: Sequence[str], ratio: float, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Return which entries of a model's flat vector make a client's profile vector.

    Client and server call it with equal arguments and generators of equal seed, so that no index travels.

    Parameters
    ----------
    layout
        Of the model; only its trainable parameters can be among the entries: running statistics and counters would
        outweigh them by orders of magnitude.
    layers
        Name prefixes of the layers that count; none: all.
    ratio
        d / d_hat: one entry in so many is drawn, without replacement; 1 takes all.
    rng
        Draws the entries.

    Returns
    -------
    ndarray
        int64 (d_hat,), rising.

    Raises
    ------
    ValueError
        If a prefix fits no layer, the layers hold no trainable parameter, or `ratio` is below 1 or leaves less
        than one entry.

    Source: CFL-GP, App. E.1 (random coordinates, drawn once) and E.2 (chosen layers).
    """
    if not ratio >= 1:
        raise ValueError(f"compression={ratio} is below 1: it is the number of entries for each one that is sent.")
    wanted = layout.trained
    if layers:
        wanted &= layout.mask(layers)
    places = np.flatnonzero(wanted)
    if not len(places):
        raise ValueError(f"profile_layers={list(layers)} hold no parameter: name a layer with weights.")
    if ratio > len(places):
        raise ValueError(
            f"compression={ratio:g}: one in so many of {len(places)} parameters is none; use at most {len(places)}, "
            "better much less."
        )
    if ratio == 1:
        return places
    return np.sort(rng.choice(places, size=round(len(places) / ratio), replace=False))


def quantise(values: npt.NDArray[Any], how: str, digits: int) -> npt.NDArray[Any]:
    """Keep so many decimals of each value; arrays of counters stay as they are.

    Parameters
    ----------
    values
        Any shape.
    how
        ``none``; ``round`` to the nearest, halves to the even digit; ``truncate`` towards zero.
    digits
        Decimals that are kept, at least 0.

    Raises
    ------
    ValueError
        If `how` is another word.

    Source: CFL-GP, App. E.1, Table 7, which speaks of truncation; its figures fit rounding.
    """
    if how not in get_args(Quantise):
        raise ValueError(f"quantise={how!r} is unknown: choose one of {', '.join(get_args(Quantise))}.")
    if how == "none" or values.dtype.kind != "f":
        return values
    scale = 10.0**digits
    # In float64, where scaling a float32 neither overflows nor moves it across a decimal.
    scaled = values.astype(np.float64) * scale
    kept = np.rint(scaled) if how == "round" else np.trunc(scaled)
    return (kept / scale).astype(values.dtype)
