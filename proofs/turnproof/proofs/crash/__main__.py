"""The program that kills its children: ``python -m turnproof.proofs.crash`` (see ``process``)."""

import sys

from turnproof.proofs.crash.process import main

sys.exit(main(sys.argv[1:]))
