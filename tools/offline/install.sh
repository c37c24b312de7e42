#!/bin/sh
# install.sh [TARGET]: installs Ansible and the collection from this folder, without a network, into the virtual
# environment TARGET (~/natsops) and the collections of this user. PYTHON=python3.12 selects another Python.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${1:-$HOME/natsops}
python=${PYTHON:-python3}

cd "$here"
sha256sum --check --quiet --strict SHA256SUMS || {
    echo "install.sh: files in $here are damaged or missing. Copy the bundle again." >&2
    exit 1
}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case " @CONTROLLERS@ " in
*" $version "*) ;;
*)
    echo "install.sh: $python is Python $version, but the bundle has packages for @CONTROLLERS@. Set PYTHON to one of them." >&2
    exit 1
    ;;
esac

# Debian has ensurepip in a separate package: pip runs from its own wheel.
"$python" -m venv --without-pip "$target"
pip=$(echo wheels/pip-*.whl)/pip
"$target/bin/python" "$pip" install --quiet --disable-pip-version-check --no-index --find-links=wheels \
    --require-hashes --requirement=controller.txt
sed "s|@FOLDER@|$here|" variables.yml.in > "$target/variables.yml"
# Ansible refuses to run in a locale without UTF-8.
LC_ALL=C.UTF-8 "$target/bin/ansible-galaxy" collection install --offline --force natsops-jetstream-*.tar.gz

echo "Installed in $target. Copy $target/variables.yml to group_vars/all/ next to your inventory: all playbooks then"
echo "install nats-server and Python packages from $here."
