"""Configuration: the typed keys, the presets, and how they become one checked `Config`."""
