"""The named choices of SPEC section 9: where real systems legitimately differ.

The default of each is the strict one. An implementation declares the choices it makes and is held to them; what it
does not declare is held to the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import fields, frozen

from turnproof.model.vocabulary import InvalidArgument

__all__ = ["OPTIONS", "STRICT", "Choices"]


@frozen(kw_only=True)
class Choices:
    """One value for each choice; the field's default is the strict one."""

    phase_order: str = "strict"
    begin_gate: str = "owner"
    write_gate: str = "owner"
    consume_phase: str = "provider_started"
    revision: str = "per_begin"
    stream_key: str = "minted"
    attempt_reuse: str = "rejected"
    anchors: str = "checked"
    claim_budget: str = "kept"
    receipts: str = "all_kinds"
    stream_recovery: str = "redrive"
    pairing: str = "step"
    repair_record: str = "applied"
    entry_replay: str = "idempotent"
    created_at: str = "first_begin"

    @classmethod
    def declared(cls, choices: Mapping[str, str]) -> Choices:
        """The choices an implementation declares, the rest strict.

        Raises ``InvalidArgument`` for a choice or a value that SPEC section 9 does not name.
        """
        for name, value in choices.items():
            if name not in OPTIONS:
                raise InvalidArgument(f"unknown choice {name!r}; known: {', '.join(OPTIONS)}")
            if value not in OPTIONS[name]:
                raise InvalidArgument(f"choice {name} cannot be {value!r}; it is one of {', '.join(OPTIONS[name])}")
        return cls(**choices)

    def deviations(self) -> dict[str, str]:
        """What is declared otherwise than strict, by name."""
        return {f.name: getattr(self, f.name) for f in fields(Choices) if getattr(self, f.name) != f.default}


OPTIONS: Final[Mapping[str, tuple[str, str]]] = {
    # choice: (strict default, what else is seen in the field)
    "phase_order": ("strict", "any"),
    "begin_gate": ("owner", "open"),
    "write_gate": ("owner", "slot"),
    "consume_phase": ("provider_started", "any_uncommitted"),
    "revision": ("per_begin", "per_write"),
    "stream_key": ("minted", "opaque"),
    "attempt_reuse": ("rejected", "trusted"),
    "anchors": ("checked", "trusted"),
    "claim_budget": ("kept", "reset_each_claim"),
    "receipts": ("all_kinds", "dispatch_only"),
    "stream_recovery": ("redrive", "replay"),
    "pairing": ("step", "path"),
    "repair_record": ("applied", "recomputed"),
    "entry_replay": ("idempotent", "last_wins"),
    "created_at": ("first_begin", "each_begin"),
}

STRICT: Final = Choices()
