"""lib.py - what the end-to-end tests share: a server, a scripted handler, HTTP, waiting. Standard library only.

    from lib import Handler, Server, main, test, until

    @test
    def message_is_delivered_once(redrive):
        with Handler() as handler, Server(redrive, route("orders", "order.create", handler.url)) as server:
            answer = server.publish("order.create", b"hello", key="k-1")
            until(lambda: handler.deliveries)
            ...

    if __name__ == "__main__":
        main()

Every function marked @test is one test: it gets the path of the program, and fails by any exception. main() prints
`ok NAME` or `not ok NAME: why` for each and exits 1 if one failed. `python3 FILE --redrive build/redrive NAME...` runs
only the named ones. Nothing sleeps a fixed time to wait: until() asks again until a condition holds or a deadline is over.
"""
import argparse
import collections
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.parse
from pathlib import Path

DEADLINE = 30.0  # seconds; a slow machine under a sanitizer needs some
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--redrive", default="build/redrive")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    program = str(Path(given.redrive).resolve())
    failed = 0
    for function in TESTS:
        if given.names and function.__name__ not in given.names:
            continue
        try:
            function(program)
            print(f"ok {function.__name__}", flush=True)
        except Exception as error:  # a failing test, whatever it raised
            failed += 1
            traceback.print_exc()
            sys.stderr.flush()
            why = " ".join(f"{type(error).__name__}: {error}".split())
            print(f"not ok {function.__name__}: {why[:300]}", flush=True)
    sys.exit(1 if failed else 0)


