"""uv installs from wherever pip is configured to."""

from __future__ import annotations

from tests.clients.package_index import read, uv_options, uv_variables

LISTED = """\
:env:.find-links='/wheels'
:env:.cert='/certificates.crt'
global.extra-index-url='one two'
global.find-links='/others'
install.index-url='mirror'
freeze.timeout='10'
"""


def test_what_pip_is_told_is_told_to_uv_and_the_environment_decides() -> None:
    settings = read(LISTED)
    assert uv_options(settings) == [
        *("--default-index", "mirror"),
        *("--index", "one", "--index", "two"),
        *("--find-links", "/wheels"),
        *("--index-strategy", "unsafe-best-match"),
    ]
    assert uv_variables(settings) == {"SSL_CERT_FILE": "/certificates.crt"}


def test_without_an_index_none_is_asked() -> None:
    assert uv_options(read("global.no-index='true'\n"))[0] == "--no-index"
