from __future__ import annotations

import gzip
import socket
import threading
import zlib
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx_pipeline.sources.web.addresses import AddressRules
from ctx_pipeline.sources.web.fetch import (
    FetchCode,
    FetchProblem,
    FetchRules,
    check_url,
    fetch,
    permitted_addresses,
    resolve_host,
)
from tests.sources.web.web_server import WebServer, response, serving

PUBLIC = AddressRules()


@pytest.fixture(scope="module")
def server():
    with serving() as running:
        yield running


@pytest.fixture(autouse=True)
def _forget(server: WebServer):
    server.scripts.clear()
    server.requests.clear()


def get(
    server: WebServer, url: str, *, resolve=None, addresses: AddressRules | None = None, **limits
):
    rules = FetchRules(addresses=addresses or server.rules, **limits)
    return fetch(url, rules, resolve=resolve or (lambda host, port: ["127.0.0.1"]))


def refused(server: WebServer, url: str, **settings) -> FetchProblem:
    with pytest.raises(FetchProblem) as caught:
        get(server, url, **settings)
    return caught.value


# --- addresses of the network


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.254",
        "127.0.0.1",
        "127.255.255.255", "169.254.0.1", "169.254.169.254", "172.16.0.1", "172.31.255.255",
        "192.0.0.1",
        "192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1",
        "255.255.255.255",
        "100.100.100.200", "168.63.129.16", "192.0.0.192",
        "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:8.8.8.8",
        "::ffff:0:8.8.8.8",
        "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1", "2001::1",
        "2001:0:4136:e378::1",
        "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1",
        "3fff::1",
        "2620:4f:8000::1", "4000::1", "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254",
        "fd20:ce::254", "fe80::1",
        "fe80::1%eth0", "2606:4700::1%eth0", "fec0::1", "ff02::1", "ff0e::1",
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_refused(address):
    assert PUBLIC.refusal(ip_address(address)) is not None


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
        "192.167.255.255", "192.169.0.0",
        "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111",
        "2001:4860:4860::8888", "240e::1",
        "2a00:1450::1",
    ],
)  # fmt: skip
def test_a_public_address_is_asked(address):
    assert PUBLIC.refusal(ip_address(address)) is None


@pytest.mark.parametrize(
    "address",
    ["10.0.0.1", "127.0.0.1", "192.168.1.1", "172.20.0.1", "100.64.0.1", "::1", "fd12::1"],
)
def test_private_addresses_are_asked_where_the_source_allows_them(address):
    assert AddressRules(allow_private=True).refusal(ip_address(address)) is None


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254", "169.254.170.2", "169.254.1.1", "100.100.100.200", "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254", "fd20:ce::254", "0.0.0.0", "224.0.0.1", "255.255.255.255", "::",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1", "2002:a00:1::", "2001:0:a00:1::", "fe80::1", "ff02::1",
    ],
)  # fmt: skip
def test_some_addresses_are_refused_whatever_the_source_allows(address):
    rules = AddressRules(allow_private=True, allowed=(ip_network("0.0.0.0/0"), ip_network("::/0")))
    assert rules.refusal(ip_address(address)) is not None


@given(st.ip_addresses())
def test_no_address_within_this_machine_or_its_network_is_ever_public(address):
    if not address.is_global or address.is_multicast:
        assert PUBLIC.refusal(address) is not None


