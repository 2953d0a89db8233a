"""Short stories of three to five sentences, written from lists and plot lines.

A story keeps its hero: name, kind and pronouns are chosen once and used
throughout. No story holds a digit, so none can hold a held-out pair.
"""

import random

GIRLS = "Mia Lily Anna Ruby Clara Nora Ella Rosa Ivy Zoe Hana Maya".split()
BOYS = "Tom Ben Leo Max Sam Oscar Finn Noah Hugo Theo Ravi Milo".split()
ANIMALS = "fox bear rabbit mouse cat dog duck owl frog hedgehog squirrel turtle pony goat".split()
TRAITS = "little young kind curious clever brave cheerful shy".split()
PLACES = [
    "near the river", "by the sea", "at the edge of the forest", "on a small farm",
    "in a quiet village", "under an old oak tree", "on top of a green hill", "beside a blue lake",
]
WEATHER = ["sunny", "windy", "rainy", "snowy", "foggy", "warm"]
THINGS = ["kite", "ball", "book", "hat", "drum", "lamp", "basket", "scarf", "boat", "key"]
COLORS = "red blue green yellow silver golden".split()
FOODS = ["apple pie", "bread", "soup", "honey cake", "pancakes", "berry jam"]
PLANTS = ["a sunflower", "a pear tree", "a pumpkin", "a rose", "a tall bean"]
FEARS = ["the dark", "thunder", "deep water", "the tall bridge", "loud noises"]

OPENINGS = [
    "Once upon a time, {a_hero} named {name} lived {place}.",
    "Once upon a time, there was {a_hero} named {name} who lived {place}.",
    "One day, {a_hero} named {name} moved into a new house {place}.",
    "There once was {a_hero} called {name} who lived {place}.",
    "Long ago, {a_hero} named {name} lived {place}.",
]

# Each plot: the sentences between opening and ending, in order. A sentence in
# brackets may be left out; of several wordings one is taken.
PLOTS: list[list[list[str]]] = [
    [
        ["One {weather} morning, {name} lost {his} {color} {thing}.", "{name} had a {color} {thing}, but one day it was gone."],
        ["[]{He} looked under the bed, behind the door and in the garden.", "[]{He} looked everywhere, but {he} could not find it."],
        ["Then {his} friend {friend} found the {thing} and brought it back.", "In the end, {friend} saw the {thing} in the tall grass and gave it back to {him}."],
    ],
    [
        ["One {weather} day, {name} wanted to bake {food} for {his} friend {friend}.", "{name} loved to cook, and one day {he} made {food} for {friend}."],
        ["[]{He} washed {his} hands and mixed everything in a big bowl.", "[]The kitchen soon smelled sweet and warm."],
        ["{friend} tasted it and asked for more.", "They sat at the table and ate until nothing was left."],
    ],
    [
        ["{name} was afraid of {fear}.", "There was only one thing that {name} feared, and that was {fear}."],
        ["One {weather} evening, {friend} held {his} hand and stayed with {him}.", "So {his} friend {friend} told {him} to breathe slowly and count the stars."],
        ["[]Step by step, {he} grew calm."],
        ["After that, {name} was not afraid of {fear} any more.", "From then on, {name} knew that {he} could be brave."],
    ],
    [
        ["In spring, {name} planted a seed in the garden.", "One {weather} day, {name} found a seed and put it in the ground."],
        ["{He} gave it water every morning.", "{He} watered it each day and waited."],
        ["[]For a long time, nothing happened."],
        ["At last, {plant} grew there, and everyone came to see it.", "By summer it had become {plant}, and {name} was very proud."],
    ],
    [
        ["One {weather} day, {name} met {friend}, who was sitting alone.", "On {a_weather} afternoon, {name} saw {friend} crying by the road."],
        ["\"Do you want to play with my {thing}?\" asked {name}.", "\"Come and play with me,\" said {name}."],
        ["[]{friend} smiled and said yes."],
        ["They played until the sun went down.", "They laughed and ran all afternoon."],
    ],
    [
        ["One {weather} day, {name} and {friend} had a race to the old bridge.", "{friend} asked {name} to race to the top of the hill."],
        ["{friend} ran fast, but soon {friend} fell and hurt a foot.", "Halfway there, {friend} tripped over a stone."],
        ["{name} stopped running and helped {friend} up.", "{name} turned back at once and helped {friend}."],
        ["[]They finished the race side by side."],
    ],
    [
        ["One {weather} night, {name} saw a bright star fall behind the trees.", "One night, {name} saw a strange light in the window."],
        ["{He} took {his} lamp and went outside to look.", "{He} put on {his} coat and followed the light."],
        ["It was only {friend} with a {color} lantern, looking for {him}.", "There stood {friend} with a {color} lamp in one hand and a cake in the other."],
        ["[]They walked home together and told stories until late."],
    ],
    [
        ["{name} wanted to build a boat.", "One {weather} morning, {name} began to build a small boat."],
        ["{friend} brought wood, and {name} found a {color} sail.", "{He} worked for many days, and {friend} helped {him}."],
        ["[]At first the boat was full of holes."],
        ["When it was ready, they sailed it to the other shore.", "In the end, the boat floated, and they cheered."],
    ],
    [
        ["It was the birthday of {friend}, and {name} had no gift.", "{name} wanted to give {friend} a gift, but {he} had no money."],
        ["So {he} painted a {color} {thing} and wrapped it in leaves.", "So {he} made a {color} {thing} with {his} own hands."],
        ["[]{friend} opened it slowly."],
        ["It was the best gift that {friend} had ever been given.", "{friend} loved it and kept it for many years."],
    ],
]  # fmt: skip

