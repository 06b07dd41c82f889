"""The seven stages. Each has a batch half (whole tables, called by the asset graph) and a serve
half (one request).
"""
