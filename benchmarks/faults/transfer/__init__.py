"""Faults in systems made of software and data of others."""
