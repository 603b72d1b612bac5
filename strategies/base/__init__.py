"""The machinery of a round: the Flower Strategy that every algorithm builds on, and its parts."""
