"""Start-up kits of a federation, and a whole one on this machine; docs/deployment.md is the guide."""
