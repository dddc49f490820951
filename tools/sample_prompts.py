"""Prompts whose answers by the sample model make its datastore: templates filled in a fixed order, in our own words.

They are of the kinds that the sample models know (copying, code, stories, arithmetic, questions, lists). No prompt that
demonstrates or measures is among them, nor one that shares 13 consecutive words with such a prompt: ``overlap`` says.
"""

from __future__ import annotations

import ast
import json
import random
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARED_WORDS = 13
MOST = 750  # whose answers are about 60,000 tokens

NAMES = ("Mia", "Ben", "Lucy", "Omar", "Ida", "Jack", "Nina", "Hugo", "Ella", "Sam", "Rosa", "Theo", "Zoe", "Max")
THINGS = ("marbles", "stamps", "pencils", "shells", "cards", "plums", "coins", "buttons", "books", "pears", "nuts")
CLOTHES = ("scarf", "coat", "glove", "belt", "sweater", "cap", "shirt")
PLACES = ("market", "village", "station", "garden", "harbour", "library", "park", "school", "kitchen")
TIMES = ("morning", "evening", "afternoon", "spring", "winter", "summer")
ANIMALS = ("owl", "duck", "rabbit", "bear", "turtle", "goat", "squirrel", "frog", "bee", "lamb", "hedgehog", "penguin",
           "horse", "crow")  # fmt: skip
MOODS = ("shy", "clever", "lazy", "kind", "curious", "tiny", "proud", "hungry", "gentle", "lonely")
PLOTS = (
    "who finds a golden key", "who wants to learn to swim", "who plans a surprise party", "who is afraid of the dark",
    "who builds a boat", "who loses a red ball", "who helps a friend in the snow", "who bakes a huge cake",
    "who looks for the end of the rainbow", "who wins a race", "who plants a seed", "who hears a strange noise",
    "who learns to share", "who gets caught in the rain",
)  # fmt: skip
TASKS = (
    "returns the largest number in a list", "returns the smallest number in a list", "checks if a number is prime",
    "returns the factorial of a number", "checks if a word is a palindrome", "removes duplicates from a list",
    "returns the first n Fibonacci numbers", "converts Celsius to Fahrenheit", "converts miles to kilometers",
    "returns the even numbers of a list", "returns the odd numbers of a list", "doubles every number in a list",
    "returns the squares of the numbers in a list", "computes the average of the numbers in a list",
    "returns the longest word in a list", "returns the shortest word in a list", "sorts a list of words by length",
    "counts the spaces in a text", "counts the lines of a text", "counts how often a letter occurs in a word",
    "returns the last item of a list", "returns the middle item of a list", "merges two dictionaries",
    "swaps the keys and values of a dictionary", "checks if a list is sorted", "flattens a list of lists",
    "returns the common items of two lists", "checks if two words are anagrams", "returns the digits of a number",
    "adds up the digits of a number", "reverses the digits of a number", "returns the greatest common divisor",
    "returns the least common multiple of two numbers", "checks if a year is a leap year", "capitalizes every word",
    "removes all spaces from a text", "repeats a text n times", "joins a list of words with commas",
    "splits a sentence into words", "returns the area of a circle", "returns the area of a triangle",
    "returns the perimeter of a rectangle", "returns the absolute value of a number", "returns the power of a number",
    "finds the index of a value in a list", "performs a binary search", "sorts a list with bubble sort",
    "solves FizzBuzz for the numbers 1 to n", "returns the multiplication table of n", "returns all divisors of n",
    "counts the numbers greater than a limit in a list", "returns the product of the numbers in a list",
    "zips two lists into a dictionary", "groups words by their first letter", "reads all lines of a file",
    "writes a list of lines to a file", "turns a list of pairs into a dictionary", "rotates a list by n places",
    "returns the second largest number in a list", "rounds every number in a list", "returns the letters of a word",
    "converts a decimal number to binary", "converts a binary string to a number", "returns the name of a weekday",
    "checks if a string contains only digits", "returns every second item of a list", "clamps a number to a range",
)  # fmt: skip
CLASSES = ("queue", "bank account", "point in the plane", "rectangle", "counter", "book", "timer", "shopping cart",
           "linked list", "temperature", "playlist", "student with grades")  # fmt: skip
