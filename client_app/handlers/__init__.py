"""The handlers of the ClientApp, one file for each message kind."""
