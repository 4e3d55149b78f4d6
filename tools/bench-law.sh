#!/usr/bin/env bash
# Runs e2e/bench/law on this checkout; with BASE, first on that commit, and prints the ratios.
#
#   tools/bench-law.sh BASE [FLAG…]
set -euo pipefail
cd "$(dirname "$0")/.."
base=$1
shift
mkdir -p bench
if [[ -n $base ]]; then
	# The other law gets the fleets of this checkout, so that both have the same rows.
	tree=$(mktemp -d)
	trap 'rm -rf "$tree"' EXIT
	git archive "$base^{commit}" | tar -x -C "$tree"
	rm -rf "$tree/e2e/bench/law"
	cp -r e2e/bench/law "$tree/e2e/bench/"
	# Until 2026-11-29 the simulator was a part of package weighting.
	[[ -d $tree/sim ]] || sed -i 's#"steelyard/sim#"steelyard/weighting/sim#' "$tree"/e2e/bench/law/*.go
	go build -C "$tree/e2e/bench" -o "$tree/bench-law" ./law
	"$tree/bench-law" "$@" --out bench/law-base.csv
	set -- "$@" --against bench/law-base.csv
fi
go build -C e2e/bench -o "$PWD/bin/bench-law" ./law
bin/bench-law "$@"
