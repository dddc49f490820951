"""The heads for a target, loaded: named by the user, trained by the user, or shipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engines.errors import ModelUnavailable, SpecError
from engines.heads.checkpoint import names_needed, read
from engines.heads.head_config import FAMILIES, MEDUSA_HEADS
from engines.heads.local_heads import local_heads, may_be_on_hub, place_of
from engines.libraries.hf import text_config
from engines.model.load_options import AUTO, NONE
from engines.progress import Loading

if TYPE_CHECKING:
    from engines.heads.draft_head import DraftHead
    from engines.heads.medusa_heads import MedusaHeads
    from engines.model.causal_model import CausalModel

    Head = DraftHead | MedusaHeads

def heads_for(
    name: str | None, target: CausalModel, allow_pickle: bool = False,
    progress: Callable[[Loading], None] = lambda event: None,
) -> tuple[dict[str, Head], tuple[str, ...]]:
    """The heads for a target, loaded, by kind: that of this name (a folder, a hub id, the name of an available one, or
    a family: its best available one for this target), and of every other kind the best available one that was trained
    for the target: one that was trained here before one that ships, and of these the one whose training expects most
    tokens a round. Also what the user should know.

    Raises:
        ModelUnavailable: the named head is missing or cannot be read.
        UsageProblem: it is of another target.
    """
    found: dict[str, Head] = {}
    if name == NONE:
        return found, ()
    said, ours = [], [one for one in local_heads() if one.target_fingerprint == target.fingerprint != ""]
    ours.sort(key=lambda one: (one.ships, -one.expected))
    if (family := FAMILIES.get((name or "").lower())) is not None:
        ours.sort(key=lambda one: one.family != family)
    elif name not in (None, AUTO):
        head = _loaded(name, _folder(name, allow_pickle, progress), target, allow_pickle)
        found[head.config.kind] = head
        if head.file.made_for and head.file.made_for != target.fingerprint:
            said.append(f"the head {name} was trained for other weights than those of {target.name}: its drafts may be "
                        "accepted less often")
    for one in ours:
        if one.kind not in found:
            try:
                found[one.kind] = _loaded(one.name, one.folder, target, False)
            except SpecError as error:
                said.append(error.message)
    return found, tuple(said)


def _loaded(name: str, folder: Path, target: CausalModel, allow_pickle: bool) -> Head:
    from engines.heads.draft_head import DraftHead
    from engines.heads.medusa_heads import MedusaHeads

    config = text_config(target.model.config)
    file = read(name, folder, config.num_hidden_layers, config.hidden_size, allow_pickle)
    return (MedusaHeads if file.config.kind == MEDUSA_HEADS else DraftHead)(file, target)


def _folder(name: str, allow_pickle: bool, progress: Callable[[Loading], None]) -> Path:
    """Where a head lies; of the hub, its two files are fetched. Raises ModelUnavailable."""
    if (place := place_of(name)) is not None:
        return place
    if not may_be_on_hub(name):
        raise ModelUnavailable(f"there is no head {name[:80]}", f"give its folder, a hub id, or {_names()}")
    return _from_hub(name, allow_pickle, progress)


def _names() -> str:
    return "one of: " + ", ".join([*(head.name for head in local_heads() if not head.fault), AUTO, NONE])


def _from_hub(name: str, allow_pickle: bool, progress: Callable[[Loading], None]) -> Path:
    from engines.hub import hub_api, hub_cache
    from engines.hub.download import Download

    with hub_api.hub_errors(name, None):
        kept = hub_cache.snapshot(name, None)
    if kept is not None and len(names_needed((p.name for p in kept.iterdir()), allow_pickle)) == 2:
        return kept
    if hub_api.offline():
        raise ModelUnavailable(f"the head {name} {hub_api.NOT_FETCHED}", hub_api.OFFLINE)
    asking = Loading(f"asking the hub for {name}")
    progress(asking)
    listing = hub_api.ask(name, None, lambda: progress(asking))
    needed = names_needed(listing.files, allow_pickle)
    if len(needed) < 2:
        raise ModelUnavailable(f"{name} has no head in safetensors",
                               "--allow-pickle reads pickled ones, or choose another head")
    download = Download(listing, needed, "head: ")
    download.announce(progress)
    return download.fetch(needed, progress)