# --- addresses of pages


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", FetchCode.BAD_URL),
        ("   ", FetchCode.BAD_URL),
        ("example.org/page", FetchCode.REFUSED_SCHEME),
        ("//example.org/page", FetchCode.REFUSED_SCHEME),
        ("ftp://example.org/", FetchCode.REFUSED_SCHEME),
        ("file:///etc/passwd", FetchCode.REFUSED_SCHEME),
        ("gopher://example.org/", FetchCode.REFUSED_SCHEME),
        ("javascript:alert(1)", FetchCode.REFUSED_SCHEME),
        ("data:text/html,hi", FetchCode.REFUSED_SCHEME),
        ("http:example.org", FetchCode.BAD_URL),
        ("http:///path", FetchCode.BAD_URL),
        ("http://", FetchCode.BAD_URL),
        ("http://ex ample.org/", FetchCode.BAD_URL),
        ("http://example.org/a b", FetchCode.BAD_URL),
        ("http://example.org\\@127.0.0.1/", FetchCode.BAD_URL),
        ("http:\\\\example.org/", FetchCode.BAD_URL),
        ("http://example.org/\x00", FetchCode.BAD_URL),
        ("http://example.org/\r\nHost: x", FetchCode.BAD_URL),
        ("http://exa\tmple.org/", FetchCode.BAD_URL),
        ("http://example.org/\u202egnp.exe", FetchCode.BAD_URL),
        ("http://example.org/" + "x" * 3_000, FetchCode.BAD_URL),
        ("http://user@example.org/", FetchCode.USERINFO),
        ("http://user:secret@example.org/", FetchCode.USERINFO),
        ("http://@example.org/", FetchCode.USERINFO),
        ("http://:@example.org/", FetchCode.USERINFO),
        ("http://example.org@127.0.0.1/", FetchCode.USERINFO),
        ("http://example.org:0/", FetchCode.REFUSED_PORT),
        ("http://example.org:22/", FetchCode.REFUSED_PORT),
        ("http://example.org:6379/", FetchCode.REFUSED_PORT),
        ("https://example.org:8080/", FetchCode.REFUSED_PORT),
        ("http://example.org:99999/", FetchCode.REFUSED_PORT),
        ("http://example.org:-1/", FetchCode.REFUSED_PORT),
        ("http://example.org:http/", FetchCode.BAD_URL),
        ("http://[::1", FetchCode.BAD_URL),
        ("http://[nonsense]/", FetchCode.BAD_URL),
        ("http://[fe80::1%25eth0]/", FetchCode.BAD_URL),
        ("http://%31%32%37.0.0.1/", FetchCode.BAD_URL),
        ("http://127.1/", FetchCode.BAD_URL),
        ("http://127.0.1/", FetchCode.BAD_URL),
        ("http://2130706433/", FetchCode.BAD_URL),
        ("http://0x7f000001/", FetchCode.BAD_URL),
        ("http://0x7f.0.0.1/", FetchCode.BAD_URL),
        ("http://0177.0.0.1/", FetchCode.BAD_URL),
        ("http://127.0.0.0x1/", FetchCode.BAD_URL),
        ("http://1.2.3.4.5/", FetchCode.BAD_URL),
        ("http://256.1.1.1/", FetchCode.BAD_URL),
        ("http://１２７.０.０.１/", FetchCode.BAD_URL),
        ("http://a..example.org/", FetchCode.BAD_URL),
        ("http://.example.org/", FetchCode.BAD_URL),
        ("http://exa$mple.org/", FetchCode.BAD_URL),
        (f"http://{'a' * 64}.org/", FetchCode.BAD_URL),
        ("http://127.0.0.1/", FetchCode.REFUSED_ADDRESS),
        ("http://127.0.0.1./", FetchCode.REFUSED_ADDRESS),
        ("http://127。0。0。1/", FetchCode.REFUSED_ADDRESS),
        ("http://[::1]/", FetchCode.REFUSED_ADDRESS),
        ("http://[::ffff:127.0.0.1]/", FetchCode.REFUSED_ADDRESS),
        ("http://[::ffff:7f00:1]/", FetchCode.REFUSED_ADDRESS),
        ("http://10.1.2.3/", FetchCode.REFUSED_ADDRESS),
        ("https://192.168.0.1/", FetchCode.REFUSED_ADDRESS),
        ("http://169.254.169.254/latest/meta-data/", FetchCode.REFUSED_ADDRESS),
        ("http://[64:ff9b::a9fe:a9fe]/", FetchCode.REFUSED_ADDRESS),
        ("http://[2002:a9fe:a9fe::]/", FetchCode.REFUSED_ADDRESS),
        ("http://metadata.google.internal/", FetchCode.REFUSED_HOST),
        ("http://METADATA.google.internal./", FetchCode.REFUSED_HOST),
        ("http://metadata/", FetchCode.REFUSED_HOST),
    ],
)
def test_an_address_that_may_not_be_asked_is_refused_before_anything_is_resolved(url, code):
    with pytest.raises(FetchProblem) as caught:
        fetch(url, resolve=lambda host, port: pytest.fail("resolved"))
    assert caught.value.code is code
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://example.org", "http://example.org"),
        ("HTTPS://Example.ORG:443/A?b=1#part", "https://example.org/A?b=1"),
        ("http://example.org:80/", "http://example.org/"),
        ("http://example.org:443/", "http://example.org:443/"),
        (
            "http://例子.测试/路径?问=答",
            "http://xn--fsqu00a.xn--0zwm56d/%E8%B7%AF%E5%BE%84?%E9%97%AE=%E7%AD%94",
        ),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
        ("https://[2606:4700::1111]/", "https://[2606:4700::1111]/"),
        (
            "http://example.org/a?next=http://user@127.0.0.1/",
            "http://example.org/a?next=http://user@127.0.0.1/",
        ),
        ("http://a_b.example.org/", "http://a_b.example.org/"),
    ],
)
def test_a_plain_address_is_kept(url, kept):
    assert str(check_url(url, PUBLIC)) == kept


