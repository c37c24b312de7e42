#!/bin/sh
# tools/venv.sh DIRECTORY LOCK: makes the virtual environment DIRECTORY with exactly the packages of LOCK.
# An environment that cannot be finished is removed, so the next run starts clean.
set -eu

directory=$1
lock=$2
python=${PYTHON:-python3}

say() { printf '%s\n' "$*" >&2; }

command -v "$python" >/dev/null || {
    say "$python is not on the PATH. Install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)."
    exit 1
}
"$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || {
    say "$python is $("$python" -V 2>&1); the locked environments need 3.11 to 3.13. Name another one: make PYTHON=python3.11"
    exit 1
}
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "Python's venv module is missing: installing the package python$version-venv."
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends "python$version-venv" >&2
    else
        say "Python's venv module is missing. Install it as root, then run this again: apt-get install python$version-venv"
        exit 1
    fi
fi

say "Making $directory from $lock."
rm -rf "$directory"
trap 'rm -rf "$directory"' EXIT
"$python" -m venv "$directory"
"$directory/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$lock"
trap - EXIT
