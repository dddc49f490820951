"""Twelve prompts that show something, in our own words, each with what to look for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Showcase:
    """A prompt, its kind (copying, code, story, arithmetic), a name, and what it shows."""

    kind: str
    name: str
    shows: str
    prompt: str


SHOWCASES = (
    Showcase(
        "copying", "Repeat a list",
        "Every word is in the prompt: prompt lookup drafts long spans and nearly all are kept.",
        "Repeat this list exactly:\nred apple, green pear, yellow plum, blue grape, brown fig, white melon",
    ),
    Showcase(
        "copying", "Change one word",
        "Copying with one deviation: watch the draft break at the changed word and recover after it.",
        "Copy this text, but write dog instead of cat:\nThe cat sat by the door. The cat was wet. "
        "A boy saw the cat and let the cat in.",
    ),
    Showcase(
        "copying", "Tidy a note",
        "Light editing: runs of accepted tokens with corrections exactly where the text changes.",
        "Fix the spelling and keep everything else:\nWe will meat on monday at the big tree. Bring watter and a warm "
        "coat. We will meat again on friday.",
    ),
    Showcase(
        "code", "Sum of a list",
        "Short code is full of habit: names, brackets and indents are easy to guess.",
        "Write a Python function that returns the sum of a list of numbers.",
    ),
    Showcase(
        "code", "Rename a variable",
        "Code copied with edits: the source view shows which tokens came from the prompt.",
        "Rename the variable x to total in this code:\ndef add(numbers):\n    x = 0\n    for n in numbers:\n"
        "        x = x + n\n    return x",
    ),
    Showcase(
        "code", "Four alike",
        "The answer repeats itself: after the first function the drafter copies from the answer so far.",
        "Write four Python functions named add, sub, mul and div. Each takes a and b and returns the result.",
    ),
    Showcase(
        "code", "Count the words",
        "Indents and loops: see how depth of acceptance follows the shape of the code.",
        "Write a Python function that counts how often each word occurs in a text and returns a dictionary.",
    ),
    Showcase(
        "story", "The lost kite",
        "Free text: a small draft model guesses the small words, the target decides the rest.",
        "Tell a short story about a girl named Mia who lost her red kite in the wind.",
    ),
    Showcase(
        "story", "Refrain",
        "A line that comes back: lookup fails in the verses and shines in the refrain.",
        "Write a short story in which a little frog says \"hop, hop, home I go\" three times.",
    ),
    Showcase(
        "story", "Two endings",
        "Set the temperature to 0.9 and change the seed: same machinery, another story, still lossless.",
        "Once upon a time a bear found a small blue box in the snow. What happened next?",
    ),
    Showcase(
        "arithmetic", "Count by fives",
        "A rule without a copy: numbers go on where lookup finds no match but a model can guess.",
        "Count from 5 to 60 in steps of five.",
    ),
    Showcase(
        "arithmetic", "Small sums",
        "The frame of each line is predictable, the results are not: corrections sit on the digits.",
        "Work these out, one on a line:\n2 + 3 =\n4 + 5 =\n7 + 6 =\n9 + 8 =\n12 + 7 =",
    ),
)
