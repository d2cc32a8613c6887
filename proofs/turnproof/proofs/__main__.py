"""``python -m turnproof.proofs`` is the program ``turnproof``."""

from __future__ import annotations

from turnproof.proofs.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
