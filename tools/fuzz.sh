#!/usr/bin/env bash
# fuzz.sh TIME: runs every fuzz target of the module for TIME (such as 10s), one
# after the other, as `go test` allows only one at a time.
set -euo pipefail
time=${1:?usage: fuzz.sh TIME}

go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | while read -r package; do
  folder=$(go list -f '{{.Dir}}' "$package")
  grep -hoE '^func Fuzz[A-Za-z0-9_]*' "$folder"/*_test.go | sed 's/func //' | while read -r target; do
    echo "==> $package $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null
  done || true
done
