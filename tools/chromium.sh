#!/bin/sh
# tools/chromium.sh: prints the Chromium that is on the PATH, in which tests open report.html.
# As root on a system with apt it is installed where it is missing, once another apt has released its lock.
set -eu

say() { printf '%s\n' "$*" >&2; }

for name in chromium-headless-shell chromium google-chrome; do
    ! command -v "$name" || exit 0
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "Chromium is missing: installing the package chromium-headless-shell."
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y -o DPkg::Lock::Timeout=300 --no-install-recommends chromium-headless-shell >&2
    ! command -v chromium-headless-shell || exit 0
fi
say "The tests of report.html need Chromium. Install it, such as: apt-get install chromium-headless-shell"
exit 1
