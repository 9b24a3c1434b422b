"""Values that make no sense, interruptions, threads: each ends in a typed error or an early text, never a wrong one."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import les
from les.sampler import Sampler, SamplingParams

GREEDY: dict[str, Any] = {"temperature": 0.0, "raw": True}


@pytest.mark.parametrize(
    "settings",
    [
        {"seed": 1.5},
        {"seed": True},
        {"temperature": float("inf")},
        {"temperature": float("nan")},
        {"logit_bias": {True: 1.0}},
        {"logit_bias": {0: float("inf")}},
    ],
)
def test_settings_that_are_no_numbers_of_their_kind(settings: dict[str, Any]) -> None:
    with pytest.raises(les.InvalidArgumentError, match=next(iter(settings))):
        SamplingParams(**settings)


def test_numpy_numbers_are_numbers() -> None:
    assert SamplingParams(top_k=np.int64(3), temperature=np.float32(0.5)).top_k == 3  # type: ignore[arg-type]


def test_scores_that_are_no_numbers_choose_nothing() -> None:
    with pytest.raises(les.InternalError, match="token 0"):
        Sampler(SamplingParams(seed=1)).choose(np.array([np.nan, 1, 2], np.float32))
    with pytest.raises(les.InvalidArgumentError, match="forbids every token"):
        Sampler(SamplingParams(0, logit_bias={0: -np.inf, 1: -np.inf})).choose(np.zeros(2, np.float32))


def test_ctrl_c_stops_a_prefill_where_it_is(packed: Path) -> None:
    # A shell starts background jobs with Ctrl-C ignored, and Python then leaves it so.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with les.load(
        packed, context=4096, flash="0.02,1,2000", memory=les.plan(packed, context=4096)["floor_bytes"]
    ) as model:
        expected = model.generate("the router", max_tokens=4, **GREEDY).tokens
        session = model.default_session()
        session.rewind(0)
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            session.eval([40 + i % 200 for i in range(4000)])
        assert session.position == 0
        assert model.generate("the router", max_tokens=4, **GREEDY).tokens == expected


def test_a_stream_may_be_closed_by_another_thread(packed: Path) -> None:
    with les.load(packed, context=128) as model:
        stream = model.generate("the router", stream=True, max_tokens=20, **GREEDY)
        next(stream)
        errors: list[BaseException] = []

        def close() -> None:
            try:
                stream.close()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=close)
        thread.start()
        thread.join()
        assert errors == []
        assert stream.result.finish_reason == "cancelled"
        assert model.generate("the router", max_tokens=4, **GREEDY).tokens


def test_a_second_stream_of_the_same_thread_is_told(packed: Path) -> None:
    with les.load(packed, context=128) as model:
        stream = model.generate("the router", stream=True, max_tokens=20, **GREEDY)
        next(stream)
        with pytest.raises(les.InvalidArgumentError, match="still open"):
            model.generate("the experts", **GREEDY)
        with model.session() as own:
            assert model.generate("the experts", max_tokens=2, session=own, **GREEDY).tokens
        stream.close()
        assert model.generate("the experts", max_tokens=2, **GREEDY).tokens


def test_closing_the_model_ends_a_text_in_another_thread(packed: Path) -> None:
    model = les.load(packed, context=4096, flash="0.02,1,2000", memory=les.plan(packed, context=4096)["floor_bytes"])
    results: list[les.GenerationResult] = []
    thread = threading.Thread(target=lambda: results.append(model.generate("the router", max_tokens=-1, **GREEDY)))
    thread.start()
    time.sleep(0.3)
    model.close()
    thread.join(30)
    assert not thread.is_alive()
    assert results[0].finish_reason == "cancelled"
    with pytest.raises(les.InvalidArgumentError, match="closed"):
        model.generate("x", **GREEDY)


def test_a_file_without_a_chat_template_says_so_once(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with les.load(packed, context=128) as model:
        monkeypatch.setattr(type(model), "metadata", property(lambda _: {}))
        messages = [{"role": "user", "content": "hi"}]
        with pytest.warns(UserWarning, match="ChatML") as seen:
            model.apply_chat_template(messages)
            model.apply_chat_template(messages)
        assert len(seen) == 1
