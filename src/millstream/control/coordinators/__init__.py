"""Coordinators and their zones (seed 003, section 4)."""
