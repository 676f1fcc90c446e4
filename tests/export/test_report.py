"""The report says what is in an export, and what is not."""

import json
from collections import Counter

from polarproxy import __version__
from polarproxy.credit.diagnostics import RewardSummary
from polarproxy.credit.versions import RewardVersion
from polarproxy.export.account import Account
from polarproxy.export.options import Options
from polarproxy.export.report import encode_report, report
from polarproxy.trajectory.prompting import PromptCount

VERSION = RewardVersion("d1", {"given": 3})
SUMMARY = RewardSummary(2, 3, 1, ("easy",), 0.5, 0.25)


def account() -> Account:
    made = Account(
        options=Options(merge="stitch"),
        rewards=SUMMARY,
        reward_version=VERSION,
        sessions=4,
        calls=9,
        rows=3,
        tokens=50,
        captured_tokens=20,
        trained_tokens=15,
    )
    made.kinds.update(["title", "main", "main"])
    made.left_out_calls.update(["undelivered", "aborted", "undelivered"])
    made.left_out_sessions.update(["no_reward"])
    made.refused = 1
    made.refused_rows.update(["usage_prompt", "no_stop_id"])
    made.findings.update(["no_stop_id", "top_k_set", "top_k_set"])
    made.left_out_turns["subagent"] = 2
    made.left_out_tokens.update({"undelivered": 2, "aborted": 1, "subagent": 2})
    made.policy_version = 7
    made.lags.update([3, 0, 0])
    made.warnings.update(["top_k_set"])
    made.prompts["s1"] = PromptCount(first=1, exact=3, fallbacks=Counter(media=1), saved_tokens=9)
    made.prompts["s2"] = PromptCount(first=1, faults=1, fallbacks=Counter(media=1))
    made.drifts.update(["thinking_stripped", "nonce", "thinking_stripped"])
    made.unfaithful_rows, made.off_context_tokens = 1, 7
    return made


def test_a_report() -> None:
    assert report(account()) == {
        "report_version": 1,
        "format_version": 1,
        "polarproxy": __version__,
        "advantage": "grpo",
        "weighting": "per_session",
        "merge": "stitch",
        "on_collapse": "keep",
        "subagents": "share",
        "reward_version": {"digest": "d1", "specs": {"given": 3}},
        "policy": {"version": 7, "max_lag": None, "rows_by_lag": {"0": 2, "3": 1}},
        "where": "",
        "model": None,
        "models": {},
        "sessions": 4,
        "calls": 9,
        "kinds": {"main": 2, "title": 1},
        "rows": 3,
        "tokens": 50,
        "sampled_tokens": {"captured": 20, "trained": 15},
        "coverage": 0.75,
        "left_out": {
            "calls": {"aborted": 1, "undelivered": 2},
            "sessions": {"no_reward": 1},
            "turns": {"subagent": 2},
            "tokens": {"aborted": 1, "subagent": 2, "undelivered": 2},
        },
        "cut": {"max_tokens": None, "rows": 0, "tokens": 0, "trained_tokens": 0, "rows_without_training": 0},
        "drift": {"nonce": 1, "thinking_stripped": 2},
        "unfaithful": {"rows": 1, "tokens": 7},
        "refused_rows": {"rows": 1, "by_code": {"no_stop_id": 1, "usage_prompt": 1}},
        "findings": {"no_stop_id": 1, "top_k_set": 2},
        "exact_prompts": {
            "first": 2,
            "exact": 3,
            "faults": 1,
            "fallbacks": {"media": 2},
            "saved_tokens": 9,
            "sessions": {
                "s1": {"first": 1, "exact": 3, "faults": 0, "fallbacks": {"media": 1}, "saved_tokens": 9},
                "s2": {"first": 1, "exact": 0, "faults": 1, "fallbacks": {"media": 1}, "saved_tokens": 0},
            },
        },
        "rewards": {
            "groups": 2,
            "scored_sessions": 3,
            "unscored_sessions": 1,
            "flat_groups": ("easy",),
            "mean": 0.5,
            "within_group_std": 0.25,
        },
        "collapse": {"groups": (), "components": (), "trends": (), "signs": ()},
        "texts": {},
        "warnings": {"top_k_set": 1},
    }


def test_it_is_json_with_its_reasons_in_a_fixed_order() -> None:
    text = encode_report(account())
    assert text.endswith(b"}\n")
    assert list(json.loads(text)["left_out"]["calls"]) == ["aborted", "undelivered"]
    assert json.loads(text)["rewards"]["flat_groups"] == ["easy"]


def test_of_nothing_the_coverage_is_unknown_and_not_zero() -> None:
    assert (
        json.loads(encode_report(Account(options=Options(), rewards=SUMMARY, reward_version=VERSION)))["coverage"]
        is None
    )
