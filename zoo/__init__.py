"""Methods that papers are compared with, one folder each; `florets.strategies` alone imports them, by their names.

They build on the rounds, layers and parts of `florets.strategies`, and what several of them share is in `shared/`.
"""
