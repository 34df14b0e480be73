#!/usr/bin/env python3
"""Publishing and looking up: every header, every kind of key and body, limits, mistakes, duplicates, delays."""
import base64
import contextlib
import http.client
import json
import os
import socket
import time

from lib import Handler, Reply, Server, equal, main, quote, request, route, test, until

FAST = {"backoff": "fixed", "base": "100ms", "jitter": "none"}


def publish(server, body=b"x", topic="t", **headers):
    return server.request("POST", f"/v1/topics/{topic}/messages", body, {k.replace("_", "-"): v for k, v in headers.items()})


def problem(answer, status):
    equal(answer.status, status, f"status of {answer}")
    equal(answer.headers["Content-Type"], "application/problem+json", "content type of a problem")
    body = answer.json()
    for member in ("type", "title", "status", "detail", "instance"):
        assert member in body, (member, body)
    equal(body["status"], status, "status member")
    return body


@test
def answer_of_a_publish_names_the_position(redrive):
    with Handler() as handler, Server(redrive, route("r", "order.create", handler.url)) as server:
        answer = server.request("POST", "/v1/topics/order.create/messages", b"")
        equal(answer.status, 201, "status")
        assert answer.headers["Redrive-Version"]
        body = answer.json()
        equal(body["id"], f"order.create-{body['partition']}-{body['offset']}", "id")
        equal((body["topic"], body["duplicate"]), ("order.create", False), "answer")


@test
def keys_and_headers_reach_the_handler_byte_exact(redrive):
    # pitfall: headers and keys beyond ASCII, empty, with NUL, repeated
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        server.publish("t", b"null key")
        server.publish("t", b"empty key", key="")
        server.publish("t", b"binary key", key=b"\x00\xff%a")
        server.publish("t", b"text key", key="schl\u00fcssel")
        server.publish("t", b"headers", headers={"Redrive-Header-A": "1", "Redrive-Header-Umlaut": "%C3%BC%00%0D%0A", "traceparent": "00-1-2-03",
                                               "Content-Type": "text/odd; x=1"})
        until(lambda: len(handler.deliveries) == 5, why="all delivered")
        got = {d.body: d for d in handler.deliveries}
        equal(got[b"null key"].key, None, "null key")
        equal(got[b"empty key"].key, "", "empty key")
        equal(got[b"binary key"].key, "%00%FF%25a", "binary key")
        equal(got[b"text key"].key, "schl%C3%BCssel", "text key")
        h = got[b"headers"].headers
        equal((h["Redrive-Header-A"], h["Redrive-Header-Umlaut"], h["traceparent"], h["Content-Type"]),
              ("1", "%C3%BC%00%0D%0A", "00-1-2-03", "text/odd; x=1"), "headers")
        equal(got[b"null key"].headers["Content-Type"], None, "no content type in, none out")
        for name in ("Redrive-Message-Id", "Redrive-Route", "Redrive-Topic", "Redrive-Partition", "Redrive-Offset", "Redrive-Attempt", "Redrive-Epoch", "Idempotency-Key"):
            assert h[name] is not None, name


@test
def tombstone_is_first_class(redrive):
    # pitfall: a null body throws inside the error path
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        handler.script(500, 422)
        answer = publish(server, b"", Redrive_Null="true", Redrive_Key="k")
        equal(answer.status, 201, "status")
        [letter] = until(server.letters, why="a letter")
        equal([(d.headers["Redrive-Null"], d.body) for d in handler.deliveries], [("true", b""), ("true", b"")], "deliveries")
        equal(letter["key"], "k", "key")
        equal(letter["body_size"], 0, "size")
        problem(publish(server, b"body", Redrive_Null="true"), 422)