HOW_TO = (
    "loop over a dictionary", "open a file", "sort a list", "handle an error", "write a comment", "make a set",
    "join two strings", "import a module", "round a number", "find the length of a list", "copy a list",
    "format a number", "define a class", "use a for loop", "use a while loop", "write a list comprehension",
    "return two values from a function", "read a number from the user", "check the type of a value",
)  # fmt: skip
TOPICS = (
    "the moon", "a volcano", "an island", "a computer", "a keyboard", "a river", "the sun", "a bicycle", "a bridge",
    "a cloud", "a dictionary", "a forest", "glass", "gold", "gravity", "honey", "ice", "iron", "a library", "a magnet",
    "a map", "a mirror", "music", "paper", "a planet", "a rainbow", "rust", "salt", "a shadow", "snow", "sound",
    "a telescope", "the wind", "wood", "a year", "a variable", "a function", "a loop", "a list in Python", "recursion",
    "a tuple", "a string in Python", "an algorithm", "a language model", "a token", "a draft model", "a suffix array",
    "a greedy algorithm", "a stack of plates", "a compiler", "a web browser", "a password", "a database",
)  # fmt: skip
KINDS = ("birds", "fruits", "vegetables", "colors", "animals of the farm", "tools", "countries", "sports", "clothes",
         "pieces of furniture", "flowers", "trees", "drinks", "musical instruments", "planets", "months", "jobs",
         "things in a kitchen", "insects", "toys")  # fmt: skip
ADVICE = ("fall asleep", "remember names", "keep a houseplant alive", "clean a window", "learn a language",
          "boil an egg", "make tea", "write a letter", "wash the dishes", "save money", "find a lost key",
          "start a book", "tidy a desk", "plan a trip", "calm down before a test")  # fmt: skip
COUNTRIES = ("France", "Spain", "Norway", "Kenya", "Japan", "Peru", "Egypt", "Canada", "Italy", "Greece", "India",
             "Brazil", "Poland", "Chile", "Ghana", "Sweden")  # fmt: skip
GREETINGS = (
    "Hi!", "Hello, how are you?", "Good morning!", "What is your name?", "Who made you?", "Can you help me?",
    "Thank you very much!", "Goodbye!", "What can you do?", "Are you a person?", "Tell me a joke.",
    "How was your weekend?", "Do you like music?", "What is your favorite color?", "I am bored.", "I am sad today.",
    "Say something nice.", "What should I do today?", "Do you sleep?", "How old are you?",
)  # fmt: skip
FORMS = ("Write a Python function that {}.", "Can you write a Python function that {}?",
         "I need a Python function that {}.", "Create a function in Python that {}.")  # fmt: skip


def prompts() -> list[str]:
    """``MOST`` of them, kinds mixed, each once; in the same order everywhere."""
    return _mixed()[:MOST]


def held_out(count: int) -> list[str]:
    """Prompts of the same templates that are not among ``prompts``, and share no 13 consecutive words with them: what
    an in-distribution store is measured with."""
    near = {text for text, _ in overlap(_mixed()[MOST:], prompts())}
    left = [text for text in _mixed()[MOST:] if text not in near]
    return random.Random(0).sample(left, count)


