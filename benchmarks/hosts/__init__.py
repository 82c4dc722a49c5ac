"""Runs on hosts of the rig that share nothing but a network: `make clouds`."""
