"""A world of nodes, GPUs, links and ranks that goes wrong in known ways, and prints what tools print.

It never imports the package under test: formats come from the public sources named in each renderer.
"""
