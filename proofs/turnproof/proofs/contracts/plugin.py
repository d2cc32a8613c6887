"""Hand the factories of ``shapes`` to CrossHair. Given to it with ``--extra_plugin``."""

from crosshair import register_type

from turnproof.model.log import Line
from turnproof.model.repair import Item
from turnproof.model.rows import Lease, Slot, Submission
from turnproof.proofs.contracts import shapes

register_type(Slot, shapes.make_slot)
register_type(Submission, shapes.make_submission)
register_type(shapes.Gate, shapes.make_gate)
register_type(shapes.Running, shapes.make_running)
register_type(Lease, shapes.make_lease)
register_type(Line, shapes.make_line)
register_type(Item, shapes.make_item)
