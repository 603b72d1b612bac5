"""Trackers: tools that a run is logged with as it goes on, and one's own callbacks."""
