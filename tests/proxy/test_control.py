"""The control routes: sessions made on purpose, rewards, the policy version, counts; and who may use them."""

import asyncio
import json
from typing import Any

import pytest

from polarproxy.model import ComponentKind, Reward, RewardComponent, SessionStatus
from tests.fakes import Faults, always, compose
from tests.proxy.rig import BODY, Answer, Rig, Starter

STREAM = {**BODY, "stream": True}


async def make(rig: Rig, **wanted: Any) -> Answer:
    return await rig.control("POST", "/api/sessions", wanted)


async def test_a_session_comes_with_everything_a_harness_needs(start: Starter) -> None:
    rig = await start()
    answer = await make(rig, session_id="mine", task_id="t", harness="codex", model="m", metadata={"b": "2", "a": "1"})
    made = answer.json
    assert answer.status == 201
    assert made["session_id"] == "mine"
    root = f"{rig.base}/s/mine"
    assert made["base_urls"] == {"openai": f"{root}/v1", "anthropic": root, "gemini": root, "bedrock": root}
    env = made["env"]["openai"]
    assert (env["OPENAI_BASE_URL"], env["OPENAI_API_KEY"]) == (f"{root}/v1", made["api_key"])
    url, headers = env["OPENAI_BASE_URL"] + "/chat/completions", {"Authorization": f"Bearer {env['OPENAI_API_KEY']}"}

    assert (await rig.send("POST", url, json.dumps(BODY).encode(), headers)).status == 200
    session = rig.parts.repository.session("mine")
    assert (session.task_id, session.group_id, session.harness, session.model) == ("t", "t", "codex", "m")
    assert (session.metadata, session.origin, session.status) == ((("a", "1"), ("b", "2")), "api", SessionStatus.OPEN)
    assert len(rig.calls("mine")) == 1


async def test_a_session_needs_nothing_to_be_made(start: Starter) -> None:
    rig = await start()
    empty, bare = await rig.control("POST", "/api/sessions"), await make(rig)
    assert (empty.status, bare.status) == (201, 201)
    assert empty.json["session_id"] != bare.json["session_id"]
    assert rig.parts.repository.session(bare.json["session_id"]).group_id is None


async def test_the_key_works_where_keys_are_required(start: Starter) -> None:
    rig = await start(auth="required")
    admin = {"Authorization": f"Bearer {rig.parts.signer.admin_key}"}
    made = (await rig.control("POST", "/api/sessions", {}, admin)).json
    answer = await rig.ask(prefix="", headers={"Authorization": f"Bearer {made['api_key']}"})
    assert answer.status == 200
    assert len(rig.calls(made["session_id"])) == 1


async def test_making_a_session_twice_is_a_conflict_and_changes_nothing(start: Starter) -> None:
    rig = await start()
    await make(rig, session_id="mine", task_id="first")
    answer = await make(rig, session_id="mine", task_id="second")
    assert (answer.status, answer.error["type"]) == (409, "ConflictError")
    assert rig.parts.repository.session("mine").task_id == "first"


async def test_of_many_who_make_it_at_once_one_succeeds(start: Starter) -> None:
    rig = await start()
    answers = await asyncio.gather(*(make(rig, session_id="mine") for _ in range(8)))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 7


async def test_a_session_made_while_a_call_of_that_name_is_under_way(start: Starter) -> None:
    """The call keeps its place, and the next one does not take it."""
    rig = await start(always(compose("one"), faults=Faults(hold_after=1)))
    early = asyncio.create_task(rig.ask(prefix="/s/mine"))
    await rig.engine.until(lambda _: bool(rig.received))
    assert (await make(rig, session_id="mine", task_id="t")).status == 201
    rig.engine.release()
    assert (await early).status == 200
    assert (await rig.ask(prefix="/s/mine")).status == 200
    assert [captured.call.ordinal for captured in rig.calls("mine")] == [0, 1]
    assert rig.parts.repository.session("mine").task_id == "t"