def until(condition, seconds=DEADLINE, why="condition"):
    """The first true value of condition(); an error when the deadline is over."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {why}")
        time.sleep(0.01)


def equal(found, wanted, what="value"):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


def route(name, topic, url, **keys):
    """One route of a configuration; keys as in the file. Values are written as JSON, which is YAML."""
    http_handler = {"url": url, **keys.pop("http", {})}
    return {"name": name, "source": {"topic": topic, **keys.pop("source", {})}, "handler": {"http": http_handler}, **keys}


def config(*routes, **keys):
    """The text of a configuration file."""
    return json.dumps({"routes": list(routes), **keys}, indent=1, ensure_ascii=False)


# ---- HTTP ----

class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


def request(port, method, path, body=None, headers=None, timeout=DEADLINE):
    """One request on its own connection. A dict as body is sent as JSON. No header is sent that the test did not ask for,
    but Host, Content-Length and, for a dict, Content-Type."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    headers = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
        headers.setdefault("Content-Type", "application/json")
    try:
        connection.request(method, path, body=body, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


def quote(text):
    return urllib.parse.quote(text, safe="")


# ---- the server under test ----

class Server:
    """`redrive serve` on a free port. With no `directory`, one is made and removed at the end; what is kept of it from
    one start to the next (kill, start) is the data directory. Use as a context."""

    def __init__(self, redrive, *routes, text=None, directory=None, arguments=(), environment=None, start=True, **keys):
        self.redrive, self.arguments, self.environment = redrive, list(arguments), environment or {}
        self.own = directory is None
        self.directory = Path(directory or tempfile.mkdtemp(prefix="redrive-e2e-"))
        self.config_file = self.directory / "redrive.yaml"
        self.log_file = self.directory / "server.log"
        self.process, self.port = None, None
        self.write_config(text if text is not None else config(*routes, **keys))
        if start:
            self.start()

    def write_config(self, text):
        self.config_file.write_text(text)

    def spawn(self, listen="127.0.0.1:0"):
        """Starts the process and does not wait."""
        (self.directory / "port").unlink(missing_ok=True)
        command = [self.redrive, "serve", "--config", str(self.config_file), "--data", str(self.directory / "data"),
                   "--listen", listen, "--port-file", str(self.directory / "port"), *self.arguments]
        with open(self.log_file, "ab") as log:
            self.process = subprocess.Popen(command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env={**os.environ, **self.environment})
        return self

    def start(self, listen="127.0.0.1:0"):
        self.spawn(listen)
        try:
            self.port = until(self.bound_port, why="the port file")
            until(self.is_ready, why="/readyz is 200")
        except BaseException:
            self.close()
            raise
        return self

    def bound_port(self):
        if self.process.poll() is not None:
            raise AssertionError(f"serve ended with {self.process.returncode}: {self.log()[-1000:]}")
        file = self.directory / "port"
        return int(file.read_text()) if file.exists() else None

    def is_ready(self):
        try:
            return self.get("/readyz").status == 200
        except OSError:
            return False

    def log(self):
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """kill -9, and gone."""
        self.process.kill()
        self.process.wait(DEADLINE)

    def stop(self, seconds=60):
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill()
        if self.own:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            print(f"--- log of the server\n{self.log()[-4000:]}", file=sys.stderr, flush=True)
        self.close()

    # What tests ask again and again.

    def request(self, method, path, body=None, headers=None, timeout=DEADLINE):
        return request(self.port, method, path, body, headers, timeout)

    def get(self, path, headers=None):
        return self.request("GET", path, headers=headers)

    def publish(self, topic, body, key=None, id=None, headers=None):
        """Publishes and insists on success; the answer's JSON. `key` is text or bytes."""
        send = dict(headers or {})
        if key is not None:
            send["Redrive-Key"] = urllib.parse.quote(key, safe="")
        if id is not None:
            send["Redrive-Id"] = id
        answer = self.request("POST", f"/v1/topics/{topic}/messages", body, send)
        if answer.status not in (200, 201):
            raise AssertionError(f"publish: {answer}")
        return answer.json()

    def publish_lines(self, topic, items):
        """A batch; each item a dict as in the API. The answer's JSON."""
        body = "".join(json.dumps(item) + "\n" for item in items).encode()
        answer = self.request("POST", f"/v1/topics/{topic}/messages", body, {"Content-Type": "application/x-ndjson"})
        if answer.status not in (200, 201):
            raise AssertionError(f"publish: {answer}")
        return answer.json()

    def message(self, id):
        answer = self.get(f"/v1/messages/{quote(id)}")
        equal(answer.status, 200, f"status of message {id}")
        return answer.json()

    def state(self, id, route=None):
        """The state of a message at its (only) route."""
        routes = [row for row in self.message(id)["routes"] if route in (None, row["route"])]
        return routes[0]["state"] if routes else None

    def route(self, name):
        answer = self.get(f"/v1/routes/{quote(name)}")
        equal(answer.status, 200, f"status of route {name}")
        return answer.json()

    def counts(self, name):
        """The account of a route; it must add up at every moment it is looked at."""
        counts = self.route(name)["counts"]
        equal(counts["received"], sum(value for state, value in counts.items() if state != "received"),
              f"received against the sum of {counts}")
        return counts

    def letters(self, query=""):
        answer = self.get(f"/v1/dead-letters?limit=1000{query}")
        equal(answer.status, 200, "status of dead-letters")
        return answer.json()["items"]

    def cli(self, *arguments, input=None, timeout=60):
        """A command of the program against this server: CompletedProcess with text."""
        return subprocess.run([self.redrive, *arguments], input=input, capture_output=True, text=True, timeout=timeout, cwd=self.directory,
                              env={**os.environ, "REDRIVE_SERVER": f"http://127.0.0.1:{self.port}", "NO_COLOR": "1"})


# ---- the handler ----

class Delivery:
    """One request that the handler got."""

    def __init__(self, number, method, path, headers, body):
        self.number = number  # from 0, in the order of arrival
        self.method, self.path, self.headers, self.body = method, path, headers, body
        self.at = time.monotonic()
        self.done_at = None   # when the answer had been sent

    @property
    def id(self):
        return self.headers.get("Redrive-Message-Id")

    @property
    def key(self):
        return self.headers.get("Redrive-Key")

    @property
    def attempt(self):
        return int(self.headers.get("Redrive-Attempt", "0"))

    def __repr__(self):
        return f"<{self.id} attempt {self.attempt} key {self.key} {self.body[:60]!r}>"


class Reply:
    """What the handler answers: status, headers, body, after `delay` seconds; `hang` = not before the handler is closed
    or released; `close` = the connection is closed without an answer."""

    def __init__(self, status=200, headers=None, body=b"", delay=0.0, hang=False, close=False):
        self.status, self.headers, self.body = status, headers or {}, body
        self.delay, self.hang, self.close = delay, hang, close


class Handler:
    """A handler's HTTP server with threads, on a free port.

    What it answers: the next reply of script(...) for the message's body (or for None: any message), else what the
    function `answer(delivery)` returns, else 200. Every delivery is kept in `deliveries`, in the order of arrival.
    down() refuses connections from then on, up() listens on the same port again.
    """

    def __init__(self, answer=None):
        self.answer = answer
        self.deliveries, self.lock = [], threading.Lock()
        self.scripts = collections.defaultdict(collections.deque)
        self.released = threading.Event()
        self.port, self.server, self.thread = 0, None, None
        self.up()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    def script(self, *replies, body=None):
        """Queues replies (Reply or a status) for one body, or for any message."""
        with self.lock:
            self.scripts[body].extend(r if isinstance(r, Reply) else Reply(r) for r in replies)

    def of(self, id):
        """The deliveries of one message."""
        return [delivery for delivery in list(self.deliveries) if delivery.id == id]

    def bodies(self):
        return [delivery.body for delivery in list(self.deliveries)]

    def release(self):
        """Ends every wait of a hanging reply, now and later."""
        self.released.set()

    def choose(self, delivery):
        with self.lock:
            for body in (delivery.body, None):
                if self.scripts.get(body):
                    return self.scripts[body].popleft()
        chosen = self.answer(delivery) if self.answer else None
        return chosen if isinstance(chosen, Reply) else Reply(chosen or 200)

    def up(self):
        self.server = HandlerServer(self.port, self)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def down(self):
        """Nobody listens, and open connections are cut."""
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server.cut()
            self.thread.join()
            self.server = None

    def close(self):
        self.release()
        self.down()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if error is not None:
            print(f"--- last deliveries of {len(self.deliveries)}\n{self.deliveries[-20:]}", file=sys.stderr, flush=True)
        self.close()


class HandlerServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    allow_reuse_address = True

    def __init__(self, port, handler):
        self.handler, self.open, self.open_lock = handler, set(), threading.Lock()
        super().__init__(("127.0.0.1", port), HandlerRequest)

    def handle_error(self, request, address):
        pass  # the other side broke the connection; the test looks at what was delivered

    def cut(self):
        with self.open_lock:
            for connection in self.open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


class HandlerRequest(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept
    disable_nagle_algorithm = True

    def setup(self):
        super().setup()
        with self.server.open_lock:
            self.server.open.add(self.connection)

    def finish(self):
        with self.server.open_lock:
            self.server.open.discard(self.connection)
        super().finish()

    def handle_any(self):
        handler = self.server.handler
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with handler.lock:
            delivery = Delivery(len(handler.deliveries), self.command, self.path, self.headers, body)
            handler.deliveries.append(delivery)
        reply = handler.choose(delivery)
        if reply.delay:
            time.sleep(reply.delay)
        if reply.hang:
            handler.released.wait()
        if reply.close:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status != 204:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)
        delivery.done_at = time.monotonic()

    do_POST = do_PUT = do_GET = handle_any

    def log_message(self, *arguments):
        pass
