"""Methods that papers are compared with, one file each; `florets.strategies` alone imports them, by their names.

A file holds an algorithm's keys, its state, its round, and what its clients do: public functions of a `client`. They
build on the rounds, layers and parts of `florets.strategies`, and what several of them share is in `shared/`.
"""
