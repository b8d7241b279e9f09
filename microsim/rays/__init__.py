"""Rays against the ground, meshes and solids: what LiDARs and cameras over relief are made of."""