BAD: dict[str, Any] = {
    "a name that is none": {"session_id": "a/b"},
    "an empty name": {"session_id": ""},
    "a key as a name": {"session_id": "sk-polar-x"},
    "a member nobody knows": {"sesion_id": "a"},
    "a number for a text": {"task_id": 5},
    "metadata that are no texts": {"metadata": {"a": 1}},
    "metadata that would be forced": {"metadata": {"polarproxy.sampling": '{"messages":[]}'}},
    "a list": [],
    "no JSON": b"{",
    "no text": b'{"task_id": "\xff"}',
}


@pytest.mark.parametrize("name", BAD)
async def test_what_cannot_be_a_session_is_refused(start: Starter, name: str) -> None:
    rig = await start()
    answer = await rig.control("POST", "/api/sessions", BAD[name])
    assert (answer.status, answer.error["type"]) == (400, "BadRequestError")
    assert rig.parts.repository.session_ids() == []


async def test_a_session_can_be_looked_at(start: Starter) -> None:
    rig = await start()
    await make(rig, session_id="mine", group_id="g")
    shown = (await rig.control("GET", "/api/sessions/mine")).json
    assert (shown["session_id"], shown["group_id"], shown["status"], shown["reward"]) == ("mine", "g", "open", None)


async def test_a_session_can_be_closed_and_says_how_it_ended(start: Starter) -> None:
    rig = await start()
    await make(rig, session_id="a")
    await make(rig, session_id="b")
    assert (await rig.control("POST", "/api/sessions/a/close")).json == {"session_id": "a", "status": "completed"}
    await rig.control("POST", "/api/sessions/b/close", {"status": "agent_error"})
    repository = rig.parts.repository
    assert repository.session("a").status is SessionStatus.COMPLETED
    assert repository.session("b").status is SessionStatus.AGENT_ERROR
    assert (await rig.control("POST", "/api/sessions/a/close", {"status": "sleeping"})).status == 400


async def test_a_reward_is_kept_with_its_components(start: Starter) -> None:
    rig = await start()
    await make(rig, session_id="mine")
    metrics = [{"name": "tests", "value": 1, "type": "Reward"}, {"name": "length", "value": 0.5, "type": "Metric"}]
    body = {"id": "x", "aggregate_reward_score": 0.75, "metrics_list": metrics}
    answer = await rig.control("POST", "/api/sessions/mine/rewards", body)
    assert (answer.status, answer.json) == (201, {"session_id": "mine", "reward": 0.75})
    expected = Reward(0.75, (RewardComponent("tests", 1.0), RewardComponent("length", 0.5, ComponentKind.METRIC)))
    assert rig.parts.repository.session("mine").reward == expected
    await rig.control("POST", "/api/sessions/mine/rewards", {"aggregate_score": 0})
    assert rig.parts.repository.session("mine").reward == Reward(0.0)


async def test_a_correction_is_appended_and_the_history_can_be_read(start: Starter) -> None:
    rig = await start()
    await make(rig, session_id="mine")
    turns = [{"turn": 1, "value": 0.5}, {"call_id": "c7", "value": -1}]
    await rig.control("POST", "/api/sessions/mine/rewards", {"aggregate_score": 1, "turn_rewards": turns})
    await rig.control("POST", "/api/sessions/mine/rewards", {"aggregate_score": 0.25, "aggregate_reward_score": 0.25})
    answer = await rig.control("GET", "/api/sessions/mine/rewards")
    assert [given["reward"]["value"] for given in answer.json] == [1.0, 0.25]
    assert answer.json[0]["reward"]["turns"] == [
        {"value": 0.5, "call_id": None, "turn": 1},
        {"value": -1.0, "call_id": "c7", "turn": None},
    ]
    assert rig.parts.repository.session("mine").reward == Reward(0.25)
    assert (await rig.control("GET", "/api/sessions/nobody/rewards")).status == 404


