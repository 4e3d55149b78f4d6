#!/usr/bin/env bash
# Provides .tools/bin/promtool: the one that PROMTOOL names, else the one on PATH,
# else Debian's, unpacked into .tools. Installing the package instead would need
# root and start a Prometheus on the machine.
. "$(dirname "$0")/lib.sh"

one_at_a_time
if given=${PROMTOOL:-$(on_path promtool)}; then
  given=$(command -v "$given") || die "PROMTOOL=$PROMTOOL: there is no such program"
  link promtool "$(realpath -s "$given")"
  exit
fi

dir=$tools/promtool
if ! have_stamp "$dir" debian; then
  need_apt "promtool is needed: the tests check Steelyard's own metrics with it." prometheus
  package=prometheus
  if available promtool; then package=promtool; fi # a package of its own since Debian 13
  say "unpacking promtool from Debian's package $package"
  deb "$scratch/prometheus" $package
  mkdir "$scratch/promtool"
  mv "$scratch/prometheus/usr/bin/promtool" "$scratch/promtool/"
  found=$("$scratch/promtool/promtool" --version 2>&1) ||
    die "the unpacked promtool does not run here: $found. As root: apt-get install prometheus"
  install_dir "$dir" debian "$scratch/promtool"
  say "${found%% (branch*} is in .tools/bin"
fi
link promtool ../promtool/promtool
