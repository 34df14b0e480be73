#!/usr/bin/env python3
"""Fetch the demo's webhook payloads by npm and pack them into one file.

    pack.py --npm NPM --work DIR --out FILE

Copies package.json, package-lock.json and .npmrc of this folder to DIR and runs `npm ci --ignore-scripts` there: the lock
holds the version and the hash, so that the same bytes come or nothing does. Every example becomes one record. The file:

    u32 number of records (little-endian), then per record four texts, each a LEB128 length and its bytes:
    event name, action or empty, repository's full name or empty, compact JSON body (UTF-8)
"""
import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

PACKAGE = "node_modules/@octokit/webhooks-examples/api.github.com/index.json"


def install(npm, work):
    here = Path(__file__).resolve().parent
    work.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json", ".npmrc"):
        shutil.copyfile(here / name, work / name)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"]
    # ninja's output is kept quiet; npm's words matter only if it fails.
    done = subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "NO_UPDATE_NOTIFIER": "1"})
    if done.returncode:
        sys.stderr.buffer.write(done.stdout)
        sys.exit("pack.py: npm ci failed: the build needs npm's registry once, for the demo's payloads")


def text(value):
    """A LEB128 length and the bytes."""
    size, prefix = len(value), bytearray()
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + value


def member(example, *path):
    for name in path:
        example = example.get(name) if isinstance(example, dict) else None
    return example.encode() if isinstance(example, str) else b""


def records(index):
    for event in index:
        for example in event["examples"]:
            body = json.dumps(example, separators=(",", ":"), ensure_ascii=False).encode()
            yield b"".join(map(text, (event["name"].encode(), member(example, "action"),
                                      member(example, "repository", "full_name"), body)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--npm", required=True)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args()
    install(given.npm, given.work)
    packed = list(records(json.loads((given.work / PACKAGE).read_bytes())))
    given.out.write_bytes(struct.pack("<I", len(packed)) + b"".join(packed))


if __name__ == "__main__":
    main()
