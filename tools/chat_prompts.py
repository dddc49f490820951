"""Prompts whose answers by smollm2 make its datastore, beside those of engines/reproduce/store_prompts.txt and of the
sample pair's: topics and tasks of everyday chats, filled into templates in a fixed order, in our own words."""

from __future__ import annotations

from collections.abc import Iterator

import sample_prompts
from sample_prompts import TASKS, pick

SHARED_WORDS = 8
_ASKED = ("What is the capital of France?",)  # by tests
TOPICS = (
    "photosynthesis", "the water cycle", "the human heart", "the immune system", "vaccines", "the solar system",
    "black holes", "earthquakes", "climate change", "renewable energy", "solar panels", "electric cars", "inflation",
    "a household budget", "insurance", "democracy", "the Roman Empire", "the Industrial Revolution", "the Middle Ages",
    "the printing press", "the steam engine", "the internet", "artificial intelligence", "machine learning",
    "computer networks", "programming languages", "open source software", "spreadsheets", "public transport",
    "city parks", "recycling", "healthy food", "breakfast", "sleep", "exercise", "meditation", "friendship", "honesty",
    "teamwork", "time management", "public speaking", "reading books", "learning a language", "playing chess",
    "photography", "gardening", "cooking at home", "travelling by train", "camping", "swimming", "bees", "whales",
    "wolves", "dinosaurs", "deserts", "rainforests", "the ocean", "coral reefs", "mountains", "glaciers", "the seasons",
    "tides", "stars", "the theatre", "opera", "jazz", "painting", "sculpture", "poetry", "fairy tales", "museums",
    "libraries", "schools", "homework", "working from home", "job interviews", "small businesses", "customer service",
    "marketing", "money", "taxes", "kindness",
)  # fmt: skip
ABOUT = (
    "What is special about {}?", "Explain {} to a child.", "Why does {} matter?", "Give me three facts about {}.",
    "Write a short paragraph about {}.", "How would you explain {} to a friend?",
    "What are the advantages and disadvantages of {}?", "Write a short poem about {}.",
    "Write a title and an introduction for an article about {}.", "What should everybody know about {}?",
)
AIMS = (
    "learn to cook", "run ten kilometres", "write a diary", "paint a wall", "repair a bicycle", "bake bread",
    "grow tomatoes", "plan a birthday party", "prepare for an exam", "write a speech", "start a blog", "learn to draw",
    "sleep better", "eat less sugar", "make new friends", "organise a bookshelf", "write a short story",
    "take better photographs", "learn to swim", "save energy at home", "prepare a presentation", "find a new job",
    "train a puppy", "clean an oven", "pack a suitcase", "read more books", "learn to type", "make a soup",
    "teach a child to read", "stay calm in traffic", "build a birdhouse", "move to another city", "use less plastic",
    "remember birthdays", "write a good email",
)  # fmt: skip
HOW = (
    "How can I {}?", "Give me five tips to {}.", "Write a plan for one week to {}.", "What does one need to {}?",
    "What mistakes do people make when they {}?",
)
PEOPLE = ("my landlord", "my teacher", "a customer", "a colleague", "my manager", "the library", "a hotel",
          "the neighbours", "a friend", "the sports club")
MATTERS = ("a broken heater", "a lost umbrella", "a change of plans", "a thank you", "a late delivery",
           "a meeting on Friday", "a summer party", "noise in the evening", "a refund", "a new address")


def prompts() -> list[str]:
    """All that are not near a prompt that demonstrates or measures, in the same order everywhere."""
    every = [text for text in dict.fromkeys([*sample_prompts.prompts(), *_filled()]) if text not in _ASKED]
    near = {text for text, _ in sample_prompts.overlap(every, sample_prompts.measured(), SHARED_WORDS)}
    return [text for text in every if text not in near]


def _filled() -> Iterator[str]:
    for form in ABOUT:
        yield from map(form.format, TOPICS)
    for form in HOW:
        yield from map(form.format, AIMS)
    for i in range(100):
        yield f"Write an email to {pick(PEOPLE, i)} about {pick(MATTERS, i, 1)}."
    yield from (f"Write a JavaScript function that {task}." for task in TASKS)
    yield from (f"Write a Python program that {task}, and explain each step." for task in TASKS)
