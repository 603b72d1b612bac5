"""k-FED: the messages that it alone sends."""

KMEANS = "florets.strategies.k_fed.client:kmeans"
