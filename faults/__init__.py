"""A campaign of faults on a real local cluster under load: `python -m faults`. Not part of the package."""
