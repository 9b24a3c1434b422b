"""Speculative decoding: the text is the same, the distribution is the same, and the session is left the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import shared_or_skip

import les
from les.draft import Draft, ModelDrafter, NgramDrafter, WidthChooser, accept, speculative_steps
from les.generate import generate_steps
from les.sampler import Sampler, SamplingParams

TARGETS = ["qwen3moe", "qwen35moe", "llama-mixtral", "gpt-oss"]


class ScriptedDrafter:
    """Proposes what a function of (all tokens, k) says; for tests."""

    name, block = "scripted", 16

    def __init__(self, guess: Any) -> None:
        self.guess = guess
        self.n_ended = 0

    def begin(self, session: Any, params: SamplingParams) -> None: ...
    def observe(self, n_verified: int, n_accepted: int) -> None: ...
    def end(self) -> None:
        self.n_ended += 1

    def propose(self, tokens: Sequence[int], k: int) -> Draft:
        return Draft(self.guess(tokens, k))


def oracle(text: list[int], wrong_every: int = 0) -> ScriptedDrafter:
    """Knows the text; every so many positions it is wrong on purpose."""

    def guess(tokens: Sequence[int], k: int) -> list[int]:
        known = text[len(tokens) : len(tokens) + k]
        return [
            t if wrong_every == 0 or (len(tokens) + i) % wrong_every else (t + 1) % 290 for i, t in enumerate(known)
        ]

    return ScriptedDrafter(guess)


def prompt_of(name: str) -> list[int]:
    return [int(t) for t in np.load(shared_or_skip("goldens", name, "golden.npz"))["prompt_a"]]


def load(name: str, **options: Any) -> les.Model:
    return les.load(shared_or_skip("goldens", name, "model.gguf"), context=160, threads=2, **options)


@pytest.mark.parametrize("name", TARGETS)
def test_greedy_text_is_the_same_for_every_width_budget_and_drafter(name: str) -> None:
    prompt = prompt_of(name)
    path = shared_or_skip("goldens", name, "model.gguf")
    floor = les.plan(path, context=160, threads=2)["floor_bytes"]
    settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": 60, "stop": []}
    with load(name) as model:
        plain = model.generate(prompt, **settings).tokens
    for memory in (None, floor):
        with load(name, memory=memory) as model:
            for width in (0, 1, 2, 3, 5, 8, 16):
                for drafter in ("ngram", oracle(prompt + plain), oracle(prompt + plain, 3)):
                    result = model.generate(prompt, draft=drafter, draft_max=width, draft_fixed=True, **settings)
                    assert result.tokens == plain
                    assert model.default_session().tokens == (prompt + plain)[:-1]
            assert model.generate(prompt, draft="ngram", **settings).tokens == plain


def test_a_perfect_drafter_is_always_accepted_and_fixed_widths_are_kept() -> None:
    prompt = prompt_of("qwen3moe")
    with load("qwen3moe") as model:
        text = prompt + model.generate(prompt, temperature=0.0, max_tokens=80).tokens
        result = model.generate(
            prompt,
            temperature=0.0,
            max_tokens=len(text) - len(prompt) - 8,
            draft=oracle(text),
            draft_max=4,
            draft_fixed=True,
        )
        assert result.draft is not None
        assert result.draft.n_drafted > 0
        assert result.draft.acceptance == 1.0
        assert set(result.draft.widths) == {4}


@pytest.mark.parametrize("name", ["qwen3moe", "qwen35moe"])
@pytest.mark.parametrize("n_taken", [1, 2, 5, 7])
def test_closing_at_any_moment_leaves_the_session_as_plain_decoding_does(name: str, n_taken: int) -> None:
    prompt = prompt_of(name)
    with load(name) as model:
        plain, session = model.session(), model.session()
        steps = generate_steps(plain, prompt, SamplingParams(0))
        expected = [next(steps).token for _ in range(n_taken)]
        steps.close()  # type: ignore[attr-defined]
        drafter = oracle(prompt + model.generate(prompt, temperature=0.0, max_tokens=40).tokens, 4)
        drafted = speculative_steps(
            session, prompt, SamplingParams(0), drafter, draft_max=5, context=160, is_fixed=True
        )
        assert [next(drafted)[0] for _ in range(n_taken)] == expected
        drafted.close()  # type: ignore[attr-defined]
        assert drafter.n_ended == 1
        assert session.tokens == plain.tokens
        np.testing.assert_array_equal(session.eval([expected[-1]]), plain.eval([expected[-1]]))


def test_the_same_seed_gives_the_same_text_with_penalties_and_logprobs() -> None:
    prompt = prompt_of("qwen3moe")
    settings: dict[str, Any] = {
        "temperature": 0.9,
        "seed": 5,
        "repeat_penalty": 1.3,
        "presence_penalty": 0.4,
        "frequency_penalty": 0.2,
        "max_tokens": 50,
        "logprobs": 2,
    }
    with load("qwen3moe") as model:
        plain = model.generate(prompt, **settings)
        for drafter in ("ngram", oracle(prompt + plain.tokens), oracle(prompt + plain.tokens, 2)):
            result = model.generate(prompt, draft=drafter, draft_max=6, draft_fixed=True, **settings)
            assert result.tokens == plain.tokens
            assert result.logprobs == plain.logprobs


@pytest.mark.parametrize("has_distribution", [True, False])
def test_sampled_text_follows_the_models_distribution(has_distribution: bool) -> None:
    # A Markov chain over six tokens is the model; another one is the drafter. Pairs of tokens are counted.
    n, n_texts = 6, 12_000
    rng = np.random.default_rng(1)
    table = rng.normal(0, 1, (n, n)).astype(np.float32)
    other = table + rng.normal(0, 1, (n, n)).astype(np.float32)
    params = SamplingParams(1.3, 5, 0.95, 0.0, repeat_penalty=1.2, presence_penalty=0.2, seed=2)
    sampler, drawing = Sampler(params), Sampler(SamplingParams(1.0, 0, 1.0, 0.0, seed=3))

    def pair_probabilities() -> np.ndarray:
        p = np.zeros((n, n))
        for a, pa in zip(*sampler.distribution(table[0], [0]), strict=True):
            for b, pb in zip(*sampler.distribution(table[a], [0, int(a)]), strict=True):
                p[a, b] += pa * pb
        return p

    counts = np.zeros((n, n))
    for _ in range(n_texts):
        tokens, distributions = [0], []
        for _ in range(2):
            distribution = drawing.distribution(other[tokens[-1]])
            distributions.append(distribution)
            if has_distribution:
                tokens.append(int(drawing.rng.choice(distribution[0], p=distribution[1])))
            else:
                tokens.append(int(other[tokens[-1]].argmax()))
        draft = Draft(tokens[1:], distributions if has_distribution else None)
        text = [0, *accept(sampler, table[tokens], [0], draft)]
        while len(text) < 3:
            text.append(sampler.choose(table[text[-1]], text))
        counts[text[1], text[2]] += 1
    expected = pair_probabilities() * n_texts
    assert counts[expected == 0].sum() == 0
    likely = expected > 0
    statistic = ((counts[likely] - expected[likely]) ** 2 / expected[likely]).sum()
    degrees = int(likely.sum()) - 1
    # Wilson and Hilferty's approximation of the quantile at 1 - 1e-4.
    bound = degrees * (1 - 2 / (9 * degrees) + 3.719 * (2 / (9 * degrees)) ** 0.5) ** 3
    assert statistic < bound


def test_ngrams_continue_the_longest_match_and_forget_what_was_taken_back() -> None:
    drafter = NgramDrafter(max_n=3, min_n=2)
    assert drafter.propose([1, 2, 3], 4).tokens == []
    assert drafter.propose([1, 2, 3, 9, 1, 2], 3).tokens == [3, 9, 1]
    assert drafter.propose([1, 2, 3, 9, 1, 2, 3], 2).tokens == [9, 1]
    assert drafter.propose([1, 2, 5, 9, 1, 2], 1).tokens == [5]
    assert drafter.propose([7, 7, 7, 7], 5).tokens == [7] * 5
    assert drafter.propose([4, 5, 4, 5, 4], 4).tokens == [5, 4, 5, 4]
    assert drafter.propose([], 4).tokens == []


def simulate(rate: float, step_ms: Any, n_tokens: int = 4000, draft_ms: float = 0.0) -> tuple[float, WidthChooser]:
    """Milliseconds per token of a chooser where each drafted token is right with `rate`."""
    rng, chooser, total, n = np.random.default_rng(0), WidthChooser(7), 0.0, 0
    while n < n_tokens:
        k = chooser.wanted()
        if k > 0:
            total += draft_ms
            chooser.learn_draft(draft_ms)
            k = chooser.width(k, None)
        n_accepted = int(np.cumprod(rng.random(k) < rate).sum()) if k else 0
        chooser.learn(k, n_accepted, step_ms(k))
        total += step_ms(k)
        n += n_accepted + 1
    return total / n, chooser


def test_width_is_never_a_loss_and_finds_the_gain() -> None:
    cheap, dear = (lambda k: 10 + 1.0 * k), (lambda k: 10 + 9.0 * k)
    assert simulate(0.1, dear, draft_ms=1.0)[0] < 10 / 0.98
    assert simulate(0.5, dear, draft_ms=1.0)[0] < 10 / 0.98
    assert simulate(0.0, cheap, draft_ms=3.0)[0] < 10 / 0.98
    best = min((10 + k) / sum(0.9**i for i in range(k + 1)) for k in range(8))
    assert simulate(0.9, cheap)[0] < 1.08 * best


def test_bad_drafts_and_settings_are_typed_errors(packed: Path) -> None:
    with les.load(packed, context=64) as model:
        for settings in (
            {"draft": "nonsense"},
            {"draft": "ngram", "draft_max": -1},
            {"draft": "ngram", "draft_max": 99},
        ):
            with pytest.raises(les.InvalidArgumentError):
                model.generate("x", raw=True, max_tokens=2, **settings)
        for guess in ([10**6], [-1], [1] * 9):
            with pytest.raises(les.InvalidArgumentError, match="scripted"):
                model.generate(
                    "the",
                    raw=True,
                    temperature=0.0,
                    max_tokens=8,
                    draft=ScriptedDrafter(lambda _t, _k, g=guess: g),
                    draft_max=4,
                    draft_fixed=True,
                )


def test_a_small_model_drafts_with_its_own_draws() -> None:
    prompt = prompt_of("qwen3moe")
    with load("qwen3moe") as model, load("qwen3moe") as small, load("qwen35moe") as other:
        drafter = ModelDrafter(small)
        plain = model.generate(prompt, temperature=0.0, max_tokens=40).tokens
        result = model.generate(prompt, temperature=0.0, max_tokens=40, draft=drafter, draft_max=4, draft_fixed=True)
        assert result.tokens == plain
        assert result.draft is not None and result.draft.acceptance == 1.0
        # The same distribution for draft and target: nothing drawn is ever rejected.
        drawn = model.generate(
            prompt,
            temperature=1.0,
            seed=4,
            repeat_penalty=1.2,
            max_tokens=40,
            draft=drafter,
            draft_max=4,
            draft_fixed=True,
        )
        assert drawn.draft is not None and drawn.draft.acceptance == 1.0
        drafter.close()
        if other.n_vocab != model.n_vocab or other.tokenizer.id_to_token(300) != model.tokenizer.id_to_token(300):
            with pytest.raises(les.InvalidArgumentError, match="no drafter"):
                model.generate(prompt, draft=ModelDrafter(other), max_tokens=2)


def test_two_sessions_may_draft_in_turn() -> None:
    a, b = prompt_of("qwen35moe"), prompt_of("qwen35moe")[::-1]
    with load("qwen35moe") as model:
        settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": 30}
        plain = [model.generate(p, session=model.session(), **settings).tokens for p in (a, b)]
        streams = [
            model.generate(
                p, session=model.session(), stream=True, draft="ngram", draft_max=5, draft_fixed=True, **settings
            )
            for p in (a, b)
        ]
        for _ in range(30):
            for stream in streams:
                next(stream, None)
        assert [stream.result.tokens for stream in streams] == plain
