"""A method with the id of one that is there already."""

from engines.methods.spec import MethodSpec

SPEC = MethodSpec(
    id="pld", title="Another lookup", summary="Drafts nothing.", source="tests of spec-tui",
    drafter="engines.methods.drafter:Drafter",
)
