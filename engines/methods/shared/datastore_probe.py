"""What would be drafted from a datastore after a text: the retrieving methods' own drafts, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engines import methods
from engines.core.lossless_laws import Verdict
from engines.core.outcome import DraftLimits, Outcome
from engines.core.tree import DraftTree
from engines.datastores.datastore_events import Probed, ProbeDraft
from engines.datastores.storage import catalog
from engines.errors import UsageProblem
from engines.methods.drafter import Resources
from engines.model.feature_request import Tap
from engines.report.events import Draft, Retrieval
from engines.request import Request

if TYPE_CHECKING:
    import torch

    from engines.datastores.building.corpus import LoadedModel
    from engines.datastores.search.open_datastores import OpenDatastores
    from engines.tokenization import Detokenizer

NEEDS = {"sparse": "datastore", "dense": "dense datastore"}
"""What the method that searches a part of a datastore needs, and nothing else."""

_PIECES = 64  # labels of the last tokens that are kept
_LIMITS = {"c": 24, "drafts": 10, "length": 10}  # values of the methods' options, of those that they have
_NODES = 512  # of a draft


def probe(model: LoadedModel, name: str, text: str, prompt: str | None = None) -> Probed:
    """What would be drafted from each part of a datastore that fits the model. Raises UsageProblem: there is no such
    datastore, or it does not fit; the text has no tokens."""
    context = context_of(model.tokenizer, text, prompt, model.target.vocab_size)
    drafts = []
    if name in model.open_datastores.fitting() or name in model.open_datastores.offered:
        drafts.append(probe_part("sparse", name, context, model.open_datastores, model.words, model.target.vocab_size))
    if name in model.open_datastores.fitting(dense=True):
        following, hidden = last_hidden_state(model, context, prompt if not text else None)
        drafts.append(
            probe_part("dense", name, following, model.open_datastores, model.words, model.target.vocab_size, hidden)
        )
    if not drafts:
        catalog.find(name)
        raise UsageProblem(f"datastore {name} does not fit the model", "choose one that does, or build it anew")
    return Probed(name, text, prompt, len(context), pieces_of(context, model.words), tuple(drafts))


def probe_part(
    part: str, name: str, context: Sequence[int], datastores: OpenDatastores, detokenizer: Detokenizer,
    vocab_size: int, hidden: np.ndarray | None = None,
) -> ProbeDraft:
    """The draft after ``context`` of the method that searches this part of a datastore.

    Args:
        part: one of ``NEEDS``.
        hidden: the target's hidden state float32 [H] of the row that produced the last token; for the dense part.

    Raises:
        UsageProblem, DatastoreProblem: see ``OpenDatastores.sparse``.
    """
    spec = next(spec for spec in methods.specs() if spec.needs == (NEEDS[part],))
    resources = Resources(
        law=None, vocab_size=vocab_size, target=_Read(hidden), open_datastores=datastores, words=detokenizer,
        datastores=(name,),
    )
    options = spec.parse({})
    drafter = spec.load_drafter()(resources, **options | {k: v for k, v in _LIMITS.items() if k in options})
    outcome = Outcome(
        context=list(context), prompt_length=len(context) - 1, position=len(context) - 1, tree=DraftTree(),
        verdict=Verdict(tokens=[context[-1]]), logits=None,
    )
    drafter.start(outcome)  # reads the datastore into memory, so that the lookup is timed as in a run
    tree = drafter.draft(list(context), DraftLimits(_LIMITS["length"], _NODES))
    draft = Draft(
        tokens=tuple(tree.tokens), parents=tuple(tree.parents), pieces=tuple(map(detokenizer.piece, tree.tokens)),
        probs=tuple(tree.probs), origin=tuple(tree.origin), origins=tuple(tree.origins),
    )
    remark = datastores.dense((name,))[0].remark if part == "dense" else ""
    return ProbeDraft(spec.id, spec.title, draft, tree.retrieval or Retrieval(0.0), remark)


class _Read:
    """A target that has read the context, as far as the drafters of a probe ask it."""

    def __init__(self, hidden: np.ndarray | None) -> None:
        self.features, self._hidden = self, hidden

    def latest(self, tap: Tap) -> torch.Tensor:
        """Its last hidden state [1, H]."""
        import torch

        return torch.from_numpy(self._hidden[None])


def pieces_of(context: Sequence[int], detokenizer: Detokenizer) -> tuple[str, ...]:
    """Labels of the last tokens of a context, as ``Probed`` has them."""
    return tuple(map(detokenizer.piece, context[-_PIECES:]))


def context_of(tokenizer: Any, text: str, prompt: str | None, vocab_size: int) -> list[int]:
    """Token ids of a text as a run would have it. ``prompt``: the text begins the answer to it; None takes the text as
    it is. Raises UsageProblem: there are no tokens; see ``engines.tokenization.encode``."""
    from engines.tokenization import encode, plain

    request = Request((("user", text if prompt is None else prompt),), raw=prompt is None)
    request.check()
    tokens, _ = encode(tokenizer, request, vocab_size)
    return tokens + (plain(tokenizer, text, begin=False) if prompt is not None and text else [])


def last_hidden_state(
    model: LoadedModel, context: Sequence[int], prompt: str | None = None
) -> tuple[list[int], np.ndarray]:
    """A context, and the hidden state float32 [H] of the row that produced its last token. Of a text longer than the
    model's context the end is read. If the answer to ``prompt`` has not begun, the context is extended by the target's
    first token, which in a run comes before the first draft. Raises UsageProblem: a text of one token, which no row
    produced."""
    from engines.datastores.building.hidden_states import HiddenStates

    tokens = list(context)
    if prompt is not None:
        *_, finished = model.run(Request((("user", prompt),), methods.baseline().id, max_new_tokens=1))
        tokens.append(finished.tokens[0])
    if len(tokens) < 2:
        raise UsageProblem("the text has one token, and a search needs two", "give more of the text")
    read = HiddenStates(model.target, model.identity, None)
    return tokens, read([np.array(tokens[:-1][-read.context :])])[0][-1]