BAD_REWARDS: dict[str, bytes] = {
    "NaN": b'{"aggregate_reward_score": NaN}',
    "infinity": b'{"aggregate_reward_score": Infinity}',
    "a number too large": b'{"aggregate_reward_score": 1e999}',
    "no float32": b'{"aggregate_reward_score": 1e39}',
    "a part that is no float32": (
        b'{"aggregate_score": 1, "metrics_list": [{"name": "a", "value": 1e39, "type": "Penalty"}]}'
    ),
    "a turn that is no float32": b'{"aggregate_score": 1, "turn_rewards": [{"value": -1e39, "turn": 0}]}',
    "null": b'{"aggregate_reward_score": null}',
    "nothing": b"{}",
    "a text": b'{"aggregate_reward_score": "1"}',
    "a component that is NaN": b'{"aggregate_reward_score": 1, "metrics_list": [{"name": "a", "value": NaN}]}',
    "a component of no kind": b'{"aggregate_score": 1, "metrics_list": [{"name": "a", "value": 1, "type": "Fun"}]}',
    "a yes": b'{"aggregate_reward_score": true}',
    "a component that is a yes": b'{"aggregate_reward_score": 1, "metrics_list": [{"name": "a", "value": true}]}',
    "two totals": b'{"aggregate_reward_score": 1, "aggregate_score": 0.5}',
    "a turn of no name": b'{"aggregate_score": 1, "turn_rewards": [{"value": 1}]}',
    "a turn of two names": b'{"aggregate_score": 1, "turn_rewards": [{"value": 1, "turn": 0, "call_id": "c"}]}',
    "a turn before the first": b'{"aggregate_score": 1, "turn_rewards": [{"value": 1, "turn": -1}]}',
    "a turn that is NaN": b'{"aggregate_score": 1, "turn_rewards": [{"value": NaN, "turn": 0}]}',
    "one turn twice": b'{"aggregate_score": 1, "turn_rewards": [{"value": 1, "turn": 0}, {"value": 2, "turn": 0}]}',
    "a key that nobody knows": b'{"aggregate_score": 1, "metrics": []}',
    "a component without a value": b'{"aggregate_reward_score": 1, "metrics_list": [{"name": "a"}]}',
}


@pytest.mark.parametrize("name", BAD_REWARDS)
async def test_what_is_no_finite_number_is_no_reward(start: Starter, name: str) -> None:
    rig = await start()
    await make(rig, session_id="mine")
    assert (await rig.control("POST", "/api/sessions/mine/rewards", BAD_REWARDS[name])).status == 400
    assert rig.parts.repository.session("mine").reward is None


async def test_two_components_of_one_name_are_refused(start: Starter) -> None:
    rig = await start()
    await make(rig, session_id="mine")
    body = {"aggregate_score": 1, "metrics_list": [{"name": "a", "value": 1}, {"name": "a", "value": 2}]}
    assert (await rig.control("POST", "/api/sessions/mine/rewards", body)).status == 400
    assert rig.parts.repository.session("mine").reward is None


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("POST", "/close"), ("POST", "/rewards")])
async def test_a_session_that_is_not_there_is_not_found(start: Starter, method: str, path: str) -> None:
    rig = await start()
    body = {"aggregate_score": 1} if path == "/rewards" else None
    answer = await rig.control(method, f"/api/sessions/nobody{path}", body)
    assert (answer.status, answer.error["type"]) == (404, "NotFoundError")


async def test_a_call_is_stamped_with_the_version_that_sampled_it(start: Starter) -> None:
    rig = await start(policy_version=3)
    await rig.ask()
    assert (await rig.control("POST", "/api/policy", {"version": 5})).json == {"version": 5}
    await rig.ask()
    spans = [(one.call.policy_version_min, one.call.policy_version_max) for one in rig.calls()]
    assert spans == [(3, 3), (5, 5)]


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["whole", "stream"])
async def test_a_change_in_the_middle_of_a_call_shows_on_both_ends(start: Starter, body: dict[str, Any]) -> None:
    rig = await start(always(compose("one two"), faults=Faults(hold_after=1)))
    asking = asyncio.create_task(rig.ask(body))
    await rig.engine.until(lambda _: bool(rig.received))
    await rig.control("POST", "/api/policy", {"version": 7})
    rig.engine.release()
    await asking
    call = (await rig.call()).call
    assert (call.policy_version_min, call.policy_version_max) == (0, 7)


