"""The proxy's control routes as the rollout service asks them."""

import pytest

from polarproxy.errors import ProxyRefused
from polarproxy.rollout.service.gateway import Gateway
from tests.redirects import redirecting


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_key_goes_nowhere_but_to_the_proxy(status: int) -> None:
    with redirecting(status) as there:
        async with Gateway(there.url, "open sesame") as gateway:
            with pytest.raises(ProxyRefused, match=f"GET /api/generation: {status}"):
                await gateway.paused()
            with pytest.raises(ProxyRefused, match=str(status)):
                await gateway.open_session("s", {})
    assert (len(there.asked), there.followed) == (2, False)
