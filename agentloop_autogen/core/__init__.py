"""The decision core: pure functions over frozen records. Imports no AutoGen, does no I/O, reads no clock.

Symbols and equation numbers in docstrings are those of the AgentLoop paper (arXiv 2609.33315). Start reading at
`policy.py`, the table of branches, and `controller.py`, which puts a round through it.
"""
