"""A text to calibrate with when none is given: the model's own answers to a fixed list of requests."""

from __future__ import annotations

from collections.abc import Callable

from les.engine import Model
from les.eval.tokens import Windows

REQUESTS = (
    "Explain how a glacier moves, in simple words.",
    "Write a Python function that returns the median of a list of numbers, with a docstring.",
    "A train leaves at 9:40 and arrives at 13:05. How long is the journey? Show each step.",
    "Give me a short recipe for lentil soup with a list of ingredients.",
    "Write a JSON object that describes a book with title, author, year and a list of tags.",
    "Tell a short story about a lighthouse keeper who finds a letter.",
    "What is the difference between a virus and a bacterium?",
    "Write a polite e-mail that asks to move a meeting to Thursday.",
    "Summarise why the Roman Republic became an empire.",
    "Write a shell command that counts the lines of all text files in a folder, and explain it.",
    "Make a table of five European capitals with their countries and rivers.",
    "How do I plant tomatoes on a balcony?",
    "Write a SQL query that finds the ten customers who spent most last year.",
    "Translate into French: The library closes at six on Sundays.",
    "What are three arguments for and three against working from home?",
    "Compute 17 times 24 and explain how to do it in the head.",
    "Describe the water cycle to a child of eight.",
    "Write a C function that reverses a string in place.",
    "Give advice to somebody who sleeps badly before exams.",
    "Who was Marie Curie and what did she discover?",
    "Write a poem of eight lines about the sea in winter.",
    "List the planets of the solar system with one fact about each.",
    "A shop sells pens at 1.20 each. What do 15 pens cost with 10 percent off? Show the steps.",
    "Make a CSV table of the twelve months with their numbers of days.",
    "What is 3/4 plus 2/5? Explain every step.",
)

# For evaluation: nothing of this is calibrated on.
HELD_OUT = (
    "Explain what a hash table is and when it is slow.",
    "Write a dialogue between a customer and a baker about bread.",
    "What does the word entropy mean in physics?",
    "Plan a weekend in a small town with two children, hour by hour.",
    "Write a YAML file for a web service with a database and two environment variables.",
    "Solve for x: 3x + 7 = 25. Then check the answer.",
    "Why is the sky blue, and why is it red in the evening?",
    "Write a product description for a wooden desk lamp.",
    "Explain the rules of chess openings to a beginner.",
    "Write an HTML page with a heading, a paragraph and a list of three links.",
    "What makes bread rise?",
    "Write a Python class for a bank account with deposit and withdraw, and show how to use it.",
    "How many minutes are there in three and a half days? Show the steps.",
    "Explain the difference between weather and climate.",
    "Write a JSON array of three people, each with name, age and city.",
    "Tell a story about a fox who learns to share.",
    "Give five tips for writing a good report.",
    "Describe how a bicycle stays upright.",
)


def own_text(
    model: Model,
    n_tokens: int,
    window: int = 256,
    seed: int = 0,
    requests: tuple[str, ...] = REQUESTS,
    progress: Callable[[int, int], None] | None = None,
) -> Windows:
    """Windows of the model's own answers, requests and chat format included, n_tokens in all or somewhat fewer.

    The same model, seed and sizes give the same tokens. Answers that end at once are skipped; the list of requests is
    gone through again, with other draws, until there are enough tokens.
    """
    windows: Windows = []
    n_done = n_empty = i = 0
    with model.session() as session:
        while n_done < n_tokens and n_empty < len(requests):
            request = requests[i % len(requests)]
            prompt = model.encode_prompt(request)[: window // 2]
            room = min(window, n_tokens - n_done) - len(prompt)
            if room < 1:
                break
            result = model.generate(
                prompt,
                max_tokens=room,
                temperature=0.9,
                top_k=0,
                top_p=0.95,
                min_p=0.02,
                seed=seed * 100003 + i,
                session=session,
            )
            i += 1
            if len(result.tokens) < 8:
                n_empty += 1
                continue
            windows.append(prompt + list(result.tokens))
            n_done += len(windows[-1])
            if progress:
                progress(min(n_done, n_tokens), n_tokens)
    return windows
