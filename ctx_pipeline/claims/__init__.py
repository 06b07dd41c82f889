"""What items claim, as numbers that can be compared: found in each text once, and against each
other in each build.

`extract` reads one item, `contested` compares all of them, `reader` looks up what contradicts what.
"""
