#!/usr/bin/env bash
# Provides .tools/bin/zig-cc, a C compiler for another architecture and an older C library than this machine's, from a
# pinned wheel whose checksum is verified; 101 MB. The architecture is that of GOARCH, or else Go's own:
#
#   CGO_ENABLED=1 GOARCH=arm64 CC=.tools/bin/zig-cc go build -C envoy-module -buildmode=c-shared .
. "$(dirname "$0")/lib.sh"

one_at_a_time
dir=$tools/zig
stamp=$(sha256sum <"$root/tools/locks/zig.txt")
if ! have_stamp "$dir" "$stamp"; then
  say "downloading Zig (101 MB), a C compiler"
  wheel zig.txt "$scratch/zig"
  chmod 755 "$scratch/zig/ziglang/zig"
  found=$("$scratch/zig/ziglang/zig" version 2>&1) || die "the downloaded Zig does not run here: $found"
  install_dir "$dir" "$stamp" "$scratch/zig"
  say "Zig $found is in .tools/zig"
fi
# 2.28 is the C library of Debian 10 and RHEL 8, older than that of any image of Envoy 1.40.
wrapper zig-cc <<'END'
#!/usr/bin/env bash
set -eu
tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export ZIG_GLOBAL_CACHE_DIR=$tools/zig-cache ZIG_LOCAL_CACHE_DIR=$tools/zig-cache
case ${GOARCH:-$(go env GOARCH)} in
  amd64) target=x86_64-linux-gnu.2.28 ;;
  arm64) target=aarch64-linux-gnu.2.28 ;;
  *) echo "zig-cc: GOARCH=$GOARCH: the module is for amd64 and arm64" >&2; exit 1 ;;
esac
exec "$tools/zig/ziglang/zig" cc -target "$target" "$@"
END
