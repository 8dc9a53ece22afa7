"""What stands behind the command: how a scenario is run, checked and shown."""
