import sys

from reckoning.engine.cli import main

sys.exit(main())
