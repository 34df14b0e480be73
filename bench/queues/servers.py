"""servers.py - the queues that Redrive is compared with: start one from scratch, run its client, stop it.

Each server gets a temporary directory of its own, listens on 127.0.0.1 on ports that were free a moment ago, and is killed with
its process group at the end. `run(peer, work, count)` gives the client's figures as a dict, with the server's version, the
durability that was asked for, and how many cache flushes the disk completed meanwhile: the proof that something was synced.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time


class Missing(Exception):
    """The server or its client is not installed."""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def flushes(path):
    """Cache flushes that the disk under `path` has completed; 0 where the kernel does not say."""
    device = os.stat(path).st_dev
    try:
        with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat", encoding="ascii") as f:
            return int(f.read().split()[15])
    except (OSError, IndexError):
        return 0


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def number(pattern, text):
    found = re.search(pattern, text)
    return found.group(1) if found else "?"


class Server:
    """Base: what is common. A subclass says how to prepare (once) and the command to start (also after a crash)."""
    name, durability, notes = "", "", ""
    counts = {"ack": 200000, "retry": 200000, "tenth": 200000, "backlog": 200000}
    program = None
    crash_signal = signal.SIGKILL
    user = None

    def __init__(self, place):
        self.place, self.process = place, None
        self.port, self.port2, self.port3 = free_ports(3)
        self.environment = dict(os.environ)
        if self.program and not self.executable():
            raise Missing(f"{self.program} is not installed")

    def executable(self):
        return shutil.which(self.program)

    def version(self):
        return "?"

    def prepare(self):
        pass

    def command(self):
        return None

    def start(self):
        command = self.command()
        if not command:
            return
        with open(f"{self.place}/server.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.environment,
                                            start_new_session=True, cwd=self.place, user=self.user, group=self.user,
                                            extra_groups=[] if self.user else None)
        end = time.monotonic() + 60
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > end:
                with open(f"{self.place}/server.log", encoding="utf-8", errors="replace") as log:
                    raise RuntimeError(f"{self.name} did not start: " + log.read()[-500:])
            time.sleep(0.05)

    def is_ready(self):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self):
        if not self.process:
            return
        try:
            os.killpg(self.process.pid, self.crash_signal)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process = None

    def finish(self):
        self.stop()

    def memory(self):
        """Proportional set size of the server and its children, bytes."""
        total = 0
        todo = [self.process.pid] if self.process else []
        while todo:
            pid = todo.pop()
            try:
                with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as f:
                    total += int(re.search(r"^Pss: +(\d+)", f.read(), re.M).group(1)) * 1024
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as f:
                        todo += [int(child) for child in f.read().split()]
            except OSError:
                pass
        return total


class Redrive(Server):
    name = "redrive"
    durability = "on disk (one write and fdatasync for all that arrived) before publish returns; acks on disk before the run ends"
    notes = "in the client's process, C API; batches of 1000, one at a time; 1000 out at the handler"
    counts = {"ack": 1000000, "retry": 1000000, "tenth": 1000000, "backlog": 1000000}


class Beanstalkd(Server):
    name, program = "beanstalkd", "beanstalkd"
    durability = "-f0: fsync after every put, release and delete, before its reply"
    notes = "1000 commands pipelined; it syncs per command, there is no group commit"
    counts = {"ack": 2000, "retry": 2000, "tenth": 2000, "backlog": 10000}

    def version(self):
        return number(r"([\d.]+)", output("beanstalkd", "-v"))

    def command(self):
        os.makedirs(f"{self.place}/d", exist_ok=True)
        return ["beanstalkd", "-l", "127.0.0.1", "-p", str(self.port), "-b", f"{self.place}/d", "-f", "0"]


class Redis(Server):
    name, program = "redis", "redis-server"
    durability = "appendonly, appendfsync always: fdatasync once per pass of the event loop, before the replies of that pass"
    notes = "stream + sorted set + a script that moves what is due; publishing by MULTI of 1000 XADD"

    def version(self):
        return number(r"v=([\d.]+)", output("redis-server", "--version"))

    def command(self):
        return ["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.place, "--save", "", "--appendonly",
                "yes", "--appendfsync", "always"]


class Rabbitmq(Server):
    name, program = "rabbitmq", "rabbitmq-server"
    durability = "quorum queue of one node: confirmed after the Raft entry is written and synced; acks are entries of the same log"
    notes = "1000 unconfirmed, prefetch 1000, settled in runs of up to 500; delay by a TTL queue that dead-letters back"
    counts = {"ack": 100000, "retry": 50000, "tenth": 50000, "backlog": 200000}

    def __init__(self, place):
        super().__init__(place)
        self.epmd = None

    def home(self):
        return "/usr/lib/rabbitmq/bin"

    def version(self):
        found = [d for d in os.listdir("/usr/lib/rabbitmq/lib") if d.startswith("rabbitmq_server-")]
        return found[-1].split("-")[1] if found else "?"

    def prepare(self):
        def write(name, text):
            with open(f"{self.place}/{name}", "w", encoding="ascii") as f:
                f.write(text)
        write("rabbitmq.conf", f"listeners.tcp.1 = 127.0.0.1:{self.port}\nlog.console = true\nlog.console.level = warning\nlog.file = false\n")
        write("advanced.config", "[{rabbit, [{dead_letter_worker_consumer_prefetch, 1000}]}].\n")
        write("enabled_plugins", "[].\n")
        self.environment.update(
            HOME=self.place, ERL_EPMD_ADDRESS="127.0.0.1", ERL_EPMD_PORT=str(self.port2), RABBITMQ_DIST_PORT=str(self.port3),
            RABBITMQ_NODENAME="peer@localhost", RABBITMQ_MNESIA_BASE=f"{self.place}/d", RABBITMQ_LOG_BASE=f"{self.place}/log",
            RABBITMQ_CONFIG_FILE=f"{self.place}/rabbitmq", RABBITMQ_ADVANCED_CONFIG_FILE=f"{self.place}/advanced.config",
            RABBITMQ_ENABLED_PLUGINS_FILE=f"{self.place}/enabled_plugins", RABBITMQ_CONF_ENV_FILE=f"{self.place}/none",
            RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="-kernel inet_dist_use_interface {127,0,0,1}")
        self.epmd = subprocess.Popen(["epmd", "-port", str(self.port2), "-address", "127.0.0.1"], stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)

    def command(self):
        return [f"{self.home()}/rabbitmq-server"]

    def finish(self):
        self.stop()
        if self.epmd:
            self.epmd.kill()
            self.epmd.wait()


class Postgres(Server):
    name = "postgres"
    durability = "synchronous_commit, fsync and full_page_writes on: WAL synced at every commit (batches of 1000)"
    notes = "SKIP LOCKED table, COPY of 1000 rows; shared_buffers 512MB, max_wal_size 4GB, else defaults"
    crash_signal = signal.SIGQUIT
    program = "postgres"

    def __init__(self, place):
        super().__init__(place)
        self.user = "postgres" if os.getuid() == 0 else None

    def executable(self):
        return os.path.exists(f"{self.home()}/initdb")

    def home(self):
        base = "/usr/lib/postgresql"
        versions = sorted((v for v in (os.listdir(base) if os.path.isdir(base) else [])
                           if os.path.exists(f"{base}/{v}/bin/initdb")), key=float)
        return f"{base}/{versions[-1]}/bin" if versions else ""

    def version(self):
        return number(r"([\d.]+)", output(f"{self.home()}/postgres", "--version"))

    def prepare(self):
        data = f"{self.place}/d"
        os.mkdir(data)
        if self.user:
            shutil.chown(data, self.user, self.user)
        subprocess.run([f"{self.home()}/initdb", "-D", data, "-U", "peer", "-A", "trust", "--no-instructions"], check=True, cwd=self.place,
                       user=self.user, group=self.user, extra_groups=[] if self.user else None, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        with open(f"{data}/postgresql.conf", "a", encoding="ascii") as f:
            f.write(f"listen_addresses = '127.0.0.1'\nport = {self.port}\nunix_socket_directories = ''\n"
                    "shared_buffers = 512MB\nmax_wal_size = 4GB\n")

    def command(self):
        return [f"{self.home()}/postgres", "-D", f"{self.place}/d"]

    def is_ready(self):
        return subprocess.run([f"{self.home()}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False).returncode == 0

    def finish(self):
        if self.process:
            os.kill(self.process.pid, signal.SIGINT)
            self.process.wait()
            self.process = None


ALL = [Redrive, Postgres, Redis, Rabbitmq, Beanstalkd]


def client(build, server, work, count, extra=None):
    program = f"{build}/bench/queues/queue_{server.name}"
    if not os.path.exists(program):
        raise Missing(f"the client of {server.name} was not built (its library is missing)")
    done = subprocess.run([program, work, str(count), str(server.port)], cwd=server.place, stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, **(extra or {})}, timeout=300)
    return {name: float(value) for name, value in (word.split("=") for word in done.stdout.split())}


def run(kind, work, build, base, quick):
    """One measurement: a dict of figures. Raises Missing where the queue is not there."""
    place = tempfile.mkdtemp(prefix=f"queue-{kind.name}-", dir=base)
    os.chmod(place, 0o711)
    server = None
    try:
        server = kind(place)
        count = max(server.counts[work] // (10 if quick else 1), 1000) // 1000 * 1000
        server.prepare()
        server.start()
        before, flushed = server.memory(), flushes(place)
        extra = {"LADDER": "1"} if work == "backlog" else {}
        result = client(build, server, work, count, extra)
        result.update(count=count, flushes=flushes(place) - flushed, version=server.version(), durability=server.durability,
                      notes=server.notes)
        if work == "backlog":
            after = server.memory()
            if "rss_after" in result:
                before, after = result["rss_before"], result["rss_after"]
            server.stop()
            started = time.time()
            server.start()
            result.update(client(build, server, "ready", count, {**extra, "STARTED": repr(started)}), memory=(after - before) / count)
        result["per_s"] = count / result.get("net_seconds", result["seconds"])
        return result
    finally:
        if server:
            server.finish()
        shutil.rmtree(place, ignore_errors=True)
