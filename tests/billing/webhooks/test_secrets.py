"""Secrets: sealed, shown once, and what is signed with them."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from billing.webhooks.endpoint import SecretUnreadable
from billing.webhooks.secret_box import SecretBox, mint, signature
from tests.billing.conftest import PEPPER
from tests.billing.webhooks.conftest import Hooks


def test_a_secret_is_sealed_for_its_endpoint_and_under_its_pepper() -> None:
    box, secret = SecretBox(PEPPER), mint()
    sealed = box.seal("whe_1", secret)
    assert box.open("whe_1", sealed) == secret and secret.encode() not in sealed
    assert sealed != box.seal("whe_1", secret)
    for other, endpoint in ((box, "whe_2"), (SecretBox(b"another pepper, of another server"), "whe_1")):
        with pytest.raises(SecretUnreadable, match=endpoint):
            other.open(endpoint, sealed)


def test_the_signature_is_that_of_the_released_library() -> None:
    """`standardwebhooks` 1.1.0 for Python signed this: `Webhook(secret).sign(id, moment, body)`."""
    made = signature(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp=1614265330,
        body=b'{"test": 2432232314}',
    )
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_no_secret_is_in_a_list_a_repr_or_the_audit_log(hooks: Hooks) -> None:
    endpoint, secret = await hooks.webhooks.add(f"{hooks.receiver.url}/services/hunter1/?token=hunter2")
    _, newer = await hooks.webhooks.rotate_secret(endpoint.id)
    rows = await hooks.books.database.read(
        lambda c: [
            str(c.execute(text(f"SELECT * FROM {t}")).all()) for t in ("audit_log", "webhook_endpoints")
        ]
    )
    shown = rows[0] + repr(await hooks.webhooks.listed())
    assert "webhook.add" in rows[0] and "webhook.rotate_secret" in rows[0] and "hunter" not in rows[0]
    assert hooks.receiver.url in rows[0]
    for one in (secret, newer):
        assert one not in shown and one.removeprefix("whsec_") not in "".join(rows)


async def test_under_another_pepper_nothing_is_sent_until_the_secret_is_rotated(hooks: Hooks) -> None:
    endpoint, _ = await hooks.webhooks.add(f"{hooks.receiver.url}/hook")
    await hooks.webhooks.test(endpoint.id)
    dispatcher = hooks.dispatcher()
    dispatcher._box = SecretBox(b"another pepper, of another server")
    await dispatcher.once()
    (found,) = await hooks.webhooks.deliveries()
    assert found.state == "waiting" and "another pepper" in str(found.last_error)
    assert hooks.receiver.got == []
