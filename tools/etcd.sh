#!/usr/bin/env bash
# Provides .tools/bin/etcd: the one that ETCD names, else the one on PATH, else
# Debian's, unpacked into .tools. Installing the package instead would need root
# and start an etcd on the machine.
. "$(dirname "$0")/lib.sh"

one_at_a_time
if given=${ETCD:-$(on_path etcd)}; then
  given=$(command -v "$given") || die "ETCD=$ETCD: there is no such program"
  link etcd "$(realpath -s "$given")"
  exit
fi

dir=$tools/etcd
if ! have_stamp "$dir" debian; then
  need_apt "A real etcd is needed: the tests run a Kubernetes API server on one." etcd-server
  say "unpacking etcd from Debian's package etcd-server"
  deb "$scratch/debian" etcd-server
  mkdir "$scratch/etcd"
  mv "$scratch/debian/usr/bin/etcd" "$scratch/etcd/"
  found=$("$scratch/etcd/etcd" --version 2>&1) ||
    die "the unpacked etcd does not run here: $found. As root: apt-get install etcd-server"
  install_dir "$dir" debian "$scratch/etcd"
  say "${found%%$'\n'*} is in .tools/bin"
fi
link etcd ../etcd/etcd
