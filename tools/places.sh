#!/bin/sh
# tools/places.sh: prints two directories that make, shells and shebang lines can use without quotes: this checkout, through a
# link in /var/tmp if its path has a space or another special character, and one for temporary files that may be executed.
set -eu
export LC_ALL=C

is_plain() {
    case $1 in
    *[!A-Za-z0-9/._+@-]*) return 1 ;;
    esac
}

runs_programs() {
    program=$(mktemp "$1/natsops-XXXXXX" 2>/dev/null) || return 1
    printf '#!/bin/sh\n' >"$program"
    chmod 700 "$program"
    "$program" 2>/dev/null && status=0 || status=1
    rm "$program"
    return $status
}

checkout=$(pwd -P)
if ! is_plain "$checkout"; then
    user=$(id -u)
    link=/var/tmp/natsops-$user-$(printf %s "$checkout" | sha256sum | cut -c1-16)
    ln -sn "$checkout" "$link" 2>/dev/null || true
    # Another user's link could later lead to that user's files.
    if [ "$(stat -c %u "$link")" != "$user" ] || [ "$(readlink "$link")" != "$checkout" ]; then
        echo "$link is not a link of this user to $checkout: remove it." >&2
        exit 1
    fi
    checkout=$link
fi
for temporary in "${TMPDIR:-/tmp}" /var/tmp; do
    ! is_plain "$temporary" || ! runs_programs "$temporary" || break
    temporary=
done
if [ -z "$temporary" ]; then
    temporary=$checkout/.cache/tmp
    mkdir -p "$temporary"
fi
echo "$checkout" "$temporary"
