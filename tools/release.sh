#!/usr/bin/env bash
# Archives, checksums and an SBOM of a version in dist/. The same commit gives the same bytes:
# no path and no time of the build gets into them.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:?usage: tools/release.sh VERSION}
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/arm64}
committed=$(git log -1 --format=%ct)

rm -rf dist
mkdir -p dist
for platform in $platforms; do
    os=${platform%/*} arch=${platform#*/}
    name=steelyard_${version}_${os}_${arch}
    mkdir "dist/$name"
    CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath \
        -ldflags "-s -w -buildid= -X main.version=$version" -o "dist/$name/steelyard" ./cmd/steelyard
    cp LICENSE README.md CHANGELOG.md steelyard.example.yaml "dist/$name"
    go run -C tools ./sbom "$PWD/dist/$name/steelyard" "$version" >"dist/$name.cdx.json"
    tar --create --sort=name --mtime="@$committed" --owner=0 --group=0 --numeric-owner -C dist "$name" |
        gzip --no-name >"dist/$name.tar.gz"
    rm -r "dist/${name:?}"
done
(cd dist && sha256sum -- * >checksums.txt)
ls -l dist
