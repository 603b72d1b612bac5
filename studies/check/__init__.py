"""`florets check`: problems in sites' data, before anything is trained."""