@pytest.mark.parametrize("version", [1, -1, 2**31, 10**40, "8", None, 2.5])
async def test_a_version_goes_forward_and_fits_into_a_row(start: Starter, version: Any) -> None:
    rig = await start(policy_version=2)
    assert (await rig.control("POST", "/api/policy", {"version": version})).status == 400
    assert rig.parts.recorder.policy_version == 2


async def test_counts_can_be_read(start: Starter) -> None:
    rig = await start()
    await rig.ask()
    await rig.ask(b"no JSON")
    await rig.send("GET", rig.base + "/v1/models")
    stats = (await rig.control("GET", "/api/stats")).json
    expected = {"calls": 2, "passed_through": 1, "unreadable": 1, "store_failures": 0, "not_stored": 0, "trouble": None}
    assert stats.items() >= expected.items()


ROUTES = [
    ("POST", "/api/sessions"),
    ("GET", "/api/sessions/s1"),
    ("POST", "/api/sessions/s1/close"),
    ("POST", "/api/sessions/s1/rewards"),
    ("GET", "/api/sessions/s1/rewards"),
    ("POST", "/api/policy"),
    ("GET", "/api/stats"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("auth", ["off", "required"])
async def test_a_session_key_opens_no_control_route(start: Starter, method: str, path: str, auth: str) -> None:
    rig = await start(auth=auth)
    key = rig.parts.signer.key("s1")
    for headers in ({"Authorization": f"Bearer {key}"}, {"x-api-key": key}, {"x-goog-api-key": key}):
        answer = await rig.control(method, path, {"session_id": "made", "version": 9}, headers)
        assert (answer.status, answer.error["type"]) == (403, "PermissionDeniedError")
    assert (await rig.control(method, f"{path}?key={key}")).status == 403
    assert rig.parts.repository.session_ids() == []
    assert rig.parts.recorder.policy_version == 0


@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("settings", [{"auth": "required"}, {"admin_key": "boss"}], ids=str)
async def test_with_keys_the_admin_key_is_asked_for(
    start: Starter, method: str, path: str, settings: dict[str, Any]
) -> None:
    rig = await start(**settings)
    admin = rig.parts.signer.admin_key
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": admin}):
        assert (await rig.control(method, path, {}, headers)).status == 401
    for headers in ({"Authorization": f"Bearer {admin}"}, {"x-api-key": admin}):
        assert (await rig.control(method, path, {}, headers)).status not in (401, 403)


async def test_control_routes_are_not_for_models(start: Starter) -> None:
    rig = await start()
    assert (await rig.send("POST", rig.base + "/s/s1/api/sessions")).status == 404
    assert (await rig.send("GET", rig.base + "/api/nothing")).status == 404
    assert (await rig.send("DELETE", rig.base + "/api/stats")).status in (404, 405)
    assert rig.engine.requests == []


async def test_a_store_that_does_not_answer_is_unavailable(start: Starter) -> None:
    rig = await start()
    with rig.parts.repository._writing.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE sessions RENAME TO elsewhere")
    answer = await make(rig)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "2")


async def test_a_restart_does_not_take_the_policy_version_back(start: Starter) -> None:
    rig = await start()
    await rig.control("POST", "/api/policy", {"version": 7})
    await rig.ask()
    again = await start()
    assert again.parts.recorder.policy_version == 7


@pytest.mark.parametrize(("origin", "status"), [("http://evil.example", 403), ("null", 403), ("own", 200)])
async def test_pages_of_other_sites_change_nothing(start: Starter, origin: str, status: int) -> None:
    rig = await start()
    headers = {"Origin": rig.base if origin == "own" else origin}
    assert (await rig.control("POST", "/api/policy", {"version": 1}, headers)).status == status
    admin = {"Authorization": f"Bearer {rig.parts.signer.admin_key}"}
    assert (await rig.control("POST", "/api/policy", {"version": 2}, headers | admin)).status == 200
