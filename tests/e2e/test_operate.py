#!/usr/bin/env python3
"""Operating it: reload, tokens and roles, TLS, systemd, the port file, and the command line with its exit codes."""
import base64
import contextlib
import datetime
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lib import Handler, Reply, Server, config, equal, main, request, route, test, until

OFF = {"breaker": "off", "budget": "off"}
FAST = {"backoff": "fixed", "base": "50ms", "min": "10ms", "jitter": "none", "attempts": 3}


def run(redrive, *arguments, cwd=None, environment=None, input=None):
    return subprocess.run([redrive, *arguments], capture_output=True, text=True, timeout=60, cwd=cwd, input=input,
                          env={**os.environ, "NO_COLOR": "1", **(environment or {})})


# ---- reload ----

def reload(server, text, wanted):
    """SIGHUP; waits until the log says `wanted` once more."""
    before = server.log().count(wanted)
    server.write_config(text)
    server.signal(signal.SIGHUP)
    until(lambda: server.log().count(wanted) > before, why=f"the log says {wanted!r}: {server.log()[-600:]}")


@test
def a_reload_is_all_or_nothing(redrive):
    with Handler() as handler:
        first = route("r", "t", handler.url, concurrency=2, **OFF)
        with Server(redrive, first) as server:
            server.publish("t", b"before")
            until(lambda: server.counts("r")["acked"] == 1, why="acked")
            second = route("s", "t", handler.url, handler_target=None, **OFF)
            del second["handler_target"]
            second["handler"]["target"] = "other"
            bad = {
                "a syntax error": "routes: [",
                "an unknown key": config(first, {**second, "ordr": "key"}),
                "a changed source": config({**first, "source": {"topic": "u"}}, second),
                "a changed order": config({**first, "order": "key"}, second),
                "a changed handler kind": config({**first, "handler": {"lease": {}}}, second),
                "changed partitions": config({**first, "source": {"topic": "t", "partitions": 7}}, {**second, "source": {"topic": "t", "partitions": 7}}),
                "changed security": config(first, second, security={"behind_tls_proxy": True}),
                "changed hosts": config(first, second, security={"hosts": ["x.example"]}),
            }
            for what, text in bad.items():
                reload(server, text, "reload refused")
                equal([r["name"] for r in server.get("/v1/routes").json()["items"]], ["r"], f"routes after {what}")
                server.publish("t", what.encode())
            until(lambda: server.counts("r")["acked"] == 1 + len(bad), why="the old configuration goes on")
            reload(server, config(first, second), "reloaded")
            equal(server.counts("s")["received"], 0, "a new route begins at the next offset")
            server.publish("t", b"after")
            until(lambda: server.counts("s")["acked"] == 1 and server.counts("r")["acked"] == 2 + len(bad), why="both take it")
            reload(server, config(second), "reloaded")
            rows = {r["name"]: (r["state"], r["orphan"]) for r in server.get("/v1/routes").json()["items"]}
            equal(rows, {"r": ("stopped", True), "s": ("running", False)}, "a removed route is an orphan")
            server.publish("t", b"last")
            until(lambda: server.counts("s")["acked"] == 2, why="the new one goes on")
            equal(server.counts("r")["received"], 2 + len(bad), "an orphan takes nothing new")
            reload(server, config(first, second), "reloaded")
            server.publish("t", b"back")
            until(lambda: server.counts("s")["acked"] == 3, why="acked")
            rows = [(r["name"], r["state"], r["orphan"]) for r in server.get("/v1/routes").json()["items"]]
            equal(sorted(rows), [("r", "running", False), ("r", "stopped", True), ("s", "running", False)], "a route of that name is new; what the old one left stays")
            equal(server.counts("r")["received"], 1, "the name means the running one")
            series = [line.rsplit(" ", 1)[0] for line in server.get("/metrics").body.decode().splitlines() if line and line[0] != "#"]
            equal(len(series), len(set(series)), "no series twice in a scrape")
            equal(server.request("POST", "/v1/routes/r/adopt", {"route": "r"}).status, 200, "adopt")
            until(lambda: server.counts("r")["received"] == 3 + len(bad), why="one again")
            equal(server.stop(), 0, "exit code")


@test
def what_a_removed_route_leaves_is_said(redrive):
    wanted = "2 messages of the removed route lost wait for another"
    lost, other = ({"name": name, "source": {"topic": name}, "handler": {"lease": {}}} for name in ("lost", "other"))
    with Server(redrive, lost, other) as server:
        server.publish("lost", b"1")
        server.publish("lost", b"2")
        reload(server, config(other), "reloaded")
        until(lambda: wanted in server.log(), why=server.log()[-500:])
        rows = [line.split() for line in server.cli("routes", "ls").stdout.splitlines()]
        equal([row[2] for row in rows], ["orphan", "up", "yes"], f"the list names the orphan: {rows}")
        equal(server.stop(), 0, "exit code")
        server.start()
        until(lambda: server.log().count(wanted) == 2, why=f"said again at every start: {server.log()[-500:]}")