def test_private_ports_are_open_where_the_source_allows_them_and_metadata_hosts_stay_closed():
    rules = AddressRules(allow_private=True)
    assert check_url("http://wiki.corp:8080/", rules).port == 8080
    for url in (
        "http://metadata.google.internal:8080/",
        "http://169.254.169.254:80/",
        "http://u:p@wiki.corp/",
    ):
        with pytest.raises(FetchProblem):
            check_url(url, rules)


@given(st.text(max_size=60) | st.text(max_size=40).map("http://".__add__))
def test_any_text_is_an_address_or_a_problem(url):
    try:
        scheme = check_url(url, PUBLIC).scheme
    except FetchProblem as problem:
        scheme = problem.code
    assert scheme in ("http", "https", *FetchCode)


# --- names


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (["127.0.0.1"], FetchCode.REFUSED_ADDRESS),
        (["8.8.8.8", "10.0.0.1"], FetchCode.REFUSED_ADDRESS),
        (["::ffff:127.0.0.1"], FetchCode.REFUSED_ADDRESS),
        (["fe80::1%eth0"], FetchCode.REFUSED_ADDRESS),
        ([], FetchCode.NOT_RESOLVED),
        (["nonsense"], FetchCode.NOT_RESOLVED),
        (OSError("no such host"), FetchCode.NOT_RESOLVED),
        (UnicodeError("label too long"), FetchCode.NOT_RESOLVED),
    ],
)
def test_a_name_is_refused_for_any_of_its_addresses(answers, code):
    def resolve(host: str, port: int) -> list[str]:
        if isinstance(answers, Exception):
            raise answers
        return answers

    with pytest.raises(FetchProblem) as caught:
        permitted_addresses("example.org", 80, PUBLIC, resolve, 5)
    assert caught.value.code is code


def test_a_name_that_takes_too_long_to_resolve_is_given_up():
    gate = threading.Event()

    def resolve(host: str, port: int) -> list[str]:
        gate.wait(30)
        return ["8.8.8.8"]

    with pytest.raises(FetchProblem) as caught:
        permitted_addresses("example.org", 80, PUBLIC, resolve, 0.05)
    gate.set()
    assert caught.value.code is FetchCode.TIMEOUT


def test_the_systems_resolver_gives_loopback_for_localhost():
    assert "127.0.0.1" in resolve_host("localhost", 80)
    with pytest.raises(FetchProblem) as caught:
        fetch("http://localhost/")
    assert caught.value.code is FetchCode.REFUSED_ADDRESS


def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_checked(server):
    answers = iter([["127.0.0.1"], ["10.0.0.1"]])
    server.page("/", b"<p>hello")
    fetched = get(
        server, server.url(host="rebinding.example"), resolve=lambda host, port: next(answers)
    )
    assert fetched.content == b"<p>hello"
    assert next(answers) == ["10.0.0.1"]
    assert f"Host: rebinding.example:{server.port}".encode() in server.requests[0]


def test_the_next_address_is_tried_where_the_first_does_not_answer(server):
    server.page("/", b"<p>hello")
    rules = AddressRules(
        allowed=(ip_network("127.0.0.0/8"), ip_network("::1/128")), ports=frozenset({server.port})
    )
    fetched = get(
        server,
        server.url(host="two.example"),
        resolve=lambda *_: ["::1", "127.0.0.1"],
        addresses=rules,
    )
    assert fetched.content == b"<p>hello"


# --- requests and answers


