#!/usr/bin/env python3
"""Check from the #include lines that the rooms of src/ use each other only along the allowed arrows.

    tools/check-arrows.py [SRC]      check SRC (default: src/ beside tools/); exit 1 if an arrow is forbidden
    tools/check-arrows.py --self-test    build small trees with one fault each and see that each is found

Checked:
  - an include of another room is one of ARROWS (src/*.c in the root, such as library.c, count as app);
  - an include that names a file of the project finds it, and leaves src/ only for redrive.h;
  - core is pure: no clocks, threads, files or processes, by header or by call;
  - a room with more than a quarter of all lines is worth a warning, no more.
"""
import re
import sys
import tempfile
from pathlib import Path

# Who may include whom. What is not here may include nothing; every room may include itself.
ARROWS = {
    "base": set(),
    "core": {"base"},
    "log": {"base"},
    "brokers": {"log", "core", "base"},
    "handlers": {"core", "base"},
    "desk": {"log", "core", "base"},
    "runtime": {"core", "log", "brokers", "handlers", "desk", "base"},
    "api": {"desk", "runtime", "core", "log", "base"},
    "app": {"api", "desk", "runtime", "handlers", "brokers", "log", "core", "base"},
}

# Core may use the language, memory and arithmetic. Everything that asks the world is forbidden.
IMPURE_HEADERS = re.compile(
    r"^(time\.h|sys/.*|pthread\.h|threads\.h|unistd\.h|fcntl\.h|signal\.h|poll\.h|netdb\.h|dirent\.h|spawn\.h|locale\.h"
    r"|semaphore\.h|uv\.h|uv/.*|curl/.*|microhttpd\.h|sqlite3\.h|systemd/.*)$")
IMPURE_CALLS = re.compile(
    r"\b(rdv_wall_now|rdv_mono_now|rdv_mono_now_us|rdv_now|rdv_secret|clock_gettime|gettimeofday|time|clock|getrandom"
    r"|rand|random|srand|getenv|secure_getenv|setlocale|sleep|usleep|nanosleep|fopen|printf|puts|perror|exit|abort"
    r"|syslog)\s*\(")
NOT_A_CALL = re.compile(r"(\bstruct\s+|\.\s*|->\s*)$")  # in front of the name: a type or a member
IMPURE_BASE = {"base/queue.h": "threads"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.M)
NOT_CODE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
LARGEST_SHARE = 0.25


def blank(match):
    """Comments and texts become spaces; lines stay lines."""
    return re.sub(r"[^\n]", " ", match.group())


def room_of(path):
    """The room of a path relative to src/."""
    return path.parts[0] if len(path.parts) > 1 else "app"


def resolve(src, file, name, quoted):
    """The included file relative to src/, or None if it is not the project's."""
    places = ([file.parent] if quoted else []) + [src]
    for place in places:
        target = (place / name).resolve()
        if target.is_file() and target.is_relative_to(src):
            return target.relative_to(src)
    return None


def check_file(src, file):
    """Yields the faults of one file, each as 'path:line: text'."""
    relative = file.relative_to(src)
    room = room_of(relative)
    text = file.read_text(encoding="utf-8", errors="replace")
    for match in INCLUDE.finditer(NOT_CODE.sub(lambda m: m.group() if m.group()[0] == '"' else blank(m), text)):
        quoted, name = match.group(1) == '"', match.group(2)
        where = f"src/{relative}:{text.count(chr(10), 0, match.start()) + 1}"
        target = resolve(src, file, name, quoted)
        if target is None:
            if quoted and not (src.parent / "include" / name).is_file() and not generated(name):
                yield f'{where}: "{name}" is not a file of the project'
            if room == "core" and IMPURE_HEADERS.match(name):
                yield f"{where}: core is pure and must not include <{name}>"
            continue
        other = room_of(target)
        if len(target.parts) > 1 and other != room and other not in ARROWS[room]:
            allowed = ", ".join(sorted(ARROWS[room])) or "nothing"
            yield f"{where}: {room} must not include {target} ({room} -> {allowed})"
        if len(target.parts) == 1 and room != "app":
            yield f"{where}: {room} must not include {target} of the root"
        if room == "core" and str(target) in IMPURE_BASE:
            yield f"{where}: core is pure and must not include {target} ({IMPURE_BASE[str(target)]})"
    if room == "core":
        code = NOT_CODE.sub(blank, text)
        for match in IMPURE_CALLS.finditer(code):
            if NOT_A_CALL.search(code[max(0, match.start() - 40) : match.start()]):
                continue
            line = code.count("\n", 0, match.start()) + 1
            yield f"src/{relative}:{line}: core is pure and must not call {match.group(1)}()"


def generated(name):
    """Headers that the build makes."""
    return name.endswith(".inc") or name.startswith("generated")


def check_tree(src):
    """Returns (faults, warnings, number of files)."""
    src = src.resolve()
    faults, lines, files = [], {}, 0
    for file in sorted(p for p in src.rglob("*") if p.suffix in (".c", ".h", ".inc")):
        room = room_of(file.relative_to(src))
        files += 1
        if room not in ARROWS:
            faults.append(f"src/{file.relative_to(src)}:1: there is no room '{room}'")
            continue
        lines[room] = lines.get(room, 0) + file.read_bytes().count(b"\n")
        faults.extend(check_file(src, file))
    total = sum(lines.values())
    warnings = [f"{room} has {n} of {total} lines, more than a quarter"
                for room, n in sorted(lines.items()) if total and n > LARGEST_SHARE * total]
    return faults, warnings, files


