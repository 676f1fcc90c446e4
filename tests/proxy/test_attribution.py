"""Which session a request belongs to: path, signed key, header, in this order; a closed session takes nothing."""

import json
from typing import Any

import pytest

from polarproxy.errors import BadKey
from polarproxy.proxy.address import locate, offered_keys
from polarproxy.proxy.keys import Signer, is_session_id
from tests.proxy.rig import BODY, CHAT, Rig, Starter

SIGNER = Signer(b"secret")
KEY = SIGNER.key("mine")
HEADER = "x-polarproxy-session"

CARRIERS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "Bearer": ({"authorization": f"Bearer {KEY}"}, {}),
    "bearer": ({"authorization": f"bearer   {KEY}"}, {}),
    "x-api-key": ({"x-api-key": KEY}, {}),
    "x-goog-api-key": ({"x-goog-api-key": KEY}, {}),
    "?key=": ({}, {"key": KEY}),
    "beside a key of the harness's own": ({"authorization": "Bearer dummy", "x-api-key": KEY}, {}),
    "in the query beside one": ({"authorization": "Bearer dummy"}, {"key": KEY}),
}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_key_names_its_session_wherever_it_stands(carrier: str) -> None:
    headers, query = CARRIERS[carrier]
    address = locate(CHAT, headers, query, SIGNER)
    assert (address.session_id, address.origin, address.signed, address.route) == ("mine", "key", True, CHAT)


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_key_opens_the_path_of_its_own_session_only(carrier: str) -> None:
    headers, query = CARRIERS[carrier]
    address = locate("/s/mine" + CHAT, headers, query, SIGNER)
    assert (address.session_id, address.origin, address.signed) == ("mine", "path", True)
    with pytest.raises(BadKey, match="that of session mine, the path names session other"):
        locate("/s/other" + CHAT, headers, query, SIGNER)


def test_a_key_may_stand_in_the_path() -> None:
    address = locate(f"/s/{KEY}{CHAT}", {}, {}, SIGNER)
    assert (address.session_id, address.signed, address.route) == ("mine", True, CHAT)
    assert address.path == "/s/mine" + CHAT


def test_a_signed_key_outranks_a_header_that_contradicts_it() -> None:
    address = locate(CHAT, {"x-api-key": KEY, HEADER: "other"}, {}, SIGNER)
    assert (address.session_id, address.origin) == ("mine", "key")


def test_a_path_outranks_a_header() -> None:
    assert locate("/s/a" + CHAT, {HEADER: "b"}, {}, SIGNER).session_id == "a"


@pytest.mark.parametrize(
    "header", ["x-claude-code-session-id", "x-session-id", "session-id", "session_id", "x-deepseek-harness-session-id"]
)
def test_a_harnesss_own_header_names_a_session(header: str) -> None:
    address = locate(CHAT, {header: "0b6c-1"}, {}, SIGNER)
    assert (address.session_id, address.origin, address.signed) == ("0b6c-1", "harness", False)
    ours = locate(CHAT, {header: "0b6c-1", HEADER: "ours"}, {}, SIGNER)
    assert (ours.session_id, ours.origin) == ("ours", "header")


def test_a_sub_agent_that_names_its_parents_session_belongs_to_it() -> None:
    headers = {"x-session-id": "ses_child", "x-parent-session-id": "ses_parent"}
    assert locate(CHAT, headers, {}, SIGNER).session_id == "ses_parent"


def test_a_harnesss_header_that_cannot_name_a_session_is_passed_over() -> None:
    assert locate(CHAT, {"x-session-id": "a b/c"}, {}, SIGNER).origin == "root"


def test_a_key_may_be_the_access_key_of_an_aws_signature() -> None:
    signed = (
        f"AWS4-HMAC-SHA256 Credential={KEY}/20261130/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=0"
    )
    address = locate("/model/m/converse", {"authorization": signed}, {}, SIGNER)
    assert (address.session_id, address.origin, address.signed) == ("mine", "key", True)


def test_a_header_names_a_session() -> None:
    address = locate(CHAT, {HEADER: "b", "authorization": "Bearer own"}, {}, SIGNER)
    assert (address.session_id, address.origin, address.signed) == ("b", "header", False)


def test_without_a_name_there_is_none_yet() -> None:
    address = locate(CHAT, {"authorization": "Bearer own"}, {}, SIGNER)
    assert (address.session_id, address.origin, address.signed) == (None, "root", False)


WRONG = {
    "another secret": Signer(b"other").key("mine"),
    "another session": KEY.replace("mine", "yours"),
    "a shorter signature": KEY[:-1],
    "no signature": "sk-polar-mine",
    "nothing": "sk-polar-",
    "the admin key": SIGNER.admin_key,
}


@pytest.mark.parametrize("key", WRONG.values(), ids=WRONG)
def test_a_key_with_a_wrong_signature_is_refused(key: str) -> None:
    for headers, query in (({"x-api-key": key}, {}), ({"authorization": f"Bearer {key}"}, {}), ({}, {"key": key})):
        with pytest.raises(BadKey, match="not made by this proxy"):
            locate(CHAT, headers, query, SIGNER)
    with pytest.raises(BadKey):
        locate(f"/s/{key}{CHAT}", {}, {}, SIGNER)


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "9", "admin", "a" * 128, "a-" + "0" * 32])
def test_every_name_has_a_key_of_its_own(name: str) -> None:
    assert is_session_id(name)
    assert SIGNER.session_of(SIGNER.key(name)) == name
    assert not SIGNER.is_admin(SIGNER.key(name))


