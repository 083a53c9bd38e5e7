"""`python -m connector.cli` is `dynaduck`."""

from connector.cli import main

main()