@test
def a_refused_reload_names_every_reason_with_its_place(redrive):
    def lease(name, **keys):
        return {"name": name, "source": {"topic": name}, "handler": {"lease": {}}, **keys}
    with Server(redrive, lease("a"), lease("b"), arguments=["--log", "json"]) as server:
        signed = lease("c")
        signed["handler"] = {"http": {"url": "http://127.0.0.1:9/", "sign": {"secret_file": "empty"}}}
        (server.directory / "empty").write_text("")
        reload(server, config(lease("a", order="key"), lease("b", order="key"), signed, limits={"request_head": "64KiB"}), "reload refused")
        for wanted in ("'limits.request_head' cannot change", "route 'a': 'routes[].order' cannot change", "route 'b': 'routes[].order' cannot change",
                       "route 'c': secret_file"):
            [said] = [json.loads(line) for line in server.log().splitlines() if wanted in line]
            equal(said["level"], "error", wanted)
            place = said["text"].split(": ")[0]
            assert re.fullmatch(r".*/redrive\.yaml:\d+:\d+", place), said


@test
def with_log_json_every_line_is_an_object(redrive):
    lease = {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}
    with Server(redrive, lease, arguments=["--log", "json", "--log-level", "error"]) as server:
        reload(server, "routes: [", "reload refused")
        reload(server, config({**lease, "ordr": "key"}), "reload refused")
        equal(server.stop(), 0, "exit code")
        server.spawn()
        equal(server.process.wait(30), 6, "no start with this configuration")
        server.write_config(config(lease))
        server.spawn("127.0.0.1:x")
        equal(server.process.wait(30), 6, "no start with this address")
        server.arguments += ["--drain", "soon"]
        server.spawn()
        equal(server.process.wait(30), 2, "no start with this option")
        server.arguments[-2:] = ["--data", "/dev/null"]
        server.spawn()
        assert server.process.wait(30), "no start with this directory"
        said = [json.loads(line) for line in server.log().splitlines()]
        equal({frozenset(line) for line in said}, {frozenset(("at", "level", "text"))}, "what a line has")
        texts = [line["text"] for line in said]
        equal(texts[0], f"redrive: ready at http://127.0.0.1:{server.port}", "the ready line")
        equal(sum("redrive.yaml:" in text and "unknown key 'ordr'" in text for text in texts), 2, f"mistakes, at the reload and at the start: {texts}")


@test
def a_route_that_cannot_start_is_named_once(redrive):
    def lease(partitions):
        return config({"name": "r", "source": {"topic": "t", "partitions": partitions}, "handler": {"lease": {}}})
    with Server(redrive, text=lease(1)) as server:
        equal(server.stop(), 0, "exit code")
        server.write_config(lease(4))
        server.spawn()
        equal(server.process.wait(30), 6, "the topic keeps its partitions")
        assert "redrive: route 'r': topic 't' was made with 1 partition" in server.log(), server.log()


@test
def listen_in_the_file_cannot_change(redrive):
    with Handler() as handler:
        one = route("r", "t", handler.url)
        with Server(redrive, one, listen="127.0.0.1:0", start=False) as server:
            server.arguments = []
            server.start(listen="127.0.0.1:0")
            server.write_config(config(one, drain="1s"))
            server.signal(signal.SIGHUP)
            until(lambda: "reloaded" in server.log(), why="the option wins, so nothing changed")


@test
def changed_concurrency_and_limits_hold_after_a_reload(redrive):
    with Handler(lambda d: 500 if d.body.startswith(b"bad") else Reply(200, hang=True)) as handler:
        slow = {"retry": {"base": "4s", "min": "4s", "jitter": "none", "attempts": 10}, **OFF}
        with Server(redrive, route("r", "t", handler.url, concurrency=1, **slow)) as server:
            id = server.publish("t", b"bad")["id"]
            until(lambda: server.state(id) == "waiting", why="failed once")
            for n in range(4):
                server.publish("t", b"hang%d" % n)
            until(lambda: server.counts("r")["in_flight"] == 1, why="one at a time")
            equal(len(handler.deliveries), 2, "calls")
            reload(server, config(route("r", "t", handler.url, concurrency=4, **slow)), "reloaded")
            until(lambda: server.counts("r")["in_flight"] == 4, why="four at a time")
            handler.release()
            until(lambda: server.counts("r")["acked"] == 4, why="acked")
            slow["retry"]["attempts"] = 1
            reload(server, config(route("r", "t", handler.url, concurrency=4, **slow)), "reloaded")
            [letter] = until(server.letters, why="what is beyond the lower limit dies when its turn comes")
            equal((letter["message_id"], letter["reason"]), (id, "limit_lowered"), "letter")
            equal(len(handler.of(id)), 1, "without another call")


@test
def limits_and_retention_change_at_a_reload(redrive):
    with Handler(lambda d: 400) as handler:
        one = route("r", "t", handler.url, **OFF)
        with Server(redrive, one, limits={"body": "10KiB", "headers": "2KiB", "batch": "20KiB"}) as server:
            def status(body, headers=None):
                return server.request("POST", "/v1/topics/t/messages", body, headers).status
            lines = b"".join(b'{"body_text": "%s"}\n' % (b"x" * 1000) for _ in range(10))
            many = {"Redrive-Header-A": "x" * 1500}
            ndjson = {"Content-Type": "application/x-ndjson"}
            equal([status(b"x" * 9000), status(b"x", many), status(lines, ndjson)], [201] * 3, "within the first limits")
            equal(status(b"x" * 11000), 413, "beyond the first limit")
            reload(server, config(one, limits={"body": "1KiB", "headers": "1KiB", "batch": "5KiB", "ids": 5, "journal": "300MiB", "disk_free": "1MiB"},
                                  desk={"retention": {"hot": "1h"}}), "reloaded")
            equal([status(b"x" * 9000), status(b"x", many), status(lines, ndjson)], [413] * 3, "beyond the lowered limits")
            equal(status(b"x" * 1000), 201, "within them")
            letter = until(server.letters, why="a letter")[0]
            def ms(text):
                return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
            equal(round(ms(letter["expires_at"]) - ms(letter["dead_at"])), 3600, "the new retention")
            reload(server, config(one, limits={"body": "20KiB", "headers": "2KiB", "batch": "50KiB"}), "reloaded")
            equal([status(b"x" * 11000), status(b"x", many), status(lines, ndjson)], [201] * 3, "within the raised limits")
            reload(server, config(one, limits={"request_head": "64KiB"}), "reload refused")
            assert "'limits.request_head' cannot change while running" in server.log() and "restart" in server.log(), server.log()[-500:]


