"""Twelve prompts that show something, in our own words, each with what to look for."""

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
             "A small model slips while it copies: see the draft break at each slip and recover after it.",
             "Copy the text below word for word.\n\nThe shop is open from nine to six. On Sundays it is closed. "
             "Please ring the bell."),
    Showcase("copying", "Say it in capitals",
             "A copy with every token changed: lookup finds nothing, the draft model has learnt the trick.",
             "Write this sentence in capital letters: Anna bought 3 pens and a book in the shop."),
    Showcase("code", "Sum of a list",
             "Short code is full of habit: names, brackets and indents are easy to guess.",
             "Write a Python function that returns the sum of a list of numbers."),
    Showcase("code", "Count the vowels",
             "Try shape=tree with the draft model: several ways on, verified in one forward.",
             "Write a Python function that counts the vowels in a string."),
    Showcase("code", "A class of methods",
             "The answer repeats its own patterns: here prompt lookup copies from the answer so far.",
             "Write a Python class for a stack with push and pop."),
    Showcase("code", "Count the words",
             "Indents and loops: see how the depth of acceptance follows the shape of the code.",
             "Write a Python function that counts how often each word occurs in a text and returns a dictionary."),
    Showcase("story", "The mouse and the cat",
             "Free text: a small draft model guesses the small words, the target decides the rest.",
             "Write a short story about a brave mouse and a cat."),
    Showcase("story", "The fox",
             "Nothing to copy here: prompt lookup drafts in vain, the draft model still pays.",
             "Tell me a story about a little fox who could not sleep."),
    Showcase("story", "Another ending",
             "Set /temp 0.9 and change /seed: same machinery, another story, still lossless.",
             "Tell me a story about a boy and his kite."),
    Showcase("arithmetic", "Apples left",
             "The frame is easy to draft, the sum is not; if it is wrong, the target alone would be as wrong.",
             "Tom has 8 apples and gives 3 to Anna. How many apples does he have left?"),
    Showcase("arithmetic", "Sort numbers",
             "Every token is a choice among few: the source view (v) shows which were in the prompt.",
             "Sort these numbers from smallest to largest: 42, 7, 19, 88, 3"),
)
