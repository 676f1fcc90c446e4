"""`python -m polarproxy` is the `polarproxy` command."""

from polarproxy.cli.main import run

if __name__ == "__main__":
    run()