@test
def a_refused_reload_changes_nothing_at_all(redrive):
    with Handler() as handler, with_tokens(redrive, route("one", "t", handler.url, **OFF), route("two", "u", handler.url, **OFF)) as (server, tokens, file):
        def answers():
            as_admin = bearer(tokens["a"])
            routes = server.get("/v1/routes", as_admin).json()["items"]
            return {
                "the removed token": server.get("/v1/routes", bearer(tokens["o"])).status,
                "routes": sorted((r["name"], r["state"]) for r in routes),
                "a body of 9,000 bytes": server.request("POST", "/v1/topics/t/messages", b"x" * 9000, as_admin).status,
            }
        server.start()
        security = {"tokens_file": "tokens.yaml"}
        first, second = route("one", "t", handler.url, **OFF), route("two", "u", handler.url, **OFF)
        reload(server, config(first, security=security), "reloaded")  # topic u was made with four partitions
        before = answers()
        equal(before["the removed token"], 200, "the token is known")
        (server.directory / "empty").write_text("")
        signed = route("signed", "t", handler.url, **OFF)
        signed["handler"]["http"]["sign"] = {"secret_file": "empty"}
        equal(run(redrive, "token", "rm", "o", "--tokens-file", str(file)).returncode, 0, "rm")
        removed = file.read_text()
        new = route("new", "n", handler.url, **OFF)
        limits = {"body": "1KiB"}
        bad = {
            "the configuration": (removed, config(first, {**new, "ordr": "key"}, security=security, limits=limits)),
            "a fixed key": (removed, config({**first, "order": "key"}, new, security=security, limits=limits)),
            "security.hosts": (removed, config(first, new, security={**security, "hosts": ["x.example"]}, limits=limits)),
            "a secret": (removed, config(first, new, signed, security=security, limits=limits)),
            "the tokens": ("tokens: [ { name", config(first, new, security=security, limits=limits)),
            "the engine": (removed, config(first, new, {**second, "source": {"topic": "u", "partitions": 7}}, security=security, limits=limits)),
        }
        for what, (content, text) in bad.items():
            file.write_text(content)
            reload(server, text, "reload refused")
            equal(answers(), before, f"after a refusal by {what}")
        file.write_text(removed)
        reload(server, config(first, new, security=security, limits=limits), "reloaded")
        after = answers()
        equal((after["the removed token"], after["a body of 9,000 bytes"]), (401, 413), "the same with nothing bad")
        assert ("new", "running") in after["routes"], after


@test
def a_new_host_takes_over_under_traffic(redrive):
    with Handler(lambda d: Reply(200, hang=True)) as old, Handler() as new:
        with Server(redrive, route("r", "t", old.url, concurrency=1, **OFF)) as server:
            server.publish("t", b"first")
            until(lambda: len(old.deliveries) == 1, why="a call is open at the old host")
            reload(server, config(route("r", "t", new.url, concurrency=1, **OFF)), "reloaded")
            server.publish("t", b"second")
            until(lambda: len(new.deliveries) == 1, why="the new host is asked at once")
            until(lambda: server.counts("r")["acked"] == 1, why="acked")
            equal(server.counts("r")["in_flight"], 1, "the open call goes on")
            old.release()
            until(lambda: server.counts("r")["acked"] == 2, why="and ends where it began")
            equal((len(old.deliveries), len(new.deliveries)), (1, 1), "calls")


# ---- tokens ----

@contextlib.contextmanager
def with_tokens(redrive, *routes, **keys):
    directory = Path(tempfile.mkdtemp(prefix="redrive-e2e-"))
    file, tokens = directory / "tokens.yaml", {}
    for name, role, scope in (("v", "viewer", []), ("e", "reader", []), ("o", "operator", []), ("p", "approver", []), ("a", "admin", []),
                              ("scoped", "operator", ["one"])):
        done = run(redrive, "token", "add", name, "--role", role, *(x for r in scope for x in ("--route", r)), "--tokens-file", str(file))
        equal(done.returncode, 0, f"token add: {done}")
        tokens[name] = done.stdout.split()[-1]
    server = Server(redrive, *routes, directory=directory, start=False, **{"security": {"tokens_file": "tokens.yaml"}, **keys})
    server.own = True
    try:
        yield server, tokens, file
    finally:
        server.close()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@test
