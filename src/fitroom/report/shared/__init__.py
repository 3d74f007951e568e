"""What the subjects of reports share: the terminal's surface, templates, charts, colours, words."""
