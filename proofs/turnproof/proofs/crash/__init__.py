"""Crashes and faults at every write our store makes, judged by the model: the verb ``crash`` (X1, X2, X3, X6).

A *scenario* (``script``, ``scenarios``, ``acting``, ``draws``) is played once on a recording disk (``stage``). Of the
recording a *sweep* makes every crash (``sweep``), and the *judge* puts each image under the real store (``judge``).
``faulting`` lets calls fail, ``obstacles`` and ``process`` do the same to real files and processes. ``wrong`` holds the
stores that only this room can tell from right ones, ``counterexample`` the files that show a crash again, ``standard``
what runs by default, ``evidence`` what it shows of the promises, ``command`` the verb.
"""

from turnproof.proofs.crash.command import add_arguments, replay_crash, run
from turnproof.proofs.crash.standard import Summary, standard_set

__all__ = ["Summary", "add_arguments", "replay_crash", "run", "standard_set"]