def roles_and_scopes_are_kept(redrive):
    # pitfall: rights are found missing in the middle of an error path: they are one table, and the answer says which role is needed
    with Handler(lambda d: 422 if d.body == b"dies" else 200) as handler:
        one, two = route("one", "t1", handler.url, **OFF), route("two", "t2", handler.url, **OFF)
        with with_tokens(redrive, one, two) as (server, tokens, file):
            equal(stat.S_IMODE(file.stat().st_mode), 0o600, "mode of the tokens file")
            for token in tokens.values():
                assert token not in file.read_text(), "a token is stored as its hash"
            server.start()
            equal(server.get("/healthz").status, 200, "healthz without a token")
            equal(server.get("/readyz").status, 200, "readyz without a token")
            for path in ("/v1/routes", "/v1/whoami", "/metrics", "/v1/dead-letters", "/v1/messages/t1-0-0"):
                equal(server.get(path).status, 401, f"{path} without a token")
                for wrong in ("Bearer nonsense", "Bearer ", "Basic " + base64.b64encode(b"a:b").decode(), tokens["a"], "Bearer " + tokens["a"] + "x"):
                    equal(server.get(path, {"Authorization": wrong}).status, 401, f"{path} with {wrong[:12]}")

            def ask(name, method, path, body=None):
                return server.request(method, path, body, bearer(tokens[name])).status
            equal(ask("a", "POST", "/v1/topics/t1/messages", b"fine"), 201, "publish as admin")
            equal(ask("o", "POST", "/v1/topics/t1/messages", b"dies"), 201, "publish as operator")
            equal(ask("o", "POST", "/v1/topics/t2/messages", b"dies"), 201, "publish as operator")
            letters = until(lambda: [l for l in server.get("/v1/dead-letters", bearer(tokens["e"])).json()["items"]] or None, why="letters")
            letters = until(lambda: len(server.get("/v1/dead-letters", bearer(tokens["e"])).json()["items"]) == 2 and
                            server.get("/v1/dead-letters", bearer(tokens["e"])).json()["items"], why="both letters")
            of = {l["route"]: l["id"] for l in letters}
            table = [  # request, the roles that may
                (("GET", "/v1/routes"), "veopa"), (("GET", "/v1/routes/one"), "veopa"), (("GET", "/metrics"), "veopa"),
                (("GET", "/v1/dead-letters"), "veopa"), (("GET", "/v1/messages/t1-0-0"), "eopa"), (("GET", "/v1/messages?key=k&route=one"), "eopa"),
                (("GET", f"/v1/dead-letters/{of['one']}/body"), "eopa"), (("POST", "/v1/topics/t1/messages", b"x"), "opa"),
                (("POST", "/v1/routes/one/pause"), "opa"), (("POST", "/v1/routes/one/resume"), "opa"),
            ]
            for asked, may in table:
                for name in "veopa":
                    status = ask(name, *asked)
                    assert status < 300 if name in may else status == 403, (asked, name, status)
            answer = server.request("POST", "/v1/routes/one/pause", None, bearer(tokens["v"]))
            assert "operator" in answer.json()["detail"], answer
            # a viewer sees that there are letters, not what is in them
            server.request("POST", "/v1/topics/t1/messages", b"dies", {**bearer(tokens["a"]), "Redrive-Key": "secret-key", "Redrive-Header-H": "secret-header"})
            until(lambda: b"secret-key" in server.get("/v1/dead-letters", bearer(tokens["e"])).body, why="a reader sees the key")
            for path in ("/v1/dead-letters", f"/v1/dead-letters/{of['one']}"):
                seen = server.get(path, bearer(tokens["v"])).body
                assert b"secret" not in seen, f"a viewer sees {seen}"
            # scope
            equal(server.get("/v1/whoami", bearer(tokens["scoped"])).json(), {"name": "scoped", "role": "operator", "routes": ["one"]}, "whoami")
            equal(server.get("/v1/whoami", bearer(tokens["a"])).json(), {"name": "a", "role": "admin", "routes": []}, "whoami")
            equal([r["name"] for r in server.get("/v1/routes", bearer(tokens["scoped"])).json()["items"]], ["one"], "list in scope")
            equal({l["route"] for l in server.get("/v1/dead-letters", bearer(tokens["scoped"])).json()["items"]}, {"one"}, "letters in scope")
            for asked in (("GET", "/v1/routes/two"), ("POST", "/v1/routes/two/pause"), ("POST", "/v1/topics/t2/messages", b"x"),
                          ("GET", f"/v1/dead-letters/{of['two']}"), ("GET", f"/v1/dead-letters/{of['two']}/body")):
                assert ask("scoped", *asked) in (403, 404), (asked, ask("scoped", *asked))
            server.request("POST", "/v1/topics/t2/messages", b"x", {**bearer(tokens["a"]), "Redrive-Key": "k", "Redrive-Delay": "1h"})
            equal(len(server.get("/v1/messages?key=k&route=two", bearer(tokens["a"])).json()["items"]), 1, "found by its key")
            equal(server.get("/v1/messages?key=k&route=two", bearer(tokens["scoped"])).json().get("items", []), [], "in scope by key, too")
            equal([r["route"] for r in server.get("/v1/messages/t2-0-0", bearer(tokens["scoped"])).json().get("routes", [])], [], "where is in scope")
            seen = server.get("/metrics", bearer(tokens["scoped"])).body
            assert b'route="one"' in seen and b'route="two"' not in seen, "metrics are in scope"
            # approving
            plan = server.request("POST", "/v1/replays", {"ids": [of["one"]]}, bearer(tokens["o"]))
            equal(plan.status, 201, f"{plan}")
            plan = plan.json()
            approve = f"/v1/replays/{plan['id']}/approve"
            equal(server.request("POST", approve, {"digest": plan["digest"]}, bearer(tokens["o"])).status, 403, "an operator does not approve")
            equal(server.request("POST", approve, {"digest": plan["digest"]}, bearer(tokens["p"])).status, 200, "an approver does")
            equal(server.request("POST", "/v1/replays", {"ids": [of["two"]]}, bearer(tokens["scoped"])).status in (403, 404, 422), True, "no plan out of scope")
            both = server.request("POST", "/v1/replays", {"q": "reason:rejected"}, bearer(tokens["a"])).json()
            answer = server.request("POST", f"/v1/replays/{both['id']}/approve", {"digest": both["digest"]}, bearer(tokens["a"]))
            equal((answer.status, "author" in answer.json()["detail"]), (403, True), "nobody approves his own plan")
            equal(ask("scoped", "GET", f"/v1/replays/{both['id']}"), 404, "a plan over other routes, too")
            equal(ask("scoped", "GET", f"/v1/replays/{both['id']}/letters"), 404, "its letters")
            equal(server.request("POST", f"/v1/replays/{both['id']}/cancel", {}, bearer(tokens["scoped"])).status, 404, "its verbs")
            assert both["id"] not in server.get("/v1/replays", bearer(tokens["scoped"])).body.decode(), "the list"
            mine = server.request("POST", "/v1/replays", {"q": "reason:rejected"}, bearer(tokens["scoped"])).json()
            equal(mine["selected"], both["selected"] - 1, "a query takes what is in scope")
            equal(ask("scoped", "GET", f"/v1/replays/{mine['id']}"), 200, "a plan of its own")
            equal(server.request("POST", "/v1/replays", {"q": "reason:rejected", "target": {"route": "two"}}, bearer(tokens["scoped"])).status, 403, "target")
            # the command line sends it, too
            there = ("--server", f"http://127.0.0.1:{server.port}")
            equal(run(redrive, "status", *there).returncode, 5, "without a token")
            equal(run(redrive, "status", *there, environment={"REDRIVE_TOKEN": tokens["v"]}).returncode, 0, "from the environment")
            (server.directory / "token").write_text(tokens["v"] + "\n")
            equal(run(redrive, "status", *there, "--token-file", str(server.directory / "token")).returncode, 0, "from a file")
            equal(run(redrive, "routes", "pause", "one", *there, environment={"REDRIVE_TOKEN": tokens["v"]}).returncode, 5, "not as viewer")
            # a removed token ends at the next reload
            equal(run(redrive, "token", "rm", "o", "--tokens-file", str(file)).returncode, 0, "rm")
            equal(run(redrive, "token", "rm", "o", "--tokens-file", str(file)).returncode, 3, "rm twice")
            equal(ask("scoped", "POST", "/v1/topics/t1/messages", b"fine"), 201, "a scope publishes to what its routes read")
            server.write_config(config(two, security={"tokens_file": "tokens.yaml"}))
            server.signal(signal.SIGHUP)
            until(lambda: ask("o", "GET", "/v1/routes") == 401, why="the removed token is refused")
            equal(ask("scoped", "POST", "/v1/topics/t1/messages", b"fine"), 403, "that route is gone")
            assert not any(t in server.log() for t in tokens.values()), "no token in the log"