ENDINGS = [
    "{name} was very happy.",
    "That night, {name} slept well.",
    "{name} never forgot that day.",
    "They were friends for ever.",
    "{name} smiled all the way home.",
    "{name} and {friend} stayed good friends.",
]


def _article(words: str) -> str:
    return ("an " if words[0] in "aeiou" else "a ") + words


def story(rng: random.Random) -> tuple[str, str, str]:
    """A story, and the hero's kind and name for a request such as 'about a fox'."""
    if rng.random() < 0.6:
        kind, names = rng.choice(ANIMALS), rng.choice((GIRLS, BOYS))
    else:
        kind, names = rng.choice((("girl", GIRLS), ("boy", BOYS)))
    name = rng.choice(names)
    he, his, him = ("she", "her", "her") if names is GIRLS else ("he", "his", "him")
    weather = rng.choice(WEATHER)
    words = {
        "a_hero": _article(f"{rng.choice(TRAITS)} {kind}"),
        "name": name, "he": he, "He": he.capitalize(), "his": his, "him": him,
        "friend": rng.choice([other for other in GIRLS + BOYS if other != name]),
        "place": rng.choice(PLACES), "weather": weather, "a_weather": _article(weather),
        "thing": rng.choice(THINGS), "color": rng.choice(COLORS), "food": rng.choice(FOODS),
        "plant": rng.choice(PLANTS), "fear": rng.choice(FEARS),
    }  # fmt: skip
    sentences = [rng.choice(OPENINGS)]
    for wordings in rng.choice(PLOTS):
        sentence = rng.choice(wordings)
        if not sentence.startswith("[]") or rng.random() < 0.5:
            sentences.append(sentence.removeprefix("[]"))
    if len(sentences) < 5 and (len(sentences) < 3 or rng.random() < 0.6):
        sentences.append(rng.choice(ENDINGS))
    return " ".join(sentences).format(**words), kind, name


def chat(rng: random.Random) -> tuple[str, str]:
    """A request for a story and the story."""
    text, kind, name = story(rng)
    about = rng.choice((f" about a{'n' if kind[0] in 'aeiou' else ''} {kind}",) * 4 + (f" about {name}", ""))
    ask = rng.choice((
        "Tell me a short story{}.", "Tell me a story{}.", "Write a short story{}.",
        "Can you tell me a story{}?", "Please tell me a short story{}.", "I would like a story{}.",
    ))  # fmt: skip
    return ask.format(about), text
