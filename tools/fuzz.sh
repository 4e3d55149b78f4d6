#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the module for TIME (such as 10s), one
# after the other, as `go test` allows only one at a time.
set -euo pipefail
time=${1:?usage: fuzz.sh TIME}

# Lines of "package folder", for every package with tests.
packages=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./...)
while read -r package folder; do
  targets=$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$folder"/*_test.go | sed 's/^func //') || continue
  for target in $targets; do
    echo "==> $package $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null
  done
done <<<"$packages"
