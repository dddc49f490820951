"""Twelve example prompts, in our own words, each with what to look for."""

from __future__ import annotations

from typing import NamedTuple


class Showcase(NamedTuple):
    """A prompt, its kind (copying, code, story, arithmetic), a name, and what it shows."""

    kind: str
    name: str
    shows: str
    prompt: str


SHOWCASES = (
    Showcase("copying", "Repeat a sentence",
             "The words are in the prompt: prompt lookup (/engine pld) drafts whole spans, and keeps them.",
             "Repeat this sentence: Tom bought 4 apples and a hat in the morning."),
    Showcase("copying", "Copy a notice",
             "A small model makes mistakes while it copies: drafts are rejected there, and accepted after it.",
             "Copy the text below word for word.\n\nThe shop is open from nine to six. On Sundays it is closed. "
             "Please ring the bell."),
    Showcase("copying", "Say it in capitals",
             "In capitals every token is different: lookup finds nothing; a model that only copies makes lookup fast.",
             "Write this sentence in capital letters: Anna bought 3 pens and a book in the shop."),
    Showcase("code", "Sum of a list",
             "Short code is predictable: names, brackets and indentation are easy to draft.",
             "Write a Python function that returns the sum of a list of numbers."),
    Showcase("code", "Count the vowels",
             "Try shape=tree with the draft model: several continuations, verified in one forward pass.",
             "Write a Python function that counts the vowels in a string."),
    Showcase("code", "A class of methods",
             "The answer repeats its own patterns: prompt lookup copies from the answer so far.",
             "Write a Python class for a stack with push and pop."),
    Showcase("code", "Count the words",
             "Indentation and loops: see how many tokens in a row are accepted in each part of the code.",
             "Write a Python function that counts how often each word occurs in a text and returns a dictionary."),
    Showcase("story", "The mouse and the cat",
             "Free text: a small draft model predicts the common words, and the target corrects the rest.",
             "Write a short story about a brave mouse and a cat."),
    Showcase("story", "The fox",
             "Nothing to copy here: what prompt lookup drafts is rejected, while the draft model is often right.",
             "Tell me a story about a little fox who could not sleep."),
    Showcase("story", "Another ending",
             "Set /temp 0.9 and change /seed: another story, and still lossless.",
             "Tell me a story about a boy and his kite."),
    Showcase("arithmetic", "Apples left",
             "The wording is easy to draft, the sum is not; where it is wrong, the target alone would write the same.",
             "Tom has 8 apples and gives 3 to Anna. How many apples does he have left?"),
    Showcase("arithmetic", "Sort numbers",
             "Each token is one of a few numbers: the source view (v) shows which were copied from the prompt.",
             "Sort these numbers from smallest to largest: 42, 7, 19, 88, 3"),
)
