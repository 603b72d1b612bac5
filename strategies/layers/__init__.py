"""Layers around each exchange: noise, masks, outliers, quarantine, watch; `compose` makes those of a run."""
