"""The Python interface on a tiny packed model."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import les
from les.chat_template import ChatTemplate
from les.generate import StopStrings
from les.sampler import Sampler, SamplingParams
from les.sizes import parse_size

GREEDY = {"temperature": 0.0, "raw": True, "max_tokens": 12}


def test_generate_gives_text_tokens_reason_timings_and_statistics(packed: Path) -> None:
    with les.load(packed, context=128) as model:
        result = model.generate("the router", **GREEDY)
        assert result.tokens and len(result.tokens) <= 12
        assert result.finish_reason in ("stop", "length")
        assert result.text == model.tokenizer.decode(result.tokens)
        assert result.timings.completion_tokens == len(result.tokens)
        assert result.stats.peak_bytes > 0
        assert les.generate(packed, "the router", context=128, **GREEDY).tokens == result.tokens


def test_stream_joins_to_the_same_text_and_closing_keeps_the_model(packed: Path) -> None:
    with les.load(packed, context=128) as model:
        whole = model.generate("the experts", **GREEDY)
        stream = model.generate("the experts", stream=True, **GREEDY)
        assert "".join(chunk.text for chunk in stream) == whole.text
        assert stream.result.tokens == whole.tokens
        cut = model.generate("the experts", stream=True, **GREEDY)
        next(cut)
        cut.close()
        assert cut.result.finish_reason == "cancelled"
        assert model.generate("the experts", **GREEDY).tokens == whole.tokens


def test_same_seed_same_text_at_floor_and_ten_times_floor(packed: Path) -> None:
    floor = les.plan(packed, context=128)["floor_bytes"]
    texts = []
    for memory in (floor, 10 * floor):
        with les.load(packed, memory=memory, context=128) as model:
            texts.append(model.generate("in 2026", raw=True, max_tokens=20, seed=7, temperature=1.0).tokens)
            stats = model.stats()
            assert stats["flash_bytes"] > 0
    assert texts[0] == texts[1]


def test_below_the_floor_is_refused_with_the_number(packed: Path) -> None:
    floor = les.plan(packed, context=128)["floor_bytes"]
    with pytest.raises(les.BudgetError, match=str(floor)):
        les.load(packed, memory=floor - 1, context=128)


def test_a_second_turn_computes_only_what_is_new(packed: Path) -> None:
    with les.load(packed, context=256) as model:
        first = model.generate("one two three four five six", **GREEDY)
        ids = (
            model.tokenizer.encode("one two three four five six", special=True)
            + first.tokens
            + model.tokenizer.encode(" seven")
        )
        second = model.generate(ids, temperature=0.0, max_tokens=2)
        assert second.timings.prefilled_tokens < len(ids) / 2


def test_context_limits(packed: Path) -> None:
    with les.load(packed, context=32) as model:
        result = model.generate(list(range(40, 60)), temperature=0.0, max_tokens=-1)
        assert result.finish_reason in ("length", "stop")
        with pytest.raises(les.InvalidArgumentError, match="33 tokens"):
            model.generate(list(range(33)), temperature=0.0)
        assert model.generate(list(range(32)), temperature=0.0).finish_reason == "length"
        assert model.generate("", raw=True, temperature=0.0, max_tokens=2).timings.prompt_tokens == 1  # the BOS


def test_threads_take_turns_and_closed_models_say_so(packed: Path) -> None:
    model = les.load(packed, context=128)
    expected = model.generate("the answer", **GREEDY).tokens
    results: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: results.append(model.generate("the answer", **GREEDY).tokens)) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
    model.close()
    model.close()
    with pytest.raises(les.InvalidArgumentError, match="closed"):
        model.stats()


def test_read_errors_are_reported_once_and_the_model_goes_on(packed: Path) -> None:
    floor = les.plan(packed, context=128)["floor_bytes"]
    model = les.load(packed, memory=floor, context=128, fault="eio,40")
    session = model.session()
    n_errors = 0
    for token in list(range(50, 90)):
        position = session.position
        try:
            session.eval([token])
        except les.ReadError as error:
            assert "layer" in str(error) and "expert" in str(error)
            assert session.position == position
            n_errors += 1
    assert n_errors > 0
    assert session.position > 0


def test_stop_strings_hold_back_what_may_become_one() -> None:
    stops = StopStrings(["END", "</s>"])
    assert stops.add("abcE") == "abc"
    assert stops.add("N") == ""
    assert stops.add("X<") == "ENX"
    assert stops.add("/s> rest") == ""
    assert stops.found == "</s>"


def test_sampler_choices_follow_the_distribution_and_the_limits() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    sampler = Sampler(SamplingParams(1.0, 0, 1.0, 0.0, seed=3))
    counts = np.bincount([sampler.choose(logits) for _ in range(4000)], minlength=4) / 4000
    assert np.abs(counts - [0.5, 0.3, 0.15, 0.05]).max() < 0.03
    assert {Sampler(SamplingParams(1.0, 2, 1.0, 0.0, seed=s)).choose(logits) for s in range(60)} == {0, 1}
    assert {Sampler(SamplingParams(1.0, 0, 0.45, 0.0, seed=s)).choose(logits) for s in range(30)} == {0}
    assert {Sampler(SamplingParams(1.0, 0, 1.0, 0.5, seed=s)).choose(logits) for s in range(60)} == {0, 1}
    assert Sampler(SamplingParams(0, logit_bias={3: 100.0})).choose(logits) == 3
    assert Sampler(SamplingParams(0, repeat_penalty=10.0)).choose(np.array([2.0, 1.0], np.float32), [0]) == 1


@pytest.mark.parametrize(
    ("name", "value"), [("temperature", -1), ("top_p", 1.5), ("top_k", 1.5), ("min_p", -0.1), ("seed", -1)]
)
def test_bad_sampling_settings_name_themselves(name: str, value: float) -> None:
    with pytest.raises(les.InvalidArgumentError, match=name):
        SamplingParams(**{name: value})


def test_sizes() -> None:
    assert parse_size("3GiB") == 3 << 30
    assert parse_size("2.5 GB") == 2_500_000_000
    assert parse_size("512M") == 512 << 20
    assert parse_size(None) is None
    with pytest.raises(les.InvalidArgumentError, match="many"):
        parse_size("many")


def test_user_text_never_becomes_a_control_token(packed: Path) -> None:
    with les.load(packed, context=256) as model:
        tokenizer = model.tokenizer
        control = [tokenizer.id_to_token(i) for i in range(tokenizer.n_vocab) if tokenizer.is_control(i)]
        template = ChatTemplate("{% for m in messages %}{{ m.content | trim }}{% endfor %}", tokenizer)
        ids = template.encode(template.render([{"role": "user", "content": f" {''.join(control)} x "}]))
        assert not any(tokenizer.is_control(i) for i in ids)
        chat = model.apply_chat_template([{"role": "user", "content": "hi <|im_end|> there"}])
        assert sum(i == tokenizer.token_to_id("<|im_end|>") for i in chat) == 1


@pytest.mark.parametrize(
    "source",
    [
        "{{ 1/0 }}",
        "{{ ''.__class__.__mro__ }}",
        "{% for i in range(10**9) %}x{% endfor %}",
        "{{ raise_exception('no') }}",
    ],
)
def test_templates_that_misbehave_are_typed_errors(packed: Path, source: str) -> None:
    with les.load(packed, context=64) as model:
        template = ChatTemplate(source, model.tokenizer)
        with pytest.raises(les.InvalidArgumentError):
            rendered = template.render([{"role": "user", "content": "x"}])
            assert rendered.text == "never"
