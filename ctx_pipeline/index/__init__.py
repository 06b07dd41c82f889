"""The durable store of all item versions, the serving artifact derived from it, and the text
embedders.
"""
