#!/usr/bin/env bash
# Provides .tools/bin/chromium, in which the page is tested: the one that CHROMIUM names, else the one on PATH, else
# Debian's, unpacked into .tools. Installing the package instead would need root. It also provides axe-core, which the
# tests load into it to check the page's accessibility, as .tools/axe/axe.min.js.
. "$(dirname "$0")/lib.sh"

axe=4.14.1
axe_sha512=FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==

# axe_core downloads the pinned version with npm, and checks the hash of its archive.
axe_core() {
  command -v npm >/dev/null ||
    die "npm is needed to download axe-core. Debian and Ubuntu: apt-get install npm (as root)"
  mkdir "$scratch/axe"
  (cd "$scratch" && npm pack --silent "axe-core@$axe" >&2) || die "downloading axe-core $axe failed, see above"
  local got
  got=$(openssl dgst -sha512 -binary "$scratch/axe-core-$axe.tgz" | base64 -w 0)
  [ "$got" = "$axe_sha512" ] || die "axe-core $axe has the sha512 $got, and not the pinned one"
  tar -xzf "$scratch/axe-core-$axe.tgz" -C "$scratch/axe" --strip-components 1 package/axe.min.js package/LICENSE
  install_dir "$tools/axe" "$axe_sha512" "$scratch/axe"
  say "axe-core $axe is in .tools/axe"
}

one_at_a_time
if ! have_stamp "$tools/axe" "$axe_sha512"; then axe_core; fi

if given=${CHROMIUM:-$(on_path chromium || on_path chromium-browser || on_path google-chrome)}; then
  given=$(command -v "$given") || die "CHROMIUM=$CHROMIUM: there is no such program"
  link chromium "$(realpath -s "$given")"
  exit
fi

dir=$tools/chromium
if ! have_stamp "$dir" debian; then
  need_apt "A real Chromium is needed: the tests of the page run in one." chromium
  say "unpacking Debian's chromium, and the libraries and fonts that it needs"
  # shellcheck disable=SC2046 # one argument for each package
  deb "$scratch/chromium" $(missing_packages chromium) $(missing_packages fonts-dejavu-core)
  found=$(LD_LIBRARY_PATH=$(libraries "$scratch/chromium") \
    "$scratch/chromium/usr/lib/chromium/chromium" --version 2>&1) ||
    die "the unpacked chromium does not run here: $found. As root: apt-get install chromium"
  install_dir "$dir" debian "$scratch/chromium"
  say "$found is in .tools/bin"
fi
wrapper chromium <<WRAPPER
#!/usr/bin/env bash
export LD_LIBRARY_PATH="$(libraries "$dir")\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
exec "$dir/usr/lib/chromium/chromium" "\$@"
WRAPPER
