#!/bin/sh
# Counts the lines of code of the product: all Go of which steelyard and the Envoy module are built, without tests,
# generated files, blank lines and lines that are only comment. With -v: of each package.
set -eu
cd "$(dirname "$0")/.."
format='{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .CgoFiles}}{{$dir}}/{{.}}
{{end}}'
for module in . envoy-module; do
	main=./cmd/steelyard
	[ "$module" = . ] || main=.
	(cd "$module" && go list -deps -f "$format" "$main")
done | sed -n "s|^$PWD/||p" | sort -u | xargs grep -L '^// Code generated' | xargs awk -v each="${1:-}" '
	{ sub(/^[ \t]+/, "") }
	/^\/\*/ { comment = 1 }
	!comment && $0 != "" && !/^\/\// { folder = FILENAME; sub("/[^/]*$", "", folder); lines[folder]++; sum++ }
	/\*\// { comment = 0 }
	END {
		if (each == "-v") for (folder in lines) print lines[folder], folder | "sort -rn"
		close("sort -rn")
		print sum, "lines of code"
	}'
