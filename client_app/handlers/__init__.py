"""Handlers of what every run asks clients: hello, descriptions, estimates, tests, and code by import path."""
