"""D-CAPE (seed 000)."""