def test_a_page_is_fetched_with_its_type_character_set_and_time(server):
    url = server.page(
        "/p",
        "退款".encode("gbk"),
        "Text/HTML; Charset=GBK",
        last_modified="Thu, 01 Jan 2026 00:00:00 GMT",
    )
    fetched = get(server, url + "#part")
    assert (fetched.url, fetched.content_type, fetched.charset) == (url, "text/html", "GBK")
    assert fetched.content.decode("gbk") == "退款"
    assert fetched.modified is not None
    assert fetched.modified.isoformat() == "2026-01-01T00:00:00+00:00"


def test_nothing_that_names_the_asker_is_sent(server, monkeypatch, tmp_path):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://10.9.8.7:3128")
    (tmp_path / ".netrc").write_text(
        "machine 127.0.0.1 login ana password hunter2\n", encoding="utf-8"
    )
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    server.scripts["/a"] = response(b"", status=302, location="/b", set_cookie="id=42; Path=/")
    server.page("/b", b"<p>hello")
    get(server, server.url("/a"))
    assert len(server.requests) == 2
    for head in server.requests:
        names = {line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:] if line}
        assert names == {b"host", b"user-agent", b"accept", b"accept-encoding", b"connection"}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed(server, status):
    server.redirect("/a", "b?x=1", status)
    server.page("/b?x=1", b"<p>hello")
    assert get(server, server.url("/a")).url == server.url("/b?x=1")


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("http://169.254.169.254/latest/", FetchCode.REFUSED_ADDRESS),
        ("http://10.0.0.1/", FetchCode.REFUSED_ADDRESS),
        ("http://[::1]/", FetchCode.REFUSED_ADDRESS),
        ("//192.168.0.1/", FetchCode.REFUSED_ADDRESS),
        ("http://2130706433/", FetchCode.BAD_URL),
        ("http://metadata.google.internal/", FetchCode.REFUSED_HOST),
        ("http://127.0.0.1:22/", FetchCode.REFUSED_PORT),
        ("file:///etc/passwd", FetchCode.REFUSED_SCHEME),
        ("ftp://example.org/", FetchCode.REFUSED_SCHEME),
        ("http://user:secret@127.0.0.1/", FetchCode.USERINFO),
        ("http://[", FetchCode.BAD_URL),
        ("", FetchCode.BAD_REDIRECT),
    ],
)
def test_each_redirect_is_checked_like_the_first_address(server, target, code):
    rules = AddressRules(allowed=(ip_network("127.0.0.1/32"),), ports=frozenset({80, server.port}))
    problem = refused(server, server.redirect("/a", target), addresses=rules)
    assert problem.code is code
    assert "secret" not in problem.message


def test_a_redirect_to_a_name_is_resolved_and_checked(server):
    rules = AddressRules(allowed=(ip_network("127.0.0.1/32"),), ports=frozenset({80, server.port}))
    answers = {"start.example": ["127.0.0.1"], "inside.example": ["192.168.0.10"]}
    server.redirect("/a", f"http://inside.example:{server.port}/")
    problem = refused(
        server,
        server.url("/a", "start.example"),
        resolve=lambda host, port: answers[host],
        addresses=rules,
    )
    assert problem.code is FetchCode.REFUSED_ADDRESS
    assert len(server.requests) == 1


def test_five_redirects_are_followed_and_not_six(server):
    for number in range(7):
        server.redirect(f"/{number}", f"/{number + 1}")
    server.page("/5", b"<p>hello")
    assert get(server, server.url("/0")).content == b"<p>hello"
    server.redirect("/5", "/6")
    server.page("/6", b"<p>hello")
    assert refused(server, server.url("/0")).code is FetchCode.TOO_MANY_REDIRECTS
    server.redirect("/loop", "/loop")
    assert refused(server, server.url("/loop")).code is FetchCode.TOO_MANY_REDIRECTS


def test_https_does_not_lead_back_to_http():
    from ctx_pipeline.sources.web.fetch import _next_url

    start = check_url("https://example.org/", PUBLIC)
    with pytest.raises(FetchProblem) as caught:
        _next_url(start, "http://example.org/", PUBLIC)
    assert caught.value.code is FetchCode.INSECURE_REDIRECT
    assert str(_next_url(start, "/b", PUBLIC)) == "https://example.org/b"


