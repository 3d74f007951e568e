"""The frameworks: one package for each, all behind the contract of `contract.py`."""
