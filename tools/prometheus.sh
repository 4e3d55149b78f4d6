#!/usr/bin/env bash
# Provides .tools/bin/prometheus: the one that PROMETHEUS names, else the one on PATH, else Debian's, unpacked into
# .tools. Installing the package instead would need root and start a Prometheus on the machine.
. "$(dirname "$0")/lib.sh"

one_at_a_time
if given=${PROMETHEUS:-$(on_path prometheus)}; then
  given=$(command -v "$given") || die "PROMETHEUS=$PROMETHEUS: there is no such program"
  link prometheus "$(realpath -s "$given")"
  exit
fi

dir=$tools/prometheus
if ! have_stamp "$dir" debian; then
  need_apt "A real Prometheus is needed: the tests run the queries of the rules and the dashboard on one." prometheus
  say "unpacking prometheus from Debian's package"
  deb "$scratch/prometheus" prometheus
  mkdir "$scratch/program"
  mv "$scratch/prometheus/usr/bin/prometheus" "$scratch/program/"
  found=$("$scratch/program/prometheus" --version 2>&1) ||
    die "the unpacked prometheus does not run here: $found. As root: apt-get install prometheus"
  install_dir "$dir" debian "$scratch/program"
  say "${found%% (branch*} is in .tools/bin"
fi
link prometheus ../prometheus/prometheus