@pytest.mark.parametrize("status", [201, 204, 206, 304, 400, 401, 403, 404, 429, 500, 503])
def test_another_status_than_200_is_no_page(server, status):
    server.scripts["/"] = response(b"<p>hello", status=status)
    problem = refused(server, server.url())
    assert (problem.code, str(status) in problem.message) == (FetchCode.HTTP_STATUS, True)


@pytest.mark.parametrize(
    "content_type", ["text/html", "TEXT/HTML;charset=utf-8", "text/plain", "application/pdf"]
)
def test_pages_texts_and_pdf_are_read(server, content_type):
    assert get(server, server.page("/", b"x", content_type)).content == b"x"


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "application/json",
        "text/javascript",
        "image/png",
        "application/octet-stream",
        "text/html, image/png",
    ],
)
def test_other_types_are_refused(server, content_type):
    server.scripts["/"] = response(b"x", content_type)
    assert refused(server, server.url()).code is FetchCode.CONTENT_TYPE


# --- bounds


def test_a_body_above_the_limit_is_refused_by_its_length_and_by_its_bytes(server):
    assert get(server, server.page("/", b"x" * 100), max_bytes=100).content == b"x" * 100
    assert refused(server, server.page("/", b"x" * 101), max_bytes=100).code is FetchCode.TOO_LARGE
    endless = response(b"x" * 5_000, content_length="")
    server.scripts["/"] = endless
    assert refused(server, server.url(), max_bytes=100).code is FetchCode.TOO_LARGE


@pytest.mark.parametrize("name", ["gzip", "x-gzip", "GZIP", "identity, gzip"])
def test_a_packed_body_is_unpacked(server, name):
    url = server.page("/", gzip.compress(b"hello " * 1_000), content_encoding=name)
    assert get(server, url).content == b"hello " * 1_000


def test_a_body_of_several_packed_members_is_unpacked(server):
    url = server.page("/", gzip.compress(b"one ") + gzip.compress(b"two"), content_encoding="gzip")
    assert get(server, url).content == b"one two"


def test_a_bomb_is_stopped_at_the_limit(server):
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) < 100_000
    problem = refused(server, server.page("/", bomb, content_encoding="gzip"), max_bytes=1_000_000)
    assert problem.code is FetchCode.TOO_LARGE


@pytest.mark.parametrize("name", ["br", "zstd", "deflate", "compress", "gzip, gzip", "nonsense"])
def test_another_packing_is_refused(server, name):
    url = server.page("/", gzip.compress(gzip.compress(b"x")), content_encoding=name)
    assert refused(server, url).code is FetchCode.CONTENT_ENCODING


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Type: text/html\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\nContent-Type: text/html\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        response(b"not packed", content_encoding="gzip"),
        response(gzip.compress(b"hello " * 100)[:-10], content_encoding="gzip"),
        response(zlib.compress(b"hello"), content_encoding="gzip"),
    ],
    ids=range(9),
)
def test_a_broken_answer_is_a_bad_response(server, answer):
    server.scripts["/"] = answer
    assert refused(server, server.url()).code is FetchCode.BAD_RESPONSE


def drip(connection: socket.socket, head: bytes) -> None:
    """Send a byte now and then, for as long as anybody listens."""
    connection.sendall(head)
    pause = threading.Event()
    for _ in range(2_000):
        connection.sendall(b"x")
        pause.wait(0.02)


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"],
)
def test_a_server_that_drips_is_left_at_the_deadline(server, head):
    server.scripts["/"] = lambda connection: drip(connection, head)
    assert refused(server, server.url(), total_seconds=0.3).code is FetchCode.TIMEOUT


def test_a_server_that_says_nothing_is_left(server):
    gate = threading.Event()
    server.scripts["/"] = lambda connection: gate.wait(10)
    assert refused(server, server.url(), operation_seconds=0.1).code is FetchCode.TIMEOUT
    gate.set()


def test_a_closed_port_is_not_connected(server):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    rules = AddressRules(allowed=(ip_network("127.0.0.1/32"),), ports=frozenset({port}))
    assert (
        refused(server, f"http://127.0.0.1:{port}/", addresses=rules).code
        is FetchCode.NOT_CONNECTED
    )


def test_a_secure_connection_is_for_the_name_and_fails_without_a_certificate(server):
    problem = refused(server, f"https://secure.example:{server.port}/")
    assert problem.code in (FetchCode.TLS_FAILED, FetchCode.NOT_CONNECTED)
    assert b"secure.example" in server.requests[0]
