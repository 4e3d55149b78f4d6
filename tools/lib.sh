# What the scripts in this folder share. Each of them provides one program as
# .tools/bin/NAME and touches nothing outside the checkout; where a Debian package
# is truly needed, it says which and why. To be sourced.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/.tools
bin=$tools/bin
what=$(basename "$0" .sh)

say() { printf '%s: %s\n' "$what" "$*" >&2; }
die() { say "$*"; exit 1; }

# one_at_a_time waits for another run of the same script in this checkout, and
# makes a folder for half-done work, on the same disk so that a move is atomic.
one_at_a_time() {
  mkdir -p "$bin"
  exec 9>"$tools/$what.lock"
  flock 9
  scratch=$(mktemp -d "$tools/$what.XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
}

# on_path NAME prints where the user's PATH has NAME, .tools/bin left aside.
on_path() {
  local dir
  while IFS= read -r -d : dir; do
    if [ "$dir" != "$bin" ] && [ -f "$dir/$1" ] && [ -x "$dir/$1" ]; then
      printf '%s\n' "$dir/$1"
      return 0
    fi
  done <<<"$PATH:"
  return 1
}

# link NAME TARGET makes .tools/bin/NAME a link, in one step.
link() {
  ln -s "$2" "$scratch/link"
  mv -fT "$scratch/link" "$bin/$1"
}

# wrapper NAME makes .tools/bin/NAME a script from standard input, in one step.
wrapper() {
  cat >"$scratch/wrapper"
  chmod 755 "$scratch/wrapper"
  mv -fT "$scratch/wrapper" "$bin/$1"
}

# have_stamp DIR TEXT is true when DIR was completed from what TEXT says.
have_stamp() { [ -f "$1/.stamp" ] && [ "$(cat "$1/.stamp")" = "$2" ]; }

# install_dir DIR STAMP FOLDER moves FOLDER to DIR, replacing what is there.
install_dir() {
  printf '%s\n' "$2" >"$3/.stamp"
  if [ -e "$1" ]; then mv -T "$1" "$(mktemp -d "$scratch/replaced.XXXXXX")"; fi
  mv -T "$3" "$1"
}

# python prints the Python that downloads wheels; any with pip will do.
python() {
  command -v python3 >/dev/null ||
    die "python3 is needed to download $1. Debian and Ubuntu: apt-get install python3 python3-pip (as root)"
  python3 -m pip --version >/dev/null 2>&1 ||
    die "python3 has no pip, which downloads $1. Debian and Ubuntu: apt-get install python3-pip (as root)"
  printf 'python3\n'
}

# wheel LOCKFILE FOLDER [pip options] downloads the wheel that LOCKFILE pins,
# checks its sha256 against the file, and unpacks it into FOLDER.
wheel() {
  local lock=$root/tools/locks/$1 to=$2 py
  shift 2
  py=$(python "$(basename "$lock" .txt)")
  rm -rf "$scratch/wheel"
  "$py" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --require-hashes --requirement "$lock" --dest "$scratch/wheel" "$@" >&2 ||
    die "no wheel was downloaded that is what $lock pins and fits this machine ($(uname -m)," \
      "glibc $(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2)): see above"
  mkdir -p "$to"
  "$py" -m zipfile -e "$scratch"/wheel/*.whl "$to"
}

# available PACKAGE is true when apt knows a version of PACKAGE to get. (No pipe to
# `grep -q`: under pipefail it fails whenever grep is the faster one.)
available() {
  case $(apt-cache policy "$1" 2>/dev/null) in
    *"Candidate: ("* | '') return 1 ;;
    *"Candidate: "*) return 0 ;;
    *) return 1 ;;
  esac
}

# need_apt REASON PACKAGE ends with a message where Debian's PACKAGE cannot be had,
# and fetches the package lists where they are missing and may be fetched.
need_apt() {
  command -v apt-get >/dev/null || die "$1 This is no Debian or Ubuntu, so it has to be installed by hand."
  if available "$2"; then return 0; fi
  [ "$(id -u)" = 0 ] || die "$1 It comes with Debian's package $2, but the package lists are missing here" \
    "and only root may fetch them. Run: sudo apt-get update"
  say "fetching Debian's package lists, for $2"
  apt-get update -qq >&2 || die "$1 apt-get update failed, see above"
  available "$2" || die "$1 Debian's package $2 is in none of this machine's package sources."
}

# deb FOLDER PACKAGE... unpacks Debian packages into FOLDER. Nothing is installed:
# no root is needed, and no package's service is started.
deb() {
  local to=$1 package
  shift
  mkdir -p "$scratch/debs" "$to"
  for package in "$@"; do
    (cd "$scratch/debs" && apt-get download -qq -o APT::Sandbox::User=root "$package" >&2) ||
      die "downloading Debian's package $package failed, see above." \
        "Lists that are too old are a common cause: sudo apt-get update"
  done
  for package in "$scratch"/debs/*.deb; do dpkg-deb -x "$package" "$to"; done
  rm -rf "$scratch/debs"
}

# missing_packages PACKAGE prints PACKAGE and what it depends on, as far as it is
# not installed.
missing_packages() {
  apt-get --simulate --no-install-recommends install "$1" 2>/dev/null | awk '$1 == "Inst" {print $2}'
}

# libraries FOLDER prints the folders of shared libraries in FOLDER, as for
# LD_LIBRARY_PATH.
libraries() {
  find "$1" -name '*.so*' -printf '%h\n' | sort -u | paste -sd :
}

# built NAME TITLE FOLDER MODULE PACKAGE provides .tools/bin/NAME: the program that the variable of that name
# (ENVOY_GATEWAY for envoy-gateway) names, else one that is built from the Go modules that FOLDER pins, again only when
# FOLDER, the script or the version of Go changes.
built() {
  local name=$1 title=$2 folder=$root/$3 module=$4 package=$5 variable=${1^^} given version dir=$tools/$1 stamp
  variable=${variable//-/_}
  one_at_a_time
  if [ -n "${!variable:-}" ]; then
    given=$(command -v "${!variable}") || die "$variable=${!variable}: there is no such program"
    link "$name" "$(realpath -s "$given")"
    return
  fi
  stamp=$(cat "$folder/go.mod" "$folder/go.sum" "$0" | sha256sum)" $(go -C "$folder" env GOVERSION)"
  if ! have_stamp "$dir" "$stamp"; then
    version=$(go list -C "$folder" -m -f '{{.Version}}' "$module")
    say "building $title $version, which takes some minutes"
    mkdir "$scratch/$name"
    CGO_ENABLED=0 go build -C "$folder" -trimpath -ldflags '-s -w' -o "$scratch/$name/$name" "$module/$package" ||
      die "$title was not built, see above"
    install_dir "$dir" "$stamp" "$scratch/$name"
    say "$title $version is in .tools/bin"
  fi
  link "$name" "../$name/$name"
}