def _mixed() -> list[str]:
    kinds = [list(dict.fromkeys(kind)) for kind in (code(), stories(), copies(), sums(), questions(), lists())]
    most = max(map(len, kinds))
    placed = [(i * most // len(kind), k, text) for k, kind in enumerate(kinds) for i, text in enumerate(kind)]
    return list(dict.fromkeys(text for _, _, text in sorted(placed, key=lambda p: p[:2])))


def pick(items: tuple[str, ...], i: int, turn: int = 0) -> str:
    """One of them, as if at random, and the same everywhere."""
    return items[zlib.crc32(f"{i} {turn}".encode()) % len(items)]


def a(noun: str) -> str:
    """With its article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def code() -> Iterator[str]:
    for n in range(2):
        yield from (FORMS[(i + 2 * n) % len(FORMS)].format(task) for i, task in enumerate(TASKS))
    yield from (f"Write a Python class for {a(thing)}." for thing in CLASSES)
    yield from (f"How do I {what} in Python?" for what in HOW_TO)
    for i in range(16):
        numbers = f"[{3 + i}, {2 * i + 1}, {40 - i}]"
        call = ("len", "max", "min", "sum", "sorted")[i % 5]
        yield f"What does this Python code print?\n\n```python\nvalues = {numbers}\nprint({call}(values))\n```"


def stories() -> Iterator[str]:
    for i in range(260):
        animal, name, plot = pick(ANIMALS, i), pick(NAMES, i, 1), pick(PLOTS, i, 2)
        yield (
            f"Write a short story about {a(pick(MOODS, i, 3))} {animal} {plot}.",
            f"Tell me a story about {name} and the {animal}.",
            f"Tell me a short story about {a(animal)} named {name} {plot}.",
            f"Write a story about a child named {name} {plot}.",
            f"I would like to hear a story about {a(animal)} {plot}.",
        )[i % 5]


def copies() -> Iterator[str]:
    for i in range(120):
        name, place, time = pick(NAMES, i), pick(PLACES, i, 2), pick(TIMES, i, 1)
        bought = f"{name} bought {2 + i % 8} {pick(THINGS, i, 1)} and a {pick(CLOTHES, i, 1)} in the {place}."
        went = f"In the {time} {name} walked to the {place} with {a(pick(MOODS, i, 3))} {pick(ANIMALS, i, 4)}."
        yield (
            f"Repeat this sentence: {bought}", f"Write this sentence in capital letters: {went}",
            f"Repeat the following text exactly: {went}", f"Copy this sentence: {bought}",
            f"Which words in this sentence are names? {went}", f"Write this in lower case letters: {bought.upper()}",
        )[i % 6]


def sums() -> Iterator[str]:
    for i in range(150):
        x, y, z = 12 + 7 * i % 61, 3 + 5 * i % 19, 2 + 3 * i % 9
        name, other, things = pick(NAMES, i, 1), pick(NAMES, i, 2), pick(THINGS, i)
        yield (
            f"What is {x} + {y}?", f"How much is {x + y} minus {y}?", f"Calculate {y} * {z}.",
            f"{name} has {x} {things} and finds {y} more. How many {things} does {name} have now?",
            f"{name} has {x + y} {things}. {name} gives {y} of them to {other}. How many are left?",
            f"What is the largest number in this list: {x}, {y}, {x + z}?",
            f"{name} buys {z} bags with {y} {things} each. How many {things} is that?",
            f"Sort these numbers: {x}, {z}, {x + y}, {y}", f"Is {x + z} an even number?", f"What is half of {2 * x}?",
        )[i % 10]


def questions() -> Iterator[str]:
    for i, topic in enumerate(TOPICS):
        yield (f"What is {topic}?", f"Explain {topic} in simple words.", f"Tell me about {topic}.")[i % 3]
        yield (f"Can you tell me what {topic} is?", f"Write two sentences about {topic}.")[i % 2]
    yield from (f"What is the capital of {country}?" for country in COUNTRIES)
    yield from GREETINGS


def lists() -> Iterator[str]:
    numbers = ("two", "three", "four", "five")
    for i, kind in enumerate(KINDS):
        yield (f"List {numbers[i % 4]} {kind}.", f"Can you name {numbers[i % 4]} {kind}?")[i % 2]
        yield (f"Give me {numbers[(i + 1) % 4]} examples of {kind}.", f"Name some {kind}.")[i // 2 % 2]
    for i, what in enumerate(ADVICE):
        yield (f"How do I {what}?", f"Give me three tips to {what}.", f"Write a short guide: how to {what}.")[i % 3]
    for i, name in enumerate(NAMES):
        yield (f"Write a short thank-you note to {name}.", f"Write an invitation for {name} to a birthday party.",
               f"Write a message to {name} to say that I am late.", f"Write a poem about {pick(ANIMALS, i)}s.")[i % 4]
        yield f'Use the word "{pick(THINGS, i)}" in a sentence.'
        yield (f"Turn this into JSON: the name is {name}, the age is {20 + 3 * i}.",
               f"Which of these comes first in the alphabet: {pick(THINGS, i, 2)} or {pick(CLOTHES, i)}?")[i % 2]


# --- what demonstrates or measures ----------------------------------------------------------------


def measured(*more: Path) -> dict[str, str]:
    """Prompts that must not be near those of the datastore, each with where it is from.

    Args:
        more: files of JSON lines with a "prompt" (or "turns"), of benchmarks that lie elsewhere.
    """
    from bench_untrained import SESSIONS

    from engines.bench.suite import SHIPPED, shipped
    from engines.folders import json_lines
    from engines.reproduce.questions import MORE, known
    from spec_tui.learn.showcase_prompts import SHOWCASES

    card = json.loads((ROOT / "tools" / "card_texts.json").read_text("utf-8"))
    found: dict[str, str] = {}
    found |= {text: "model card" for text in [*card["prompts"], *(f["prompt"] for f in card["functions"])]}
    found |= {turn: MORE.name for turns in known().prompts for turn in turns}
    found |= {turn: SHIPPED.name for turns in shipped().prompts for turn in turns}
    for trace in sorted((ROOT / "sample_traces").glob("*.jsonl")):
        with open(trace, encoding="utf-8") as lines:
            started = json.loads(next(lines))
        found |= {text: trace.name for _, text in started["conversation"]}
    tools = ROOT / "tools"
    for tool in sorted([*tools.glob("bench*.py"), *tools.glob("benches/*.py")]):
        found |= {text: tool.name for text in _constants(tool)}
    found |= {text: "bench_untrained.py" for session in SESSIONS.values() for text in session}
    found |= {s.prompt: "showcase" for s in SHOWCASES}
    for file in (*sorted(tools.glob("advise_prompts/*.jsonl")), *more):
        for _, row in json_lines(file.read_text("utf-8"), file, "is no JSON object", "check the file", dict):
            found |= {text: file.name for text in [row["prompt"], *row.get("turns", ())]}
    return found


def _constants(tool: Path) -> list[str]:
    """The strings of a benchmark's constants that are called PROMPTS or something of the kind."""
    out = []
    for node in ast.parse(tool.read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any("PROMPT" in getattr(target, "id", "") for target in targets):
            out += [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [text for text in out if " " in text]


def words(text: str) -> list[str]:
    """Words as the overlap compares them: punctuation and case aside."""
    return re.findall(r"[a-z0-9']+", text.lower())


def overlap(texts: Iterable[str], others: Iterable[str], shared: int = SHARED_WORDS) -> list[tuple[str, str]]:
    """Pairs of a text and another: they share so many consecutive words, or all words of the shorter one if that has no
    more."""
    texts, others = list(texts), list(others)
    both = [*_within(others, texts, shared), *((mine, theirs) for theirs, mine in _within(texts, others, shared))]
    return list(dict.fromkeys(both))


def _within(short: list[str], long: list[str], shared: int) -> list[tuple[str, str]]:
    """Pairs of a text of ``long`` and one of ``short`` of which it has so many consecutive words, or all if that has no
    more."""
    runs: dict[tuple[str, ...], list[str]] = {}
    for text in short:
        for run in _runs(words(text), shared):
            runs.setdefault(run, []).append(text)
    sizes = {len(run) for run in runs}
    return [(text, other) for text in long for size in sizes for run in _runs(words(text), size)
            for other in runs.get(run, ())]


def _runs(found: list[str], size: int) -> Iterator[tuple[str, ...]]:
    """All runs of so many words, or all words where there are no more."""
    for i in range(max(1, len(found) - size + 1)):
        yield tuple(found[i : i + size])
