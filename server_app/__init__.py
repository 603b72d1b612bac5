"""The server side of Florets: the ServerApp, the command and the results."""
