"""Discovery: whether there are groups, how many, and which, in the first round; then FedAvg in each group."""