@test
def repeated_id_answers_the_first_position(redrive):
    # pitfall: a publish whose answer was lost is repeated, and is there twice
    with Handler(lambda d: 422) as handler, Server(redrive, route("r", "t", handler.url)) as server:
        first = publish(server, b"1", Redrive_Id="id-1").json()
        again = publish(server, b"2", Redrive_Id="id-1")
        equal((again.status, again.json()), (200, {**first, "duplicate": True}), "second")
        until(lambda: server.state("id-1") == "dead", why="dead")
        server.kill()
        server.start()
        again = publish(server, b"3", Redrive_Id="id-1")
        equal((again.status, again.json()["offset"]), (200, first["offset"]), "after a restart, though dead")
        lines = server.publish_lines("t", [{"id": "a", "body": 1}, {"id": "a", "body": 2}, {"id": "id-1", "body": 3}])
        equal((lines["accepted"], [i["duplicate"] for i in lines["items"]]), (1, [False, True, True]), "inside a batch")
        answer = server.request("POST", "/v1/topics/t/messages", b'{"id": "a", "body": 1}\n', {"Content-Type": "application/x-ndjson"})
        equal(answer.status, 200, "a batch of duplicates")


@test
def delayed_message_waits_and_is_not_early(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        start = time.monotonic()
        id = publish(server, b"later", Redrive_Delay="1500ms").json()["id"]
        row = server.message(id)["routes"][0]
        equal((row["state"], row["attempt"]), ("waiting", 1), "state")
        assert row["due_at"], row
        until(lambda: handler.deliveries, why="delivered")
        took = time.monotonic() - start
        assert 1.49 <= took < 2.5, took
        problem(publish(server, Redrive_Delay="5"), 422)
        problem(publish(server, Redrive_Delay="-5s"), 422)
        problem(publish(server, Redrive_Not_Before="10000-01-01T00:00:00Z"), 422)
        problem(publish(server, Redrive_Delay="99999999d"), 422)
        # pitfall: delays beyond an engine's timer range fire at once or are lost
        far = publish(server, b"far", Redrive_Delay="3650d").json()["id"]
        equal(server.state(far), "waiting", "ten years from now")


@test
def batch_is_all_or_nothing_with_line_numbers(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        bad_lines = [
            '{"body": 1, "body_text": "x"}', '{"delay_ms": -1, "body": 1}', '[]', '{"body_base64": "%%%"}', '{"bod": 1}', '{', '{"key": 5, "body": 1}',
            '{"null": true, "body": 1}', '{"headers": 5, "body": 1}', '{"body": 1} x', '{"body": 1, "body": 2}',
        ]
        for line in bad_lines:
            text = '{"body": 0}\n{"body": 0}\n' + line + "\n"
            body = problem(server.request("POST", "/v1/topics/t/messages", text.encode(), {"Content-Type": "application/x-ndjson"}), 422)
            assert any("3" in json.dumps(e) for e in body["errors"]), (line, body)
        bad = b'{"body": 0}\n{"body_text": "\xff"}\n'
        problem(server.request("POST", "/v1/topics/t/messages", bad, {"Content-Type": "application/x-ndjson"}), 422)
        equal(server.counts("r")["received"], 0, "nothing was taken")
        good = (b'{"key": "k", "headers": {"A": "b"}, "content_type": "application/json", "body": {"a": 1.50, "n": 123456789012345678901234567890}}\n'
                b'{"body_text": "\\u0000x"}\n{"body_base64": "AAH/"}\n{"null": true}\n{"headers": [["A", "1"], ["A", "2"]], "body": null}\n')
        answer = server.request("POST", "/v1/topics/t/messages", good, {"Content-Type": "application/x-ndjson"})
        equal((answer.status, answer.json()["accepted"]), (201, 5), "good batch")
        until(lambda: len(handler.deliveries) == 5, why="delivered")
        equal(sorted(handler.bodies()), sorted([b'{"a": 1.50, "n": 123456789012345678901234567890}', b"\x00x", b"\x00\x01\xff", b"", b"null"]), "bodies as written")


@test
def a_large_batch_is_taken_or_refused_as_a_small_one(redrive):
    lease = {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}
    with Server(redrive, lease) as server:
        lines = b"".join(b'{"key": "k%d", "id": "e%d", "body_text": "%s"}\n' % (n, n, b"x" * 500) for n in range(8000))
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)  # one connection for all
        for body, status, accepted in ((lines, 201, 8000), (lines, 200, 0), (lines + b'{"key": 1}\n', 422, None), (lines, 200, 0)):
            connection.request("POST", "/v1/topics/t/messages", body, {"Content-Type": "application/x-ndjson"})
            answer = connection.getresponse()
            said = json.loads(answer.read())
            equal((answer.status, said.get("accepted")), (status, accepted), "the answer")
        connection.close()
        equal(server.counts("r")["received"], 8000, "received")
        equal(server.request("POST", "/v1/topics/nobody/messages", lines, {"Content-Type": "application/x-ndjson"}).status, 404, "no such topic")
        equal(server.stop(), 0, "exit code")


@test
def mistakes_of_requests_get_their_status(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url), limits={"body": "1KiB", "headers": "1KiB", "batch": "4KiB"}) as server:
        problem(publish(server, topic="nobody.reads"), 404)
        problem(publish(server, b"x" * 1025), 413)
        batch = {"Content-Type": "application/x-ndjson"}
        for said, body, headers in (("the body has 1025 bytes; 1024 are the most that limits.body allows", b"x" * 1025, {}),
                                    ("limits.headers allows", b"x", {"Redrive-Header-A": "x" * 2000}), ("limits.batch allows", b'{"body": 1}\n' * 400, batch),
                                    ("limits.body allows", b'{"body_text": "%s"}' % (b"x" * 1100), batch)):
            answer = server.request("POST", "/v1/topics/t/messages", body, headers)
            equal(answer.status, 413, said)
            assert said in answer.json()["detail"], answer
        equal(publish(server, b"x" * 1024).status, 201, "exactly the limit")
        problem(publish(server, Redrive_Key="a" * 4097), 413)
        problem(publish(server, Redrive_Key="%zz"), 422)
        assert publish(server, Redrive_Id="a" * 257).status in (413, 422)
        problem(server.request("POST", "/v1/topics/t/messages", b'{"body": 1}\n' * 400, {"Content-Type": "application/x-ndjson"}), 413)
        problem(server.get("/v1/messages/t-0-999999"), 404)
        problem(server.get("/v1/messages/nonsense"), 404)
        problem(server.get("/v1/messages?key=k&nonsense=1"), 400)
        problem(server.get("/v1/messages?key=k&cursor=zzz"), 400)
        problem(server.get("/v1/messages?key=%zz"), 400)
        problem(server.get("/v1/routes?limit=0"), 400)
        problem(server.get("/v1/routes?limit=1001"), 400)
        problem(server.get("/v1/routes/none"), 404)
        problem(server.get("/nowhere"), 404)
        problem(server.request("DELETE", "/v1/routes"), 405)
        problem(server.request("POST", "/v1/replays", b"{"), 400)
        problem(server.request("POST", "/v1/replays", {"nonsense": 1}), 422)
        problem(server.get("/v1/dead-letters?q=nonsense:1"), 422)
        assert server.get("/v1/dead-letters?q=route:r%20colour:red").json()["errors"][0]["position"] == 9


