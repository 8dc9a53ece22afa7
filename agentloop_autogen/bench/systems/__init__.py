"""Every system that can be put to the tasks, each a small adapter."""
