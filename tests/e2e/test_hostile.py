#!/usr/bin/env python3
"""Hostile clients, handlers and pullers: the process answers others meanwhile, keeps its memory bounded, and never dies."""
import contextlib
import json
import os
import random
import socket
import socketserver
import threading
import time

from lib import Handler, Reply, Server, equal, main, route, test, until

LEASE = {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {"lease_for": "300ms"}}, "breaker": "off", "budget": "off"}
OFF = {"breaker": "off", "budget": "off"}
MIB = 1024


def memory(server):
    """Resident KiB of the server."""
    with open(f"/proc/{server.process.pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def bounded(server, before, mib):
    grown = memory(server) - before
    assert grown < mib * MIB or os.environ.get("ASAN_OPTIONS"), f"memory grew by {grown // MIB} MiB, more than {mib}"


def alive(server):
    equal(server.process.poll(), None, "the process lives")
    equal(server.get("/healthz").status, 200, "and answers others")


def connect(server):
    s = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    s.settimeout(20)
    return s


def talk(server, data, shut=True):
    """Sends bytes; what came back until the other side closed or fell silent for a moment."""
    with connect(server) as s:
        with contextlib.suppress(OSError):
            s.sendall(data)
            if shut:
                s.shutdown(socket.SHUT_WR)
        out = b""
        with contextlib.suppress(OSError):
            while len(out) < 1 << 20:
                piece = s.recv(65536)
                if not piece:
                    break
                out += piece
        return out


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None


HEAD = b"Host: localhost\r\n"


@test
def malformed_requests_get_a_status_and_hurt_nobody(redrive):
    # pitfall: header lengths, bytes and repeats that a parser misreads
    with Server(redrive, LEASE) as server:
        before = memory(server)
        requests = {
            "garbage": os.urandom(4096), "an empty line": b"\r\n\r\n", "no version": b"GET /healthz\r\n\r\n", "another version": b"GET / HTTP/9.9\r\n" + HEAD + b"\r\n",
            "binary path": b"GET /\x00\xff\xfe/%00%ff HTTP/1.1\r\n" + HEAD + b"\r\n", "broken escape": b"GET /v1/messages/%zz HTTP/1.1\r\n" + HEAD + b"\r\n",
            "dots": b"GET /v1/../../etc/passwd HTTP/1.1\r\n" + HEAD + b"\r\n", "a long method": b"X" * 10000 + b" / HTTP/1.1\r\n" + HEAD + b"\r\n",
            "a huge header": b"GET /healthz HTTP/1.1\r\n" + HEAD + b"X: " + b"a" * 1000000 + b"\r\n\r\n",
            "many headers": b"GET /healthz HTTP/1.1\r\n" + HEAD + b"".join(b"X-%d: y\r\n" % n for n in range(50000)) + b"\r\n",
            "a query of 100k": b"GET /v1/routes?" + b"a=b&" * 25000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n",
            "a key of 60k": b"GET /v1/messages?key=" + b"%41" * 20000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n",
            "two lengths": b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\nContent-Length: 5\r\n\r\nabcde",
            "length and chunks": b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n",
            "a negative length": b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Content-Length: -5\r\n\r\nabc",
            "a length beyond 64 bits": b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
            "a broken chunk": b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\nabc\r\n0\r\n\r\n",
            "a chunk of 2^64": b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc",
            "a bare CR in a header": b"GET /healthz HTTP/1.1\r\n" + HEAD + b"X: a\rb\r\n\r\n",
            "NUL in a header": b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Redrive-Key: a\x00b\r\nContent-Length: 0\r\n\r\n",
            "no host": b"GET /v1/routes HTTP/1.1\r\n\r\n",
        }
        for what, data in requests.items():
            answer = talk(server, data)
            status = status_of(answer)
            assert status is None or 400 <= status < 600 or what in ("a bare CR in a header", "a key of 60k", "NUL in a header"), (what, answer[:300])
            assert status != 500, (what, answer[:300])
        alive(server)
        for _ in range(300):  # what a fuzzer would begin with
            seed = random.Random(_).choice(list(requests.values()))[:3000]
            data = bytearray(seed)
            for _ in range(5):
                data[random.Random(len(data) + _).randrange(len(data))] = random.Random(_).randrange(256)
            with connect(server) as s, contextlib.suppress(OSError):
                s.sendall(bytes(data))
        alive(server)
        bounded(server, before, 64)
        server.publish("t", b"goes on")


def head_problem(answer, what):
    head, _, body = answer.partition(b"\r\n\r\n")
    equal(status_of(answer), 431, what)
    assert b"application/problem+json" in head and b"Connection: close" in head, (what, head)
    assert "limits.request_head" in json.loads(body)["detail"], (what, body)


@test
def a_large_head_is_refused_with_a_problem_that_says_how_large_it_may_be(redrive):
    request = b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Content-Length: 1\r\n"
    with Server(redrive, LEASE) as server:
        equal(status_of(talk(server, request + b"Redrive-Header-A: " + b"a" * 65000 + b"\r\n\r\nx")), 201, "a message's 64 KiB are allowed")
        equal(status_of(talk(server, request + b"".join(b"Redrive-Header-%d: y\r\n" % n for n in range(250)) + b"\r\nx")), 201, "250 headers")
        head_problem(talk(server, request + b"Redrive-Header-A: " + b"a" * 74000 + b"\r\n\r\nx"), "one large header")
        head_problem(talk(server, request + b"".join(b"X-%d: y\r\n" % n for n in range(1050)) + b"\r\nx"), "many small headers")
        head_problem(talk(server, b"GET /v1/routes?cursor=" + b"a" * 74000 + b" HTTP/1.1\r\n" + HEAD + b"\r\n"), "a long query")
        equal(server.counts("r")["received"], 2, "received")
        equal(server.publish_lines("t", [{"headers": {"A": "a" * 60000}, "body": 1}])["accepted"], 1, "a batch takes more")
    with Server(redrive, LEASE, limits={"request_head": "16KiB"}) as server:
        equal(status_of(talk(server, request + b"Redrive-Header-A: " + b"a" * 15500 + b"\r\n\r\nx")), 201, "within a lower limit")
        head_problem(talk(server, request + b"Redrive-Header-A: " + b"a" * 17000 + b"\r\n\r\nx"), "beyond a lower limit")


@test
def pipelined_requests_are_answered_in_order(redrive):
    with Server(redrive, LEASE) as server:
        one = b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Redrive-Key: k\r\nContent-Length: 1\r\n\r\n"
        answer = talk(server, b"".join(one + b"%d" % (n % 10) for n in range(100)) + b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n")
        equal(answer.count(b"HTTP/1.1 201"), 100, "publishes")
        equal(answer.count(b"HTTP/1.1 200"), 1, "the last one")
        offsets = [int(part.split(b",")[0].split(b"}")[0]) for part in answer.split(b'"offset":')[1:]]
        equal(offsets, list(range(100)), "in the order of sending")
        equal(sum(r["counts"]["received"] for r in server.get("/v1/routes").json()["items"]), 100, "received")


@test
def slow_clients_keep_nobody_waiting(redrive):
    with Server(redrive, LEASE) as server:
        before = memory(server)
        with contextlib.ExitStack() as open_ones:
            for n in range(300):
                s = open_ones.enter_context(connect(server))
                kind = n % 5
                s.sendall((b"GET /healthz HTTP/1.1\r\nX-A: ", b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Content-Length: 1000\r\n\r\nabc",
                           b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", b"G",
                           b"POST /v1/routes/r/lease HTTP/1.1\r\n" + HEAD + b"Content-Length: 18\r\n\r\n{\"wait_ms\": 20000}")[kind])
            begin = time.monotonic()
            for _ in range(20):
                server.publish("t", b"x")
            alive(server)
            assert time.monotonic() - begin < 10, "others wait"
        bounded(server, before, 96)
        alive(server)


@test
def bodies_that_never_end_are_bounded_together(redrive):
    """Each client stays below the limit of one request; all of them together must not take all memory."""
    with Server(redrive, LEASE, limits={"batch": "16MiB"}) as server:
        before = memory(server)
        piece = b" " * (1 << 20)
        refused = 0
        with contextlib.ExitStack() as open_ones:
            for _ in range(60):
                s = open_ones.enter_context(connect(server))
                with contextlib.suppress(OSError):
                    s.sendall(b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Content-Type: application/x-ndjson\r\nContent-Length: 16777216\r\n\r\n")
                    for _ in range(15):
                        s.sendall(piece)
            alive(server)
            bounded(server, before, 400)
            answer = server.request("POST", "/v1/topics/t/messages", b"small")
            equal(answer.status, 201, f"one message is still taken: {answer}")
        until(lambda: memory(server) - before < 200 * MIB or os.environ.get("ASAN_OPTIONS"), why="it is given back")
        equal(len(server.publish_lines("t", [{"body_text": "x" * 1000}] * 1000)["items"]), 1000, "a batch")
        # chunks without an end
        answer = None
        with connect(server) as s, contextlib.suppress(OSError):
            s.sendall(b"POST /v1/topics/t/messages HTTP/1.1\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(200):
                s.sendall(b"100000\r\n" + piece + b"\r\n")
            answer = s.recv(1000)
        alive(server)
        bounded(server, before, 200)


@test
def deep_and_wide_json_is_refused(redrive):
    with Server(redrive, LEASE) as server:
        before = memory(server)
        for what, body in {"deep": b"[" * 500000, "deep objects": b'{"a":' * 200000, "a long key": b'{"' + b"k" * 1000000 + b'": 1}', "numbers": b'{"max": 1e999999}',
                           "big number": b'{"max": 99999999999999999999999999}', "negative": b'{"max": -1}', "float": b'{"max": 1.5}', "no object": b"[1]", "half": b'{"max": ',
                           "NUL": b'{"max"\x00: 1}', "bad UTF-8": b'{"\xff": 1}', "twice": b'{"max": 1, "max": 2}', "too many": b'{"max": 1000000000}',
                           "long wait": b'{"wait_ms": 9223372036854775807}'}.items():
            answer = server.request("POST", "/v1/routes/r/lease", body, {"Content-Type": "application/json"})
            assert answer.status in (400, 413, 422), (what, answer)
        for line in (b"[" * 100000, b'{"body": ' + b"[" * 100000 + b"]" * 100000 + b"}", b'{"headers": ' + b"[" * 3000 + b"}", b"\xff\xfe", b'{"delay_ms": 1e300, "body": 1}',
                     b'{"body_base64": "****"}', b'{"body_text": "a", "body": 1}', b'{"key": 5, "body": 1}', b'{"headers": {"a": 5}, "body": 1}'):
            answer = server.request("POST", "/v1/topics/t/messages", b'{"body": 1}\n' + line + b"\n", {"Content-Type": "application/x-ndjson"})
            equal(answer.status, 422, f"{line[:30]}: {answer}")
            equal(answer.json()["errors"][0].get("line"), 2, f"the line's number: {answer}")
        equal(sum(r["counts"]["received"] for r in server.get("/v1/routes").json()["items"]), 0, "nothing of a bad batch is taken")
        alive(server)
        bounded(server, before, 64)


# ---- handlers ----

class Raw(socketserver.ThreadingTCPServer):
    """A handler that answers what bytes it likes: `say(socket, number of the call)`."""
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, say):
        self.calls, self.say = 0, say
        super().__init__(("127.0.0.1", 0), None)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def finish_request(self, connection, address):
        connection.settimeout(10)
        head = b""
        with contextlib.suppress(OSError):
            while b"\r\n\r\n" not in head:
                piece = connection.recv(65536)
                if not piece:
                    return
                head += piece
            self.calls += 1
            self.say(connection)

    def handle_error(self, request, address):
        pass

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def __enter__(self):
        return self

    def __exit__(self, *why):
        self.shutdown()
        self.server_close()


def endless(start, piece):
    def say(connection):
        connection.sendall(start)
        for _ in range(2000):
            connection.sendall(piece)
    return say


OK = b"HTTP/1.1 200 OK\r\n"
ANSWERS = {  # what the handler says, and what becomes of the message
    "endless headers": (endless(OK, b"X-Header: " + b"a" * 5000 + b"\r\n"), "exhausted"),
    "one endless header": (endless(OK + b"X: ", b"a" * 65536), "exhausted"),
    "an endless good body": (endless(OK + b"\r\n", b"a" * 65536), "acked"),
    "an endless bad body": (endless(b"HTTP/1.1 422 No\r\n\r\n", b"a" * 65536), "rejected"),
    "status 999": (b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", ("exhausted", "rejected")),
    "status 099": (b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", ("exhausted", "rejected")),
    "no HTTP at all": (b"\x00\x01\x02 hello \xff\r\n\r\n", "exhausted"),
    "only continues": (b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, "exhausted"),
    "a broken length": (OK + b"Content-Length: abc\r\n\r\n", ("exhausted", "acked")),
    "too short a body": (b"HTTP/1.1 500 No\r\nContent-Length: 1000\r\n\r\nabc", "exhausted"),
    "a bad encoding": (b"HTTP/1.1 422 No\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", "rejected"),
    "an unknown verdict": (OK + b"Redrive-Verdict: explode\r\nContent-Length: 0\r\n\r\n", "acked"),
    "a wild delay": (b"HTTP/1.1 500 No\r\nRetry-After: 999999999999999999999999\r\nContent-Length: 0\r\n\r\n", "exhausted"),
    "error headers with controls": (b"HTTP/1.1 422 No\r\nRedrive-Error: a\x01\x1b[31mb\xff\r\nRedrive-Error-Class: \xff\xfe\r\nContent-Length: 0\r\n\r\n", "rejected"),
    "a deep problem": (b"HTTP/1.1 422 No\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n" + b'{"a":' * 5000, "rejected"),
    "a problem of wrong types": (b'HTTP/1.1 422 No\r\nContent-Type: application/problem+json\r\nConnection: close\r\n\r\n{"type": 5, "title": [], "detail": {}, "code": null}', "rejected"),
    "a redirect": (b"HTTP/1.1 302 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", "rejected"),
}


@test
def hostile_handlers_get_a_verdict_and_no_more(redrive):
    # pitfall: an answer that cannot be understood is retried for ever, or taken for success
    handlers, routes, wanted = [], [], {}
    with contextlib.ExitStack() as all_of_them:
        for n, (what, (say, outcome)) in enumerate(ANSWERS.items()):
            if isinstance(say, bytes):
                data = say
                say = (lambda d: lambda c: (c.sendall(d), c.shutdown(socket.SHUT_WR)))(data)
            handlers.append(all_of_them.enter_context(Raw(say)))
            routes.append(route(f"r{n}", f"t{n}", handlers[-1].url, source={"partitions": 1}, http={"timeout": "3s"}, **OFF,
                                retry={"backoff": "fixed", "base": "50ms", "min": "10ms", "cap": "100ms", "jitter": "none", "attempts": 2}))
            wanted[f"r{n}"] = (what, outcome if isinstance(outcome, tuple) else (outcome,))
        with Server(redrive, *routes) as server:
            before = memory(server)
            for n in range(len(routes)):
                server.publish(f"t{n}", b"x")

            def open_ones():
                return [wanted[r["name"]][0] for r in server.get("/v1/routes").json()["items"] if r["counts"]["acked"] + r["counts"]["dead"] < 1]
            until(lambda: not open_ones(), seconds=60, why="each one ends")
            letters = {l["route"]: l for l in until(lambda: len(server.letters()) == sum(r["counts"]["dead"] for r in server.get("/v1/routes").json()["items"])
                                                    and server.letters(), why="letters")}
            for name, (what, outcomes) in wanted.items():
                found = letters[name]["reason"] if name in letters else "acked"
                assert found in outcomes, (what, found, letters.get(name, {}).get("error"))
                if name in letters:
                    error = server.get(f"/v1/dead-letters/{letters[name]['id']}").json()["error"]
                    assert len(error["text"] or "") <= 1000 and len(error["class"] or "") <= 256, (what, error)
            alive(server)
            bounded(server, before, 96)


@test
def header_values_cannot_inject_headers(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        items = [{"key": "a\r\nX-Evil: 1", "headers": [["N", "v\r\nX-Evil: 1\r\n\r\nGET / HTTP/1.1"], ["N", "\u0000"]], "body": 1}]
        server.publish_lines("t", items)
        delivery = until(lambda: handler.deliveries, why="delivered")[0]
        equal(delivery.headers.get("X-Evil"), None, "no header of the message's making")
        equal(delivery.key, "a%0D%0AX-Evil: 1", "key")
        equal(delivery.headers.get_all("Redrive-Header-N"), ["v%0D%0AX-Evil: 1%0D%0A%0D%0AGET / HTTP/1.1", "%00"], "headers")
        for name in ("X-Evil\r\nA", "a:b", "", "\u00e4", "a b"):
            answer = server.request("POST", "/v1/topics/t/messages", (b'{"headers": [["%s", "v"]], "body": 1}' % name.encode("unicode_escape").replace(b"\\xe4", b"\\u00e4")),
                                    {"Content-Type": "application/x-ndjson"})
            assert answer.status in (201, 422), (name, answer)
        until(lambda: server.counts("r")["acked"] == server.counts("r")["received"], why="all acked")
        for d in handler.deliveries:
            assert not [n for n in d.headers.keys() if "evil" in n.lower() and not n.lower().startswith("redrive-header-")], d.headers.keys()


@test
def a_puller_that_never_answers_costs_attempts_and_no_memory(redrive):
    # pitfall: a dead peer holds its messages for ever; pitfall: memory grows while polling goes on
    with Server(redrive, {**LEASE, "retry": {"backoff": "fixed", "base": "50ms", "min": "10ms", "jitter": "none", "attempts": 2}}) as server:
        server.publish_lines("t", [{"body_text": "x" * 1000} for _ in range(300)])
        before = memory(server)
        taken, end = 0, time.monotonic() + 20
        while time.monotonic() < end and server.counts("r")["dead"] < 300:
            answer = server.request("POST", "/v1/routes/r/lease", {"max": 100, "wait_ms": 100})
            equal(answer.status, 200, f"{answer}")
            taken += len(answer.json()["items"])
        equal(server.counts("r")["dead"], 300, "each one dies after its attempts")
        equal(taken, 600, "every message was leased twice")
        equal(server.route("r")["attempts"]["timeouts"], 600, "timeouts")
        until(lambda: len(server.letters()) == 300, why="letters")
        for token in ("x", "%00", "a" * 5000, "0" * 64):
            assert server.request("POST", f"/v1/leases/{token}/ack", {}).status in (400, 404, 422), token[:10]
        alive(server)
        bounded(server, before, 64)


if __name__ == "__main__":
    main()
