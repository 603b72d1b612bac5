"""Layers around an algorithm's exchanges: noise, masks, outliers, quarantine, watch; a run composes them (`compose`)."""
