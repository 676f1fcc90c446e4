"""Settings that cannot work are refused when they are made, by name and with the value."""

from math import inf, nan
from typing import Any

import pytest

from polarproxy.errors import BadSettings
from polarproxy.settings import LOOPBACK_HOSTS, AuthMode, Settings, read_model_map


@pytest.mark.parametrize("upstream", ["", "127.0.0.1:8000", "ftp://engine", "unix:/engine"])
def test_the_upstream_is_a_url(upstream: str) -> None:
    with pytest.raises(BadSettings, match=r"upstream must be an http:// or https:// URL, not"):
        Settings(upstream=upstream)


@pytest.mark.parametrize("named", ["http://a,http://b/v1/", " http://a , http://b "])
def test_several_upstreams_stand_between_commas(named: str) -> None:
    assert Settings(upstream=named).upstreams == ("http://a", "http://b")


@pytest.mark.parametrize("named", ["http://a,", "http://a,b", "http://a,http://a/v1"])
def test_each_of_several_upstreams_is_a_url_and_another_one(named: str) -> None:
    with pytest.raises(BadSettings, match="upstream"):
        Settings(upstream=named)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_is_a_port(port: int) -> None:
    with pytest.raises(BadSettings, match=rf"port must lie in 0\.\.65535, not {port}"):
        Settings(port=port)


@pytest.mark.parametrize("port", [0, 65535])
def test_zero_takes_any_free_port(port: int) -> None:
    assert Settings(port=port).port == port


@pytest.mark.parametrize(
    "name", ["connect_timeout", "read_timeout", "health_interval", "store_timeout", "queue_size", "max_body_mb"]
)
@pytest.mark.parametrize("value", [0, -1])
def test_limits_are_positive(name: str, value: int) -> None:
    values: dict[str, Any] = {name: value}
    with pytest.raises(BadSettings, match=f"{name} must be greater than 0, not {value}"):
        Settings(**values)


@pytest.mark.parametrize("host", LOOPBACK_HOSTS)
def test_nobody_needs_a_key_on_loopback(host: str) -> None:
    assert not Settings(host=host).auth_required


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org"])
def test_everybody_needs_a_key_elsewhere(host: str) -> None:
    assert Settings(host=host).auth_required


@pytest.mark.parametrize(("auth", "host", "required"), [("required", "127.0.0.1", True), ("off", "0.0.0.0", False)])
def test_auth_can_be_said_outright(auth: AuthMode, host: str, required: bool) -> None:
    assert Settings(auth=auth, host=host).auth_required is required


@pytest.mark.parametrize("text", ["fake", "a=", "=b", "a=b,c", "a=b,,c=d"])
def test_a_model_map_is_pairs(text: str) -> None:
    with pytest.raises(BadSettings, match="model_map must be asked=served pairs"):
        Settings(model_map=text)


def test_a_model_map_is_read() -> None:
    assert read_model_map(" gpt-x = small , *=large") == {"gpt-x": "small", "*": "large"}
    assert read_model_map("") == read_model_map("off") == {}


def test_silence_is_not_negative() -> None:
    with pytest.raises(BadSettings, match="keepalive must be 0 or more seconds"):
        Settings(keepalive=-1)


@pytest.mark.parametrize(
    "upstream", ["http://a:xx", "http://a b:1", "http://a:1?x=1", "http://a:1#f", "http://", "http://a:99999"]
)
def test_an_upstream_is_a_base_url(upstream: str) -> None:
    with pytest.raises(BadSettings, match="upstream must be"):
        Settings(upstream=upstream)


@pytest.mark.parametrize("name", ["health_interval", "store_timeout", "keepalive"])
@pytest.mark.parametrize("value", [nan, inf])
def test_times_are_numbers(name: str, value: float) -> None:
    with pytest.raises(BadSettings, match=f"{name} must be"):
        Settings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), [("admin_key", "a\nb"), ("upstream_key", "a\nb"), ("upstream_key", "ключ")])
def test_a_key_fits_into_a_header(name: str, value: str) -> None:
    with pytest.raises(BadSettings, match=f"{name} must be one line"):
        Settings(**{name: value})  # type: ignore[arg-type]


def test_a_spool_has_a_name() -> None:
    with pytest.raises(BadSettings, match="spool must name a folder"):
        Settings(spool="")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"delegate_requests": "q", "rollouts": 1}, "needs both queues"),
        ({"delegate_responses": "q", "rollouts": 1}, "needs both queues"),
        ({"delegate_requests": "q", "delegate_responses": "r"}, "set rollouts"),
    ],
)
def test_a_delegate_has_two_queues_and_runs_rollouts(given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        Settings(**given)
    assert Settings(delegate_requests="q", delegate_responses="r", rollouts=1).rollouts == 1
