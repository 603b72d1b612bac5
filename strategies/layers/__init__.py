"""Layers around an algorithm's exchanges: noise, masks, outliers, quarantine, watch; `base/` composes them."""