@test
def web_pages_do_not_reach_it(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url), security={"hosts": ["redrive.example"]}) as server:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            problem(server.get("/v1/routes", headers), 403)
        for headers in ({"Host": "localhost:1"}, {"Host": "redrive.example"}, {"Origin": "http://127.0.0.1:7337"}, {"Sec-Fetch-Site": "same-origin"}):
            equal(server.get("/v1/routes", headers).status, 200, str(headers))


@test
def message_is_found_by_id_and_by_key(redrive):
    with Handler(lambda d: 500) as handler, Server(redrive, route("r", "t", handler.url, order="key", retry={**FAST, "base": "10s"})) as server:
        ids = [server.publish("t", b"%d" % i, key="k/1 %", id=f"p{i}")["id"] for i in range(5)]
        until(lambda: server.state(ids[0]) == "waiting", why="the first waits")
        rows = server.get("/v1/messages?key=" + quote("k/1 %")).json()
        equal([m["id"] for m in rows["items"]], ids, "by key")
        equal(rows["items"][1]["routes"][0]["behind"], ids[0], "behind")
        equal(rows["items"][1]["routes"][0]["state"], "held", "state")
        equal(server.message("p3")["id"], ids[3], "by the producer's id")
        equal(server.message(ids[0])["routes"][0]["attempt"], 2, "attempt")
        page = server.get("/v1/messages?limit=2&key=" + quote("k/1 %")).json()
        equal(([m["id"] for m in page["items"]], page["next"] is not None), (ids[:2], True), "a page")
        page = server.get(f"/v1/messages?limit=2&cursor={page['next']}&key=" + quote("k/1 %")).json()
        equal([m["id"] for m in page["items"]], ids[2:4], "the next page")
        equal(server.get("/v1/messages?key=nobody").json(), {"items": [], "next": None}, "no such key")


