"""Parts that several algorithms use."""
