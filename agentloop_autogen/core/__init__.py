"""The decision core: pure functions over frozen records. Imports no AutoGen, does no I/O, reads no clock."""
