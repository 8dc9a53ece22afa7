"""The forms in which runs are recorded, each read into a `Trace`, some written from one."""
