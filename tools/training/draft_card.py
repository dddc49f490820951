"""The card of a draft model for a foreign target, as markdown, from what ``train_draft_model.py ship`` measured."""

from .card import table


def render(measured: dict) -> str:
    """The whole card."""
    return "\n\n".join((_head(measured), _recipe(measured), _agreement(measured), _origin(measured))) + "\n"


def _head(measured: dict) -> str:
    model, target = measured["model"], measured["target"]
    shape = [
        f"{model['parameters'] / 1e6:.2f} M", str(model["layers"]), str(model["hidden"]), str(model["mlp"]),
        f"{model['vocabulary']:,}", f"{model['context']:,}", f"{model['megabytes']:.1f} MB",
    ]  # fmt: skip
    head = ["parameters", "layers", "hidden", "MLP", "vocabulary", "context", "file"]
    return f"""# A draft model for {target}

`{model["file"]}` guesses what {target} says next. spec-tui takes it with {target} where no other
draft model is named. It is a plain Llama with {target}'s tokenizer and chat template; alone it is of little use.

{table(head, [shape])}

Weights of 8 bits (Q8_0), those of the MLPs of 5 (Q5_0), norms in float32.

Written by `tools/train_draft_model.py ship`: every number below was measured by it on this file, or is the
report of the training that made it."""


def _recipe(measured: dict) -> str:
    run, hidden = measured["training"], measured["model"]["hidden"]
    rows = [[source, f"{count:,}"] for source, count in sorted(run["sources"].items(), key=lambda item: -item[1])]
    trained = f"{run['minutes']:.0f} minutes and {run['steps']:,} steps"
    answers = f"{run['answers']:,} answers of the target ({run['tokens']:,} tokens)"
    return f"""## Recipe

The embedding starts as the best projection of the target's to {hidden} dimensions, the rest at random. It was
trained for {trained} on {answers}, half of them greedy, half drawn at temperature 0.8 with
top-p 0.95. The loss is the divergence from the target's 32 likeliest tokens and all others together, at every
token of an answer; Muon trains the matrices inside the layers, AdamW the rest.

{table(["questions of", "answers"], rows)}"""


def _agreement(measured: dict) -> str:
    chain, target, left_out = measured["chain"], measured["target"], measured["left_out"]
    rows = [
        [kind, str(found["answers"]), f"{found['tokens']:,}", f"{found['same'] / found['tokens']:.1%}",
         f"{found['tokens'] / found['rounds']:.2f}"]
        for kind, found in measured["agreement"].items()
    ]  # fmt: skip
    seen = "none of them was trained on" if not left_out else f"{left_out} that were trained on are left out"
    return f"""## How well it guesses

Along the target's greedy answers to the prompts of the datastore that ships for it ({seen}): at
how many places the likeliest token is the one that comes, and how many tokens a round would give if {chain} were
drafted in each (M; 1 is autoregressive decoding, {chain + 1} the most). Whether that pays depends on what forward
passes cost on a machine: `spec-tui compare --model {target} --engines autoregressive,draft` measures it.

{table(["prompts", "answers", "tokens", "same greedy token", f"M, chains of {chain}"], rows)}"""


def _origin(measured: dict) -> str:
    model = measured["model"]
    return f"""## Licence

{model["licence"]}, as its target is ({measured["origin"]}). sha256: `{model["sha256"]}`"""
