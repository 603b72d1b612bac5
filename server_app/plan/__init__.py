"""`florets plan`: what a run will send, need and take, found by a dry run in which few clients compute."""
