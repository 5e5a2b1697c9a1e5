"""Command line: `python -m reckoning.models tiny-kimi models/tiny-kimi`."""

import argparse
import sys
from pathlib import Path

from reckoning.models import MAKERS, make


def main(arguments: list[str] | None = None) -> int:
    """Make one model folder; exit status 2 when it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m reckoning.models", description="Make an embedded model.")
    parser.add_argument("maker", choices=sorted(MAKERS))
    parser.add_argument("path", type=Path)
    options = parser.parse_args(arguments)
    try:
        made = make(options.maker, options.path)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    facts = made["facts"]
    weights = (
        f"{facts['parameters'] / 1e6:.1f} M parameters" if facts["parameters"] else "no weights (--load-format dummy)"
    )
    print(f"{options.path}: {weights}, vocabulary {facts['vocabulary']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
