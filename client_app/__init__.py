"""The Flower ClientApp: one handler per message kind."""
