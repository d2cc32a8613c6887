"""Every schedule of a small scope: stores x workers x the outside world, enumerated and not sampled.

``scope`` bounds it and scripts the provider and the tools; ``machine`` makes one step of the composed system, with the
real model and the real driver; ``search`` visits every state; ``laws`` says what must hold and ``sometimes`` what must
be reached; ``designs`` are the wrong ways of the field; ``orbits`` shows what the symmetry reduction is worth;
``timeline`` tells a history. The verb is ``turnproof explore``.
"""

from turnproof.proofs.explore.verb import Exploration, add_arguments, explore, run

__all__ = ["Exploration", "add_arguments", "explore", "run"]
