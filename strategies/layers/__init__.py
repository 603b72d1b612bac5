"""Layers around each exchange: noise, masks, outliers, quarantine; `compose` makes those of a run."""
