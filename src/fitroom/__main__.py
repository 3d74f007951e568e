"""`python -m fitroom`: the command line."""

from fitroom.cli.main import main

main()
