"""What `fitroom doctor` found, for a terminal and a notebook."""
