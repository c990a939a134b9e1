"""The credentials for the API server, and that none of them gets into a log."""

import base64
from pathlib import Path
from typing import Final

import pytest

from tests.support.clock import VirtualClock
from trainer_kai.errors import ConfigError
from trainer_kai.kube.auth.kubeconfig import KubeconfigEntry, SelectedContext
from trainer_kai.kube.auth.rest_config import (
    BasicAuth,
    ClientCertificate,
    RestConfig,
    ServerTrust,
    StaticToken,
    TokenFile,
)

SECRET: Final = "s3cret"


def put(file: Path, content: bytes | None) -> None:
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_bytes(content)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("one\n")
    return file


async def test_a_token_stays_as_it_is() -> None:
    """There is no other to try."""
    assert await StaticToken("t").authorization() == "Bearer t"
    assert await StaticToken("").authorization() == ""
    assert not await StaticToken("t").renew()


async def test_a_password_is_encoded() -> None:
    """Any characters but a colon in the name, and no line break in a long one."""
    header = await BasicAuth("jörg", "pass:" * 40).authorization()

    kind, _, pair = header.partition(" ")
    assert (kind, base64.b64decode(pair).decode()) == ("Basic", "jörg:" + "pass:" * 40)
    assert "\n" not in header
    assert not await BasicAuth("a", "b").renew()


async def test_a_file_is_read_again_each_minute(file: Path) -> None:
    """Not for every request, and not later than the kubelet's rotation allows."""
    clock = VirtualClock()
    token = TokenFile(file, clock)
    assert await token.authorization() == "Bearer one"

    put(file, b"two")
    await clock.advance(60)
    assert await token.authorization() == "Bearer one"
    await clock.advance(0.001)
    assert await token.authorization() == "Bearer two"


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff"])
async def test_a_file_that_is_being_replaced_is_read_later(
    file: Path, content: bytes | None
) -> None:
    """What we know is good for a while; as soon as there is a new one it is taken."""
    clock = VirtualClock()
    token = TokenFile(file, clock)
    await token.authorization()
    put(file, content)
    await clock.advance(61)
    assert await token.authorization() == "Bearer one"
    assert not await token.renew()

    put(file, b"two")
    assert await token.authorization() == "Bearer two"


async def test_after_a_401_a_file_is_read_at_once(file: Path) -> None:
    """It is worth another try only if it says something new."""
    token = TokenFile(file, VirtualClock())
    await token.authorization()

    assert not await token.renew()
    put(file, b"two")
    assert await token.renew()
    assert await token.authorization() == "Bearer two"


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file"), (b"\n", "the file is empty"), (b"\xff", "the file is not text")],
)
async def test_a_file_that_never_was_good(tmp_path: Path, content: bytes | None, why: str) -> None:
    """To begin with there must be a token; the file is named."""
    file = tmp_path / "token"
    put(file, content)

    with pytest.raises(ConfigError, match=f"^{file}: no token: {why}"):
        await TokenFile(file, VirtualClock()).authorization()


def test_no_secret_is_shown() -> None:
    """Whatever of this gets into a log or a traceback."""
    certificate = ClientCertificate(b"chain", SECRET.encode())
    user = KubeconfigEntry("u", Path("f"), {"token": SECRET})
    shown = [
        RestConfig(
            "https://h",
            StaticToken(SECRET),
            ServerTrust(),
            certificate,
            proxy=f"http://u:{SECRET}@p",
        ),
        RestConfig("https://h", BasicAuth("u", SECRET), ServerTrust(SECRET)),
        SelectedContext(user, user, user),
        certificate,
    ]

    for it in shown:
        assert SECRET not in f"{it!r} {it}"
    assert "https://h" in repr(shown[0])
