#!/bin/sh
# check-style.sh [FILE...] - is every C file formatted by .clang-format, and none longer than 600 lines (a test's tables: 1,200)?
# Without files: all of src, include, tests, fuzz, bench, examples. Prints each fault; exit 1 if there is one.
# To format: clang-format-14 -i FILE...
set -eu
most=600
most_tests=1200
cd "$(dirname "$0")/.."
if ! command -v clang-format-14 >/dev/null 2>&1; then
	echo "check-style: clang-format-14 is missing: run tools/install-packages.sh check" >&2
	exit 2
fi
list=$(mktemp)
trap 'rm -f "$list"' EXIT
if [ $# -gt 0 ]; then
	printf '%s\n' "$@" >"$list"
else
	find src include tests fuzz bench examples -name '*.[ch]' | sort >"$list"
fi
files=$(wc -l <"$list")
if [ "$files" = 0 ]; then
	echo "check-style: no file to check" >&2
	exit 2
fi
faults=0
long=$(tr '\n' '\0' <"$list" | xargs -0 awk -v product="$most" -v tests="$most_tests" \
	'FNR == 1 { most = FILENAME ~ /^tests\// ? tests : product }
	FNR == most + 1 { print FILENAME ":" FNR ": longer than " most " lines: split it" }')
if [ -n "$long" ]; then
	echo "$long"
	faults=1
fi
# One line a file, not one a fault: clang-format knows how to correct it.
bad=$(tr '\n' '\0' <"$list" | xargs -0 -n 1 -P 2 sh -c 'clang-format-14 --dry-run --Werror -style=file "$0" 2>/dev/null ||
	echo "$0: not formatted: clang-format-14 -i $0"')
if [ -n "$bad" ]; then
	echo "$bad"
	faults=1
fi
echo "check-style: $files files, $([ $faults = 0 ] && echo "no fault" || echo "faults above")"
exit $faults
