"""Multiple choice: which answer the model finds likeliest. Reads the usual forms of such files, a JSON object a
line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from les.engine import Model
from les.session import Session
from les.errors import InvalidArgumentError, NotFoundError, ReadError
from les.eval.statistics import Estimate, paired_difference, wilson
from les.eval.tokens import log_softmax

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Item:
    """context: what the model reads; choices: the continuations, each with what separates it; answer: index of the
    right one."""

    context: str
    choices: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class ChoiceReport:
    """accuracy: by the likelihood of a whole choice; accuracy_norm: by likelihood per byte. is_right, is_right_norm:
    by item."""

    n_items: int
    accuracy: Estimate
    accuracy_norm: Estimate
    is_right: npt.NDArray[np.float64]
    is_right_norm: npt.NDArray[np.float64]

    def as_json(self) -> dict[str, Any]:
        return {
            "n_items": self.n_items,
            "accuracy": self.accuracy.as_json(),
            "accuracy_norm": self.accuracy_norm.as_json(),
        }

    def difference(self, other: ChoiceReport) -> dict[str, Any]:
        """other - self on the same items; n_changed: items right in one and wrong in the other."""
        return {
            "accuracy": paired_difference(self.is_right, other.is_right).as_json(),
            "accuracy_norm": paired_difference(self.is_right_norm, other.is_right_norm).as_json(),
            "n_changed": int((self.is_right != other.is_right).sum()),
        }


def _index(answer: Any, choices: Sequence[str], labels: Sequence[str] | None = None) -> int:
    """Of the right choice: a number from 0, a label or letter, or the choice's text. A text that is a number counts
    from 0 only where there are no labels of that name."""
    if isinstance(answer, bool) or answer is None:
        raise ValueError("answer is missing or no answer")
    if isinstance(answer, int):
        index = answer
    elif labels is not None and str(answer) in labels:
        index = list(labels).index(str(answer))
    elif answer in choices:
        index = list(choices).index(answer)
    elif isinstance(answer, str) and len(answer) == 1 and answer.upper() in LETTERS:
        index = LETTERS.index(answer.upper())
    elif isinstance(answer, str) and answer.isascii() and answer.isdigit():
        index = int(answer)
    else:
        raise ValueError(f"answer {answer!r} is none of the choices")
    if not 0 <= index < len(choices):
        raise ValueError(f"answer {answer!r} is out of range for {len(choices)} choices")
    return index


def parse_item(value: Mapping[str, Any]) -> Item:
    """Forms: {question, choices, answer}, also with choices as {text, label} (ARC); {ctx, endings, label} (HellaSwag);
    {sentence with _, option1, option2, answer} (WinoGrande). Raises ValueError or KeyError for anything else."""
    if "endings" in value:
        endings = [str(c) for c in value["endings"]]
        return Item(
            str(value["ctx"]).rstrip(), tuple(" " + c.strip() for c in endings), _index(value["label"], endings)
        )
    if "option1" in value:
        before, blank, after = str(value["sentence"]).partition("_")
        if not blank:
            raise ValueError("the sentence has no _")
        options = [str(value["option1"]), str(value["option2"])]
        return Item(
            before.rstrip(), tuple(f" {o}{after}" for o in options), _index(value["answer"], options, ["1", "2"])
        )
    question, choices, labels = value["question"], value.get("choices"), None
    if isinstance(question, Mapping):
        question, choices = question["stem"], question["choices"]
    if isinstance(choices, Mapping):
        choices, labels = choices["text"], [str(x) for x in choices["label"]]
    elif choices and isinstance(choices[0], Mapping):
        choices, labels = [c["text"] for c in choices], [str(c["label"]) for c in choices]
    if not isinstance(choices, list) or len(choices) < 2:
        raise ValueError("fewer than two choices")
    texts = [str(c) for c in choices]
    answer = _index(value.get("answer", value.get("answerKey")), texts, labels)
    return Item(f"Question: {str(question).strip()}\nAnswer:", tuple(" " + t.strip() for t in texts), answer)


def load_items(paths: Sequence[str | Path]) -> list[Item]:
    """Items of jsonl files. Raises NotFoundError, ReadError, or InvalidArgumentError naming file and line."""
    items = []
    for path in paths:
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except FileNotFoundError as error:
            raise NotFoundError(f"{path}: no such file") from error
        except (OSError, UnicodeDecodeError) as error:
            raise ReadError(f"{path}: {error}") from error
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                if not isinstance(value, dict):
                    raise ValueError("no JSON object")
                items.append(parse_item(value))
            except KeyError as error:
                raise InvalidArgumentError(f"{path}:{number}: key {error} is missing") from error
            except (ValueError, TypeError) as error:
                raise InvalidArgumentError(f"{path}:{number}: {error}") from error
    if not items:
        raise InvalidArgumentError("there are no items to score")
    return items


def _shared(sequences: Sequence[Sequence[int]]) -> int:
    n = 0
    while all(len(s) > n for s in sequences) and len({s[n] for s in sequences}) == 1:
        n += 1
    return n


def score_item(model: Model, session: Session, item: Item) -> list[float]:
    """Log-likelihood of each choice after the context.

    Choices are tokenised together with the context, as the model would see them; what all have in common is computed
    once.
    """
    encode = model.tokenizer.encode
    whole = [encode(item.context + choice, special=True) for choice in item.choices]
    context = encode(item.context, special=True)
    n_context = min(len(context), _shared([context, *whole])) if context else 0
    n_context = min(n_context, min(map(len, whole)) - 1)
    if n_context < 1:
        if model.tokenizer.bos is None:
            raise InvalidArgumentError("an item without context cannot be scored: the model has no BOS token")
        whole, n_context = [[model.tokenizer.bos, *w] for w in whole], 1
    longest = max(map(len, whole))
    if longest > model.context:
        raise InvalidArgumentError(f"an item of {longest} tokens does not fit into a context of {model.context}")
    first = session.sync(whole[0][:n_context])[-1:]
    scores = []
    for ids in whole:
        rest = ids[n_context:]
        rows = first if len(rest) == 1 else np.concatenate([first, session.eval(rest[:-1], all_logits=True)])
        scores.append(float(log_softmax(rows)[np.arange(len(rest)), rest].sum(dtype=np.float64)))
        session.rewind(n_context)
    return scores


def evaluate_choices(
    model: Model, items: Sequence[Item], progress: Callable[[int, int], None] | None = None
) -> ChoiceReport:
    """Scores all items."""
    right, right_norm = [], []
    with model.session() as session:
        for done, item in enumerate(items, 1):
            scores = np.array(score_item(model, session, item))
            sizes = np.array([len(c.encode()) for c in item.choices])
            right.append(float(int(scores.argmax()) == item.answer))
            right_norm.append(float(int((scores / sizes).argmax()) == item.answer))
            if progress:
                progress(done, len(items))
    n = len(items)
    return ChoiceReport(
        n, wilson(int(sum(right)), n), wilson(int(sum(right_norm)), n), np.array(right), np.array(right_norm)
    )
