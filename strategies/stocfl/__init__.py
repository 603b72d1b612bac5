"""StoCFL: clusters that are merged as clients are sampled, and models held near a global one."""