def test_the_keys_of_a_request_are_found_in_every_place() -> None:
    headers = {"authorization": "Bearer a", "x-api-key": "b", "x-goog-api-key": "c"}
    assert offered_keys(headers, {"key": "d"}) == ["a", "b", "c", "d"]
    assert offered_keys({"authorization": "Basic a"}, {}) == []
    assert offered_keys({"authorization": "Bearer "}, {"key": ""}) == []


# Through the proxy


async def sessions_of(rig: Rig) -> dict[str, str]:
    """Every stored session with how it came to be."""
    return {entry.session.session_id: entry.session.origin for entry in rig.parts.repository.sessions()}


async def test_each_way_ends_in_its_session(start: Starter) -> None:
    rig = await start()
    key = rig.parts.signer.key
    await rig.ask(prefix="/s/by-path")
    await rig.ask(prefix="", headers={"Authorization": f"Bearer {key('by-key')}"})
    await rig.ask(prefix="", headers={HEADER: "by-header"})
    await rig.send("POST", f"{rig.base}{CHAT}?key={key('by-query')}", json.dumps(BODY).encode())
    assert await sessions_of(rig) == {"by-path": "path", "by-key": "key", "by-header": "header", "by-query": "key"}
    for session in await sessions_of(rig):
        (captured,) = await rig.recorded(1, session)
        assert captured.call.session_id == session


async def test_a_wrong_key_is_refused_in_the_dialects_words(start: Starter) -> None:
    rig = await start()
    answer = await rig.ask(prefix="", headers={"x-api-key": WRONG["another secret"]})
    assert (answer.status, answer.error["type"], answer.error["code"]) == (401, "AuthenticationError", 401)
    crossed = await rig.ask(prefix="/s/other", headers={"x-api-key": rig.parts.signer.key("mine")})
    assert (crossed.status, crossed.error["type"]) == (401, "AuthenticationError")
    assert rig.received == []
    assert await sessions_of(rig) == {}


async def test_keys_outlive_a_restart(start: Starter) -> None:
    first = await start()
    key = first.parts.signer.key("s1")
    second = await start()
    assert (await second.ask(headers={"x-api-key": key})).status == 200


async def test_ordinals_follow_arrival(start: Starter) -> None:
    rig = await start()
    for number in range(3):
        await rig.ask({**BODY, "user": str(number)})
    assert [captured.call.ordinal for captured in rig.calls()] == [0, 1, 2]
    assert [json.loads(captured.call.request_body)["user"] for captured in rig.calls()] == ["0", "1", "2"]
    again = await start()
    await again.ask()
    assert [captured.call.ordinal for captured in again.calls()] == [0, 1, 2, 3]


@pytest.mark.parametrize("status", ["completed", "timeout", "infra_error"])
async def test_a_closed_session_takes_no_more_calls(start: Starter, status: str) -> None:
    rig = await start()
    await rig.ask()
    await rig.control("POST", "/api/sessions/s1/close", {"status": status})
    answer = await rig.ask()
    assert (answer.status, answer.error["type"]) == (409, "ConflictError")
    assert status in answer.error["message"]
    again = await start()
    assert (await again.ask()).status == 409
    assert len(rig.received) + len(again.received) == 1


async def test_a_session_opened_again_goes_on(start: Starter) -> None:
    rig = await start()
    await rig.ask()
    await rig.control("POST", "/api/sessions/s1/close")
    await rig.control("POST", "/api/sessions/s1/close", {"status": "open"})
    assert (await rig.ask()).status == 200
    assert [captured.call.ordinal for captured in rig.calls()] == [0, 1]


# Who may come in


async def test_with_auth_required_only_a_signed_key_opens(start: Starter) -> None:
    rig = await start(auth="required")
    key = rig.parts.signer.key("s1")
    refused: list[dict[str, Any]] = [
        {"prefix": "/s/s1"},
        {"prefix": ""},
        {"prefix": "", "headers": {HEADER: "s1"}},
        {"prefix": "", "headers": {"Authorization": "Bearer own"}},
        {"prefix": "/s/s2", "headers": {"x-api-key": key}},
        {"prefix": "", "headers": {"x-api-key": rig.parts.signer.admin_key}},
    ]
    for request in refused:
        answer = await rig.ask(**request)
        assert (answer.status, answer.error["type"]) == (401, "AuthenticationError")
    assert (await rig.send("GET", rig.base + "/v1/models")).status == 401
    assert not any(request.path == "/v1/models" for request in rig.engine.requests)
    assert rig.received == []
    for prefix in ("", "/s/s1", f"/s/{key}"):
        headers = {} if key in prefix else {"Authorization": f"Bearer {key}"}
        assert (await rig.ask(prefix=prefix, headers=headers)).status == 200
    assert (await rig.send("GET", rig.base + "/v1/models", headers={"x-api-key": key})).status == 200
    assert len(rig.calls()) == 3


@pytest.mark.parametrize(
    ("host", "auth", "required"),
    [
        ("127.0.0.1", "auto", False),
        ("localhost", "auto", False),
        ("0.0.0.0", "auto", True),
        ("0.0.0.0", "off", False),
        ("127.0.0.1", "required", True),
    ],
)
async def test_auth_is_required_as_soon_as_others_can_reach_the_proxy(
    start: Starter, host: str, auth: str, required: bool
) -> None:
    rig = await start(host=host, auth=auth)
    base = rig.base.replace("0.0.0.0", "127.0.0.1")
    answer = await rig.send("POST", base + "/s/s1" + CHAT, json.dumps(BODY).encode())
    assert answer.status == (401 if required else 200)
    assert (await rig.send("GET", base + "/api/stats")).status == (401 if required else 200)
    assert (await rig.send("GET", base + "/healthz")).status == 200