@test
def a_public_address_needs_tokens_and_tls(redrive):
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}, start=False) as server:
        server.spawn("0.0.0.0:0")
        equal(server.process.wait(30), 6, "exit code")
        assert "redrive token add" in server.log() and "behind_tls_proxy" in server.log(), server.log()
        run(redrive, "token", "add", "x", "--role", "admin", "--tokens-file", str(server.directory / "tokens.yaml"))
        server.write_config(config(security={"tokens_file": "tokens.yaml"}))
        server.spawn("0.0.0.0:0")
        equal(server.process.wait(30), 6, "tokens alone do not do")
        server.write_config(config(security={"tokens_file": "tokens.yaml", "behind_tls_proxy": True}))
        server.start("0.0.0.0:0")
        equal(server.get("/v1/routes").status, 401, "it asks for a token")
        equal(server.stop(), 0, "exit code")


@test
def foreign_hosts_and_origins_are_refused(redrive):
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}, security={"hosts": ["redrive.example"]}) as server:
        for headers, status in (({"Host": "evil.example"}, 403), ({"Host": "redrive.example"}, 200), ({"Host": "localhost"}, 200), ({"Host": "127.0.0.1:80"}, 200),
                                ({"Host": "[::1]:80"}, 200), ({"Origin": "null"}, 403), ({"Origin": "http://evil.example"}, 403),
                                ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403), ({"Sec-Fetch-Site": "same-origin"}, 200),
                                ({"Host": "127.0.0.1.evil.example"}, 403), ({"Host": ""}, 403), ({"Host": "localhost.evil"}, 403)):
            equal(server.get("/v1/routes", headers).status, status, f"{headers}")


# ---- TLS, systemd, files ----

