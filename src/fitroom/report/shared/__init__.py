"""Pieces that every room uses: the terminal's surface, templates, charts, colours, words."""