@test
def revoked_message_is_a_letter_and_frees_its_key(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url, order="key", retry={**FAST, "base": "30s"})) as server:
        handler.script(500, body=b"1")
        first = server.publish("t", b"1", key="k")["id"]
        until(lambda: server.state(first) == "waiting", why="waiting")
        second = server.publish("t", b"2", key="k")["id"]
        equal(server.request("POST", f"/v1/messages/{first}/revoke", {"route": "r", "reason": "wrong order"}).status, 200, "revoke")
        until(lambda: server.state(second) in ("acked", "done"), why="the next of the key goes on")
        [letter] = until(server.letters, why="a letter")
        equal((letter["message_id"], letter["reason"]), (first, "revoked"), "letter")
        equal(server.state(first), "revoked", "state")
        equal(server.counts("r")["revoked"], 1, "counts only as revoked")
        problem(server.request("POST", f"/v1/messages/{first}/revoke", {"route": "r"}), 409)
        problem(server.request("POST", "/v1/messages/t-0-99999/revoke", {}), 404)


@test
def many_connections_may_be_open(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(1000)]
        try:
            equal(server.get("/healthz").status, 200, "beside 1,000 idle connections")
            sockets[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            sockets[0].settimeout(10)
            assert sockets[0].recv(100).startswith(b"HTTP/1.1 200")
        finally:
            for s in sockets:
                s.close()


@test
def connections_leave_descriptors_for_the_rest(redrive):
    # pitfall: clients that only connect take all descriptors, and the journal cannot open its next segment
    with Handler() as handler, Server(redrive, route("r", "t", handler.url), start=False) as server:
        few = server.directory / "few"
        few.write_text(f"#!/bin/sh\nulimit -n 300\nexec '{redrive}' \"$@\"\n")
        few.chmod(0o755)
        server.redrive = str(few)
        server.start()
        sockets = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(400)]
        try:
            for n in range(20):
                server.publish("t", b"%d" % n)
            until(lambda: server.counts("r")["acked"] == 20, why="acked")
            open_now = len(os.listdir(f"/proc/{server.process.pid}/fd"))
            assert open_now < 270, f"{open_now} of 300 descriptors are open"
            sockets[0].settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                equal(sockets[0].recv(1), b"", "the longest idle one was closed")
        finally:
            for s in sockets:
                s.close()


@test
def it_listens_at_an_ipv6_address(redrive):
    if not os.path.exists("/proc/net/if_inet6"):
        return
    with Handler() as handler, Server(redrive, route("r", "t", handler.url), start=False) as server:
        server.spawn("[::1]:0")
        port = until(server.bound_port, why="the port file")
        connection = http.client.HTTPConnection("::1", port, timeout=10)
        connection.request("POST", "/v1/topics/t/messages", b"x")
        equal(connection.getresponse().status, 201, "published")
        connection.close()
        assert f"ready at http://[::1]:{port}" in server.log(), server.log()
        equal(server.stop(), 0, "exit code")


@test
def openapi_lists_what_the_server_answers(redrive):
    with Handler() as handler, Server(redrive, route("r", "t", handler.url)) as server:
        document = server.get("/openapi.json").json()
        assert document["openapi"].startswith("3."), document["openapi"]
        for path in ("/v1/topics/{topic}/messages", "/v1/messages/{id}", "/v1/routes", "/v1/dead-letters/{id}/body", "/v1/replays"):
            assert path in document["paths"], path
        for path, operations in document["paths"].items():
            if "get" in operations:
                answer = server.get(path.replace("{topic}", "t").replace("{name}", "r").replace("{id}", "x").replace("{key}", "k"))
                assert str(answer.status) in operations["get"]["responses"], (path, answer.status)


if __name__ == "__main__":
    main()
