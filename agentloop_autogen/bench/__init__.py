"""The benchmark: the same tasks, tools and model endpoint for every system, and one way to count what each costs."""