# Each row: what is wrong, the files, and the words by which it must be found (None: nothing may be found).
BASE = {"base/status.h": "", "base/clock.h": "struct rdv_now { int ms; };\n", "base/queue.h": "", "core/lane.h": "",
        "log/log.h": "", "handlers/http.h": "", "runtime/engine.h": "", "desk/store.h": "", "api/server.h": "",
        "brokers/embedded/topic.h": "", "app/config.h": ""}
CASES = [
    ("all allowed arrows", {
        "core/lane.c": '#include "lane.h"\n#include "base/clock.h"\n#include <stdlib.h>\n#include <math.h>\n'
                       "/* #include <time.h> and time() only in a comment */\n"
                       "int f(struct rdv_now (*g)(void))\n"
                       '{\n\treturn x->time(now) + y.exit(1) + due_time(2) + (int)"exit(1)"[0];\n}\n',
        "log/log.c": '#include "log.h"\n#include "base/status.h"\n#include <sys/uio.h>\n',
        "brokers/embedded/topic.c": '#include "topic.h"\n#include "log/log.h"\n#include "core/lane.h"\n',
        "api/server.c": '#include "desk/store.h"\n#include "runtime/engine.h"\n#include "core/lane.h"\n',
        "library.c": '#include "runtime/engine.h"\n#include "app/config.h"\n',
        "app/main.c": '#include "api/server.h"\n#include "handlers/http.h"\n'}, None),
    ("core includes the log", {"core/a.c": '#include "log/log.h"\n'}, "core must not include log/log.h"),
    ("core includes the log by a detour", {"core/a.c": '#include "../log/log.h"\n'}, "core must not include log/log.h"),
    ("core includes with spaces", {"core/a.c": '  #  include   "log/log.h"\n'}, "core must not include log/log.h"),
    ("core includes by angle brackets", {"core/a.c": "#include <log/log.h>\n"}, "core must not include log/log.h"),
    ("core includes behind a comment", {"core/a.c": '/* x\n*/ #include "log/log.h"\n'}, "must not include log/log.h"),
    ("core includes time.h", {"core/a.c": "#include <time.h>\n"}, "must not include <time.h>"),
    ("core includes pthread.h", {"core/a.h": "#include <pthread.h>\n"}, "must not include <pthread.h>"),
    ("core includes sys/", {"core/a.c": "#include <sys/stat.h>\n"}, "must not include <sys/stat.h>"),
    ("core includes uv.h", {"core/a.c": "#include <uv.h>\n"}, "must not include <uv.h>"),
    ("core includes the queue", {"core/a.c": '#include "base/queue.h"\n'}, "must not include base/queue.h"),
    ("core calls a clock", {"core/a.c": "int f(void)\n{\n\treturn rdv_now().wall.ms;\n}\n"},
     "core/a.c:3: core is pure and must not call rdv_now()"),
    ("core calls time", {"core/a.c": "int f(void) { return time (0); }\n"}, "must not call time()"),
    ("core prints", {"core/a.c": "int f(void) { return printf(\"x\"); }\n"}, "must not call printf()"),
    ("base includes core", {"base/a.c": '#include "core/lane.h"\n'}, "base must not include core/lane.h"),
    ("log includes core", {"log/a.c": '#include "core/lane.h"\n'}, "log must not include core/lane.h"),
    ("handlers include the log", {"handlers/a.c": '#include "log/log.h"\n'}, "handlers must not include log/log.h"),
    ("handlers include the runtime", {"handlers/a.c": '#include "runtime/engine.h"\n'}, "handlers must not include"),
    ("brokers include the desk", {"brokers/embedded/a.c": '#include "desk/store.h"\n'}, "brokers must not include"),
    ("desk includes the runtime", {"desk/a.c": '#include "runtime/engine.h"\n'}, "desk must not include runtime"),
    ("runtime includes the API", {"runtime/a.c": '#include "api/server.h"\n'}, "runtime must not include api"),
    ("api includes handlers", {"api/a.c": '#include "handlers/http.h"\n'}, "api must not include handlers/http.h"),
    ("api includes app", {"api/a.c": '#include "app/config.h"\n'}, "api must not include app/config.h"),
    ("a file that is not there", {"log/a.c": '#include "base/gone.h"\n'}, '"base/gone.h" is not a file'),
    ("a room that is not there", {"attic/a.c": "\n"}, "there is no room 'attic'"),
]


def self_test():
    failed = 0
    for name, files, want in CASES:
        with tempfile.TemporaryDirectory() as directory:
            src = Path(directory) / "src"
            for path, text in {**BASE, **files}.items():
                (src / path).parent.mkdir(parents=True, exist_ok=True)
                (src / path).write_text(text)
            faults, _, _ = check_tree(src)
        good = not faults if want is None else len(faults) == 1 and want in faults[0]
        if not good:
            failed += 1
            print(f"self-test: {name}: wanted {want!r}, found {faults}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        src = Path(directory) / "src"
        for room, count in (("base", 30), ("core", 70)):
            (src / room).mkdir(parents=True)
            (src / room / "a.c").write_text("\n" * count)
        _, warnings, _ = check_tree(src)
        if len(warnings) != 2:
            failed += 1
            print(f"self-test: large rooms: found {warnings}", file=sys.stderr)
    print(f"check-arrows: self-test: {len(CASES) + 1 - failed} passed, {failed} failed")
    return 1 if failed else 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print("usage: check-arrows.py [SRC] | --self-test", file=sys.stderr)
        return 2
    src = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent / "src"
    faults, warnings, files = check_tree(src)
    for fault in faults:
        print(fault)
    for warning in warnings:
        print(f"warning: {warning}")
    if not files:
        print(f"check-arrows: no source file under {src}", file=sys.stderr)
        return 2
    print(f"check-arrows: {files} files, {len(faults)} forbidden")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
