#!/bin/sh
# The same from a shell script: a daemon of its own, in a directory that goes with it. Needs
# discoveryd and discoveryctl on the PATH.
set -eu

directory=$(mktemp -d)
export DISCOVERYD_SOCKET="$directory/socket" DISCOVERYD_CARDS="$directory/cards"
mkdir "$DISCOVERYD_CARDS"

# /dev/null: what this machine's own daemon is told does not count here.
discoveryd serve --config /dev/null --state none 2>"$directory/log" &
daemon=$!

end() {
    status=$?
    kill "$daemon" && wait "$daemon" || status=1
    [ "$status" -eq 0 ] || cat "$directory/log" >&2
    rm -r "$directory"
    exit "$status"
}
trap end EXIT

fail() {
    echo "smoke.sh: $*" >&2
    exit 1
}

# A card is written under a name that does not count, and renamed.
cat >"$DISCOVERYD_CARDS/llama.tmp" <<CARD
{"display_name": "llama-3.1-8b", "aliases": ["llama"], "url": "http://127.0.0.1:8001"}
CARD
mv "$DISCOVERYD_CARDS/llama.tmp" "$DISCOVERYD_CARDS/llama.json"

# Waits for the daemon, too.
discoveryctl wait llama --timeout 20

url=$(discoveryctl resolve llama --url)
[ "$url" = http://127.0.0.1:8001 ] || fail "llama is served at $url"

# `publish` says whether a card gets to serve, and why not.
echo '{"display_name": "other", "aliases": ["llama"]}' >"$directory/other.json"
if discoveryctl publish "$directory/other.json"; then
    fail "two models share a name"
fi

rm "$DISCOVERYD_CARDS/llama.json"
discoveryctl sync
discoveryctl resolve other >/dev/null || fail "the card that waited for the name does not serve"
echo "smoke.sh: all is well"
