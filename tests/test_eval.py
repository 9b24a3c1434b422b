"""Evaluation: statistics against known values, scores against direct arithmetic on the logits, formats of questions,
bad input."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import les
from les.eval import Estimate, Reference, compare, evaluate_choices, load_items, make_windows, perplexity
from les.eval.choices import Item, parse_item, score_item
from les.eval.statistics import grouped_mean, paired_difference, student_t95, wilson
from les.eval.tokens import kl_rows, log_softmax
from les.precision import requantize
from les.precision.plan import uniform_plan
from les.precision.writer import open_source

TEXT = (
    "The router sends each token to the experts that it likes; the others stay on the disk and cost nothing at all. "
    * 6
)


def softmax64(logits: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_quantiles_of_student() -> None:
    # From tables.
    for n_free, expected, tolerance in (
        (1, 12.706, 1e-3),
        (2, 4.303, 1e-3),
        (3, 3.182, 0.02),
        (5, 2.571, 5e-3),
        (10, 2.228, 1e-3),
        (30, 2.042, 1e-3),
        (1000, 1.962, 1e-3),
    ):
        assert student_t95(n_free) == pytest.approx(expected, abs=tolerance)
    assert math.isnan(student_t95(0))


def test_intervals() -> None:
    # Wilson for 9 of 10 and 0 of 10: from the literature.
    assert wilson(9, 10).low == pytest.approx(0.5958, abs=1e-4) and wilson(9, 10).high == pytest.approx(
        0.9821, abs=1e-4
    )
    assert wilson(0, 10).low == 0 and wilson(0, 10).high == pytest.approx(0.2775, abs=1e-4)
    # Groups of one value each: the usual interval of a mean.
    values = np.array([1.0, 2.0, 4.0, 7.0, 9.0, 10.0])
    e = grouped_mean([np.array([v]) for v in values])
    assert e.value == pytest.approx(values.mean())
    assert e.high - e.value == pytest.approx(2.571 * values.std(ddof=1) / math.sqrt(6), rel=2e-3)
    assert math.isnan(grouped_mean([values]).low)
    # Within groups all values are alike, so more of them tell nothing new.
    assert grouped_mean([np.full(50, v) for v in values]).high == pytest.approx(e.high)
    d = paired_difference(np.array([1.0, 0, 1, 0]), np.array([1.0, 1, 1, 0]))
    assert d.value == 0.25 and d.low < 0 < d.high
    assert Estimate(1.5, math.nan, math.nan).text(".1f") == "1.5"


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    n_runs, covered = 600, 0
    for _ in range(n_runs):
        groups = [rng.normal(rng.normal(3.0, 1.0), 2.0, size=20) for _ in range(8)]
        e = grouped_mean(groups)
        covered += e.low <= 3.0 <= e.high
    assert 0.92 <= covered / n_runs <= 0.98


def test_perplexity_is_what_the_logits_say(packed: Path) -> None:
    with les.load(packed, context=64) as model:
        windows = make_windows(model.tokenizer, [TEXT], 48)
        result = perplexity(model, windows)
        nats = []
        with model.session() as session:
            for window in windows:
                session.rewind(0)
                p = softmax64(session.eval(window, all_logits=True))
                nats += [-math.log(p[i, window[i + 1]]) for i in range(len(window) - 1)]
    assert result.n_tokens == len(nats)
    assert result.nats.value == pytest.approx(np.mean(nats), rel=1e-6)
    assert result.perplexity.value == pytest.approx(math.exp(np.mean(nats)), rel=1e-6)
    assert result.nats.low < result.nats.value < result.nats.high


def test_windows(packed: Path) -> None:
    with les.load(packed, context=64) as model:
        tokenizer = model.tokenizer
    ids = tokenizer.encode(TEXT)
    head = [tokenizer.bos] if tokenizer.adds_bos else []
    windows = make_windows(tokenizer, [TEXT], 32)
    body = [t for w in windows for t in w[len(head) :]]
    assert all(w[: len(head)] == head and len(w) <= 32 for w in windows)
    assert body == ids[: len(body)] and len(ids) - len(body) < 16
    both = make_windows(tokenizer, [TEXT, "another text " * 60], 32, max_tokens=64)
    assert [len(w) for w in both] == [32, 32]
    assert both[0] == windows[0] and both[1] != windows[1]
    assert sum(map(len, make_windows(tokenizer, [TEXT], 32, max_tokens=50))) == 50
    with pytest.raises(les.InvalidArgumentError):
        make_windows(tokenizer, ["", ""])
    with pytest.raises(les.InvalidArgumentError):
        make_windows(tokenizer, [TEXT], 1)


def test_divergence_in_double_precision() -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(0, 3, (70, 500)).astype(np.float32)
    b = a + rng.normal(0, 0.3, a.shape).astype(np.float32)
    p, q = softmax64(a), softmax64(b)
    assert kl_rows(a, b) == pytest.approx((p * np.log(p / q)).sum(axis=1), rel=1e-4)
    assert kl_rows(a, a).tolist() == [0.0] * 70
    assert np.exp(log_softmax(a)).sum(axis=1) == pytest.approx(np.ones(70), rel=1e-5)


def test_a_model_against_itself_and_a_smaller_one(packed: Path, tmp_path: Path) -> None:
    small = requantize(
        packed,
        tmp_path / "small.les",
        uniform_plan(open_source(packed), {"gate": "Q4_0", "up": "Q4_0", "down": "Q4_0"}),
    ).path
    with les.load(packed, context=64) as model:
        windows = make_windows(model.tokenizer, [TEXT], 48)
        base = Reference(model, windows)
        same = compare(base, model)
    assert (same.kl.value, same.kl_max, same.top1.value, same.ratio.value) == (0, 0, 1, 1)
    with base, les.load(small, context=64) as model:
        result = compare(base, model)
        kl, agree = [], []
        with model.session() as session:
            for window, logits in zip(windows, base, strict=True):
                session.rewind(0)
                other = session.eval(window, all_logits=True)
                p, q = softmax64(logits), softmax64(other)
                kl += list((p * np.log(p / q)).sum(axis=1))
                agree += list(logits.argmax(axis=1) == other.argmax(axis=1))
    assert result.kl.value == pytest.approx(np.mean(kl), rel=1e-3) and result.kl.value > 1e-6
    assert result.kl_max == pytest.approx(max(kl), rel=1e-3)
    assert result.top1.value == pytest.approx(np.mean(agree))
    assert result.n_tokens == sum(map(len, windows))
    assert result.other.nats.value - result.base.nats.value == pytest.approx(math.log(result.ratio.value), rel=1e-9)


def test_choices_are_scored_by_their_likelihood(packed: Path) -> None:
    item = Item("The router sends each token to", (" the experts", " nothing at all that one could name", " x"), 0)
    with les.load(packed, context=64) as model, model.session() as session:
        scores = score_item(model, session, item)
        for choice, score in zip(item.choices, scores, strict=True):
            context = model.tokenizer.encode(item.context, special=True)
            ids = model.tokenizer.encode(item.context + choice, special=True)
            shared = 0
            while shared < min(len(context), len(ids)) and context[shared] == ids[shared]:
                shared += 1
            session.rewind(0)
            p = softmax64(session.eval(ids, all_logits=True))
            assert score == pytest.approx(sum(math.log(p[i - 1, ids[i]]) for i in range(shared, len(ids))), rel=1e-5)
        best = int(np.argmax(scores))
        right = evaluate_choices(model, [Item(item.context, item.choices, best)] * 3)
        wrong = evaluate_choices(model, [Item(item.context, item.choices, (best + 1) % 3)] * 3)
    assert right.accuracy.value == 1 and wrong.accuracy.value == 0
    assert wrong.difference(right)["accuracy"]["value"] == 1 and wrong.difference(right)["n_changed"] == 3
    assert wrong.difference(wrong)["accuracy"]["value"] == 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"question": "2+2?", "choices": ["3", "4"], "answer": 1}, Item("Question: 2+2?\nAnswer:", (" 3", " 4"), 1)),
        ({"question": "2+2?", "choices": ["3", "4"], "answer": "B"}, Item("Question: 2+2?\nAnswer:", (" 3", " 4"), 1)),
        ({"question": "2+2?", "choices": ["3", "4"], "answer": "4"}, Item("Question: 2+2?\nAnswer:", (" 3", " 4"), 1)),
        (
            {"question": "q", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"},
            Item("Question: q\nAnswer:", (" a", " b"), 1),
        ),
        (
            {
                "question": {"stem": "q", "choices": [{"text": "a", "label": "A"}, {"text": "b", "label": "B"}]},
                "answerKey": "A",
            },
            Item("Question: q\nAnswer:", (" a", " b"), 0),
        ),
        ({"ctx": "He runs", "endings": ["away.", "up."], "label": "1"}, Item("He runs", (" away.", " up."), 1)),
        (
            {
                "sentence": "The cup is in the box because _ is small.",
                "option1": "the cup",
                "option2": "the box",
                "answer": "1",
            },
            Item("The cup is in the box because", (" the cup is small.", " the box is small."), 0),
        ),
    ],
)
def test_forms_of_questions(value: dict[str, object], expected: Item) -> None:
    assert parse_item(value) == expected


@pytest.mark.parametrize(
    "line",
    [
        '{"question": "q", "choices": ["a", "b"]}',
        '{"question": "q", "choices": ["a", "b"], "answer": 2}',
        '{"question": "q", "choices": ["a"], "answer": 0}',
        '{"choices": ["a", "b"], "answer": 0}',
        "[1]",
        "{",
        '{"question": "q", "choices": ["a", "b"], "answer": "nothing"}',
        '{"question": "q", "choices": 5, "answer": 0}',
        '{"sentence": "no blank", "option1": "a", "option2": "b", "answer": "1"}',
    ],
)
def test_bad_questions_name_their_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "q", "choices": ["a", "b"], "answer": 0}\n\n' + line + "\n")
    with pytest.raises(les.InvalidArgumentError, match=r"q\.jsonl:3: "):
        load_items([path])


def test_command_line(packed: Path, tmp_path: Path) -> None:
    def run(*args: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "les", "eval", *map(str, args)], capture_output=True, text=True, timeout=120
        )

    text = tmp_path / "text.txt"
    text.write_text(TEXT)
    questions = tmp_path / "q.jsonl"
    questions.write_text(
        "".join(
            json.dumps({"question": f"q{i}", "choices": ["the experts", "the disk"], "answer": i % 2}) + "\n"
            for i in range(6)
        )
    )
    result = run("perplexity", packed, text, "--window", 32, "--json")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert data["perplexity"]["low"] < data["perplexity"]["value"] < data["perplexity"]["high"]
    for kind in ("kl", "agreement"):
        data = json.loads(run(kind, packed, packed, text, "--window", 32, "--json").stdout)
        assert (data["kl"]["value"], data["top1"]["value"]) == (0, 1)
    data = json.loads(run("choices", packed, questions, "--compare", packed, "--json").stdout)
    assert data["n_items"] == 6 and data["difference"]["n_changed"] == 0
    assert "same likeliest token" in run("perplexity", packed, text, "--compare", packed, "--compute", "f32").stdout
    for bad in (
        ["perplexity", packed, tmp_path / "none.txt"],
        ["choices", packed, text],
        ["kl", packed, packed, text, "--window", 1],
    ):
        result = run(*bad)
        assert (
            result.returncode == 1 and result.stderr.startswith("les: error: ") and len(result.stderr.splitlines()) == 1
        ), result.stderr
