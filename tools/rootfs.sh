#!/usr/bin/env bash
# Provides .tools/rootfs/static and .tools/rootfs/envoy: root file systems of unpacked Debian packages, which stand for
# the base images of the Dockerfile where no registry and no container engine is at hand. static has what
# gcr.io/distroless/static has; envoy what the binary of Envoy's image needs, which that image has from Ubuntu 22.04.
. "$(dirname "$0")/lib.sh"

one_at_a_time
stamp="base-files netbase tzdata ca-certificates libc6"
if have_stamp "$tools/rootfs" "$stamp"; then exit; fi
need_apt "Root file systems are made of Debian's packages." base-files
say "unpacking Debian's packages for root file systems"

# base FOLDER PACKAGE... unpacks the packages that both have, and others, and adds what a postinst makes.
base() {
  local to=$1 package
  shift
  for package in base-files ca-certificates tzdata "$@"; do deb "$to" "$package"; done
  mkdir -p "$to"/{etc/ssl/certs,tmp,proc,dev,home/nonroot}
  find "$to/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$to/etc/ssl/certs/ca-certificates.crt"
  printf '%s\n' root:x:0:0:root:/root:/sbin/nologin nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin \
    >"$to/etc/passwd"
  printf '%s\n' root:x:0: nonroot:x:65532: >"$to/etc/group"
  chmod 1777 "$to/tmp"
}
base "$scratch/rootfs/static" netbase
base "$scratch/rootfs/envoy" libc6
install_dir "$tools/rootfs" "$stamp" "$scratch/rootfs"