@test
def tls_serves_and_the_command_line_checks_the_certificate(redrive):
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}, start=False,
                security={"tls": {"cert_file": "c.pem", "key_file": "k.pem"}}) as server:
        d = server.directory
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(d / "k.pem"), "-out", str(d / "c.pem"), "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)
        server.spawn()
        server.port = until(server.bound_port, why="the port file")
        url = f"https://127.0.0.1:{server.port}"
        until(lambda: f"ready at {url}" in server.log(), why="the log names https")
        done = subprocess.run(["curl", "-sS", "--cacert", str(d / "c.pem"), f"{url}/healthz"], capture_output=True, text=True)
        equal((done.returncode, json.loads(done.stdout)), (0, {"status": "alive"}), f"curl: {done.stderr}")
        equal(subprocess.run(["curl", "-sS", f"{url}/healthz"], capture_output=True).returncode, 60, "curl does not trust it without")
        equal(run(redrive, "status", "--server", url).returncode, 4, "the command line does not, either")
        equal(run(redrive, "status", "--server", url, "--ca-file", str(d / "c.pem")).returncode, 0, "with the certificate")
        equal(run(redrive, "status", environment={"REDRIVE_SERVER": url, "REDRIVE_CA_FILE": str(d / "c.pem")}).returncode, 0, "from the environment")
        with socket.create_connection(("127.0.0.1", server.port)) as plain:  # plain text at the TLS port
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            plain.settimeout(10)
            with contextlib.suppress(ConnectionError):
                assert not plain.recv(100).startswith(b"HTTP/1.1 200")
        equal(server.stop(), 0, "exit code")
        (d / "k.pem").write_text("no key")
        server.spawn()
        assert server.process.wait(30) in (1, 6), server.log()


@test
def systemd_is_told(redrive):
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}, start=False) as server:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(server.directory / "notify"))
            manager.settimeout(20)
            server.environment = {"NOTIFY_SOCKET": str(server.directory / "notify"), "WATCHDOG_USEC": "600000"}
            server.start()
            equal(manager.recv(4096), b"READY=1", "first")
            equal(manager.recv(4096), b"WATCHDOG=1", "a sign of life")
            server.signal(signal.SIGHUP)
            said = []
            while "READY=1" not in said:
                said.append(manager.recv(4096).decode())
            assert any(s.startswith("RELOADING=1") for s in said), said
            assert any("MONOTONIC_USEC=" in s for s in said), f"a reload tells its time, or systemd's notify-reload does not count it: {said}"
            equal(server.stop(), 0, "exit code")
            with contextlib.suppress(socket.timeout):
                while "STOPPING=1" not in said:
                    said.append(manager.recv(4096).decode())
            assert "STOPPING=1" in said, said


@test
def it_runs_without_a_configuration(redrive):
    directory = Path(tempfile.mkdtemp(prefix="redrive-e2e-"))
    with Server(redrive, directory=directory, start=False) as server:
        server.own = True
        process = subprocess.Popen([redrive, "serve", "--listen", "127.0.0.1:0", "--port-file", "port"], cwd=directory, stderr=subprocess.PIPE, text=True)
        try:
            server.config_file.unlink()
        finally:
            process.kill()
            process.communicate()
        process = subprocess.Popen([redrive, "serve", "--listen", "127.0.0.1:0", "--port-file", "port"], cwd=directory, stderr=subprocess.PIPE, text=True)
        try:
            line = process.stderr.readline()
            port = int((directory / "port").read_text())
            equal(line, f"redrive: ready at http://127.0.0.1:{port}\n", "what it says")
            equal(request(port, "GET", "/v1/routes").json(), {"items": [], "next": None}, "no routes")
            equal(request(port, "POST", "/v1/topics/t/messages", b"x").status, 404, "nobody reads the topic")
            equal(stat.S_IMODE((directory / "redrive-data").stat().st_mode), 0o700, "mode of the data directory")
            equal([f.name for f in directory.iterdir() if f.name.startswith("port")], ["port"], "the port file came atomically")
            process.terminate()
            equal(process.wait(30), 0, "exit code")
        finally:
            process.kill()
            process.communicate()


# ---- the command line ----

BROKEN = """\
listen: 127.0.0.1:7337
routes:
  - name: Bad Name
    source: { topic: t, partitions: 0 }
    handler: { http: { url: "ftp://x/" } }
    retry: { attempts: 0, jitter: 150% }
    retry: { attempts: 1 }
    ordr: key
"""


@test
def check_names_every_mistake_with_its_place(redrive):
    # pitfall: a limit of 0 or below sends everything to the dead letters, or is replaced in silence
    with tempfile.TemporaryDirectory() as d:
        file = Path(d) / "x.yaml"
        file.write_text(BROKEN)
        for arguments in (("check", str(file)), ("serve", "--config", str(file), "--data", f"{d}/data")):
            done = run(redrive, *arguments)
            equal(done.returncode, 6, f"{arguments}: {done}")
            lines = [l for l in done.stderr.splitlines() if l.startswith(f"{file}:")]
            places = {int(l[len(str(file)) + 1:].split(":")[0]) for l in lines}
            for line in (3, 4, 5, 6, 7, 8):
                assert line in places, (line, done.stderr)
            assert "did you mean 'order'" in done.stderr and "1 to" in done.stderr, done.stderr
        assert not (Path(d) / "data").exists(), "nothing is made"
        equal(run(redrive, "check", f"{d}/missing.yaml").returncode in (1, 3, 6), True, "a missing file")
        for text in ("", "[]", "a: &a [*a]", "\0", "x: \xff", "routes: 5", "{" * 500, "a: " + "b" * 100000):
            file.write_bytes(text.encode("latin-1"))
            assert run(redrive, "check", str(file)).returncode in (0, 6), text[:20]


