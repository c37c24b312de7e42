#!/bin/sh
# tools/java.sh: makes sure that Java 17 or newer, which Spark and ansible-rulebook need, is on the PATH or in JAVA_HOME.
# As root on a system with apt it is installed where it is missing.
set -eu

say() { printf '%s\n' "$*" >&2; }

version() {
    java=java
    [ -z "${JAVA_HOME:-}" ] || java=$JAVA_HOME/bin/java
    "$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p;q'
}

found=$(version || true)
[ "${found:-0}" -lt 17 ] || exit 0
if [ -n "${JAVA_HOME:-}" ]; then
    say "JAVA_HOME is $JAVA_HOME, where there is no Java 17 or newer. Unset it, or let it name one."
    exit 1
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "Java 17 or newer is missing: installing the package default-jre-headless."
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends default-jre-headless >&2
    found=$(version || true)
    [ "${found:-0}" -lt 17 ] || exit 0
fi
say "Spark and ansible-rulebook need Java 17 or newer; found: ${found:-none}. Install it, such as: apt-get install default-jre-headless"
exit 1
