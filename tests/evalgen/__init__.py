"""A world of nodes, GPUs, links and ranks that goes wrong, and prints what tools print.

It never imports the package under test: formats come from the public sources that each renderer
names, and a story's expected verdict follows from the fault that was put into its world.
"""