GOOD = {"name": "r", "source": {"topic": "t"}, "handler": {"http": {"url": "http://127.0.0.1:9/"}},
        "retry": {"attempts": 4, "backoff": "exponential", "base": "1s", "factor": 2, "cap": "3s", "jitter": "50%"}}


@test
def effective_configuration_and_schedule_are_printed(redrive):
    # pitfall: two ways to configure have different defaults: there is one table, and it is printed
    with tempfile.TemporaryDirectory() as d:
        file = Path(d) / "x.yaml"
        file.write_text(config(GOOD, {**GOOD, "name": "s"}))
        done = run(redrive, "check", "--effective", str(file))
        equal(done.returncode, 0, f"{done}")
        for text in ("attempts: 4", "max_age: 7d", "concurrency: 64", "127.0.0.1:7337", "partitions: 4", "timeout: 30s"):
            assert text in done.stdout, (text, done.stdout)
        again = Path(d) / "again.yaml"
        again.write_text(done.stdout)
        twice = run(redrive, "check", "--effective", str(again))
        equal((twice.returncode, twice.stdout.replace(f"{d}/redrive-data", "./redrive-data")), (0, done.stdout), "what is printed is a configuration that means the same")
        done = run(redrive, "explain", "-o", "json", "--route", "r", str(file))
        equal(json.loads(done.stdout), {"r": [{"attempt": 1, "earliest_ms": 0, "latest_ms": 0}, {"attempt": 2, "earliest_ms": 1000, "latest_ms": 1500},
                                              {"attempt": 3, "earliest_ms": 2000, "latest_ms": 3000}, {"attempt": 4, "earliest_ms": 3000, "latest_ms": 4500}]}, "schedule")
        equal(run(redrive, "explain", "--route", "nobody", str(file)).returncode, 3, "no such route")
        equal(run(redrive, "explain", str(file)).returncode, 0, "text")


