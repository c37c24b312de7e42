#!/bin/sh
# tools/docsite/build.sh BIN TARGET: builds the site in TARGET/html by the programs in BIN. Any warning is an error.
# The collection is the one in ANSIBLE_COLLECTIONS_PATH.
set -eu

bin=$1
target=$2
here=$(dirname "$0")
docs=$here/../../docs

rm -rf "$target/source" "$target/html"
mkdir -p "$target/source/collection" "$target/source/reference"
chmod go-w "$target/source/collection"
cp "$docs"/*.md "$target/source"
cp -R "$docs/internals" "$target/source"
# The first page is that of the repository, followed by the source of Sphinx's menu.
cat "$here/menu.md" >> "$target/source/README.md"
mv "$target/source/README.md" "$target/source/index.md"
cp "$docs"/reference/*.md "$target/source/reference"
# The site has pages of its own for these, see conf.py.
(cd "$target/source/reference" && rm nats_*.md modules.md filters.md inventory.md lookups.md)
[ ! -d "$docs/images" ] || cp -R "$docs/images" "$target/source"
PATH=$bin:$PATH "$bin/antsibull-docs" collection --use-current --squash-hierarchy --fail-on-error --dest-dir "$target/source/collection" \
    natsops.jetstream
"$bin/sphinx-build" -q -W --keep-going -j auto -c "$here" -d "$target/doctrees" "$target/source" "$target/html"
