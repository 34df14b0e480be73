#!/bin/sh
# install-packages.sh build|check|bench - install the Debian packages of tools/packages.txt that are missing.
# `check` includes `build`, `bench` includes both. Does nothing, and needs no rights, when all are there. The servers that
# `bench` compares with are not started by their installation, nor at boot: a benchmark starts its own.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case ${1:-build} in
build) kinds='^build ' ;;
check) kinds='^(build|check) ' ;;
bench) kinds='^(build|check|bench) ' ;;
*) echo "usage: install-packages.sh build|check|bench" >&2; exit 2 ;;
esac
missing=
for package in $(grep -E "$kinds" "$here/packages.txt" | cut -d' ' -f2); do
	# npm and node may come from elsewhere than Debian: the programs are what is needed.
	case $package in
	nodejs) command -v node >/dev/null 2>&1 && continue ;;
	npm) command -v npm >/dev/null 2>&1 && continue ;;
	esac
	dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
command -v apt-get >/dev/null 2>&1 || { echo "these packages are missing and this is no Debian:$missing" >&2; exit 1; }
as=
if [ "$(id -u)" != 0 ]; then
	command -v sudo >/dev/null 2>&1 || { echo "run as root, or install:$missing" >&2; exit 1; }
	as=sudo
fi
echo "installing:$missing"
$as apt-get update -q >/dev/null
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
	printf '#!/bin/sh\nexit 101\n' | $as tee $policy >/dev/null
	$as chmod 755 $policy
	trap '$as rm -f $policy' EXIT
fi
# shellcheck disable=SC2086
$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >/dev/null
for service in beanstalkd redis-server rabbitmq-server postgresql; do
	case " $missing " in
	*" $service "*) $as systemctl disable $service >/dev/null 2>&1 || true ;;
	esac
done