@test
def the_command_line_does_what_the_api_does(redrive):
    with Handler(lambda d: 422 if d.body == b"dies" else 500 if d.body == b"waits" else 200) as handler:
        with Server(redrive, route("r", "t", handler.url, retry={"base": "1h", "min": "1h"}, **OFF)) as server:
            cli = server.cli
            done = cli("publish", "t", "--key", "k\u00e4", "--id", "evt-1", "-H", "Name=v\u00e4lue", "-t", "text/x", "-o", "json", input="waits")
            equal(done.returncode, 0, f"{done}")
            id = json.loads(done.stdout)["id"]
            delivery = until(lambda: handler.deliveries, why="delivered")[0]
            equal((delivery.body, delivery.key, delivery.headers["Redrive-Header-Name"], delivery.headers["Content-Type"], delivery.headers["Idempotency-Key"]),
                  (b"waits", "k%C3%A4", "v%C3%A4lue", "text/x", "evt-1"), "what arrives")
            until(lambda: server.state(id) == "waiting", why="waiting")
            equal(json.loads(cli("publish", "t", "--id", "evt-1", "-o", "json", input="other").stdout)["duplicate"], True, "duplicate")
            equal(len(cli("publish", "t", "--lines", input="a\nb\ndies\n").stdout.splitlines()) >= 1, True, "lines")
            cli("publish", "t", "--id", "evt-2", input="dies")
            until(lambda: len(server.letters()) == 2, why="the letters")
            letter, other = (next(l for l in server.letters() if l["publish_id"] == id) for id in (None, "evt-2"))
            assert re.search(r"^publish_id +evt-2$", cli("dead", "show", other["id"]).stdout, re.MULTILINE), "the producer's id is shown"
            assert other["id"] in cli("where", "evt-2").stdout, "the producer's id leads to the letter"
            until(lambda: server.counts("r")["acked"] == 2, why="acked")
            same = {  # "-o json prints exactly what the API returns"
                ("where", id): f"/v1/messages/{id}", ("where", "evt-1"): "/v1/messages/evt-1", ("where", "--key", "k\u00e4"): "/v1/messages?key=k%C3%A4",
                ("routes", "ls"): "/v1/routes", ("status",): "/v1/routes", ("routes", "show", "r"): "/v1/routes/r", ("dead", "ls"): "/v1/dead-letters",
                ("dead", "ls", "reason:rejected"): "/v1/dead-letters?q=reason%3Arejected", ("dead", "show", letter["id"]): f"/v1/dead-letters/{letter['id']}",
            }

            def still(value):  # what moves between two questions
                if isinstance(value, dict):
                    return {k: still(v) for k, v in value.items() if k not in ("oldest_unfinished_ms", "budget", "spent_ratio", "next_due_ms")}
                if isinstance(value, str) and value[10:11] == "T" and value.endswith("Z"):
                    return value[:21]  # a due time is counted from two clocks, and may differ by a millisecond
                return [still(v) for v in value] if isinstance(value, list) else value
            for arguments, path in same.items():
                done = cli(*arguments, "-o", "json")
                equal(done.returncode, 0, f"{arguments}: {done}")
                equal(still(json.loads(done.stdout)), still(server.get(path).json()), f"{arguments}")
                table = cli(*arguments)
                equal(table.returncode, 0, f"{arguments} as a table")
                assert "\x1b" not in table.stdout, "NO_COLOR"
            equal(cli("dead", "body", letter["id"]).stdout, "dies", "body")
            equal(json.loads(cli("routes", "pause", "r", "-o", "json").stdout)["state"], "paused", "pause")
            equal(cli("routes", "resume", "r").returncode, 0, "resume")
            done = cli("replay", "plan", letter["id"])
            assert "next: redrive replay approve " in done.stdout, done
            done = cli("replay", "plan", letter["id"], "--target", "nobody")
            assert "cannot be approved: no such route: nobody" in done.stdout and "--target ROUTE" in done.stdout and "replay approve" not in done.stdout, done
            equal(cli(*done.stdout.split("and redrive ")[1].split()).returncode, 0, "what it says can be done")
            plan = json.loads(cli("replay", "plan", letter["id"], "-o", "json").stdout)
            equal(plan["selected"], 1, "selected")
            equal(cli("replay", "start", plan["id"]).returncode, 6, "start before approve is a conflict")
            equal(cli("replay", "approve", plan["id"], "--digest", "nonsense").returncode, 6, "another digest")
            equal(cli("replay", "approve", plan["id"], "--digest", plan["digest"]).returncode, 0, "approve")
            handler.answer = None
            equal(cli("replay", "start", plan["id"]).returncode, 0, "start")
            until(lambda: json.loads(cli("replay", "show", plan["id"], "-o", "json").stdout)["state"] == "finished", why="finished")
            equal(json.loads(cli("replay", "ls", "-o", "json").stdout)["items"][0]["result"]["acked"], 1, "acked")
            equal(cli("revoke", id, "--reason", "test").returncode, 0, "revoke")
            equal(server.state(id) in ("revoked", "dead"), True, "revoked")
            assert "producer's id" in cli("where", "no-such-id").stderr, "what it may have been"
            # exit codes
            for arguments, code in ((("where", "t-0-999"), 3), (("where", "no-such-id"), 3), (("routes", "show", "nobody"), 3), (("routes", "pause", "nobody"), 3),
                                    (("dead", "show", "a" * 26), 3), (("replay", "show", "99"), 3), (("publish", "nobody-reads-it"), 3),
                                    (("where",), 2), (("nonsense",), 2), (("dead", "nonsense"), 2), (("status", "--nonsense"), 2), (("status", "-o", "xml"), 2),
                                    (("publish", "t", "-H", "no-value"), 2), (("publish", "t", "-H", "a: b=c"), 2), (("publish", "t", "--id", "a\nX: y"), 2),
                                    (("dead", "ls", "nonsense:x"), 6), (("publish", "t", "--delay", "10"), 6), (("status", "--server", "http://127.0.0.1:1"), 4),
                                    (("routes", "discard", "r"), 2), (("routes", "discard", "r", "--yes"), 3), ((), 2), (("help",), 0), (("--version",), 0)):
                done = cli(*arguments, input="")
                equal(done.returncode, code, f"{arguments}: {done.stderr[-300:]}")
                assert code in (0,) or done.stderr, f"{arguments} says nothing"
            for command in ("serve", "publish", "where", "dead ls", "replay plan", "journal check", "token add", "top", "demo"):
                equal(cli(*command.split(), "--help").returncode, 0, f"{command} --help")
            equal(cli("top", "--limit", "1").returncode, 0, "top")
            script = cli("completion", "bash")
            equal((script.returncode, subprocess.run(["bash", "-n"], input=script.stdout, text=True, capture_output=True).returncode), (0, 0), "completion")


@test
def every_route_is_listed_however_many(redrive):
    routes = [{"name": f"r{i:04}", "source": {"topic": "t", "partitions": 1}, "handler": {"lease": {}}} for i in range(1050)]
    with Server(redrive, *routes) as server:
        listed = json.loads(server.cli("routes", "ls", "-o", "json").stdout)
        equal((len({r["name"] for r in listed["items"]}), len(listed["items"]), listed["next"]), (1050, 1050, None), "routes ls")
        equal(sum(line.startswith("r") and line[1:5].isdigit() for line in server.cli("status").stdout.splitlines()), 1050, "status")


@test
def openapi_lists_every_operation_that_answers(redrive):
    with Server(redrive, {"name": "r", "source": {"topic": "t"}, "handler": {"lease": {}}}) as server:
        api = server.get("/openapi.json").json()
        assert api["openapi"].startswith("3.") and len(api["paths"]) > 15, api.get("openapi")
        for path, operations in api["paths"].items():
            for method in operations:
                filled = path
                while "{" in filled:
                    filled = filled[:filled.index("{")] + "none" + filled[filled.index("}") + 1:]
                answer = server.request(method.upper(), filled, b"{}" if method == "post" else None)
                assert answer.status not in (405, 500, 501) and answer.headers["Redrive-Version"], (method, path, answer)
                if answer.status >= 400:
                    problem = answer.json()
                    equal(answer.headers["Content-Type"], "application/problem+json", f"{method} {path}")
                    assert problem["status"] == answer.status and problem["title"] and problem["detail"] and problem["instance"], (path, problem)
        equal(server.get("/v1/routes?nonsense=1").status, 400, "unknown parameters are errors")
        equal(server.get("/v1/routes?limit=0").status, 400, "limit")
        equal(server.get("/v1/routes?cursor=zzz").status, 400, "cursor")


if __name__ == "__main__":
    main()
