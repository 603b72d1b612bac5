"""`florets show-partition`: who holds which samples, in a terminal, as tables and as pictures."""
