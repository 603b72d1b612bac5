"""Random intercepts: a group's model, and for each client an offset of its outputs that is shrunk towards none."""
