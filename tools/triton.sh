#!/usr/bin/env bash
# Provides .tools/bin/tritonserver: Triton Inference Server for the CPU with its
# Python backend, from a pinned wheel whose checksum is verified; about 210 MB.
#
# Python models run in the machine's own Python (/usr/bin/python3), through a stub
# that Triton has for some versions of it, and through Debian's libpython of that
# version. The latter is unpacked here where it is not installed.
. "$(dirname "$0")/lib.sh"

system_python=/usr/bin/python3

[ "$(uname -m)" = x86_64 ] ||
  die "Triton's wheel is for x86_64 only, and this machine is $(uname -m): tests with a real Triton cannot run here"
[ -x $system_python ] ||
  die "$system_python is needed: Triton runs Python models in it. Debian and Ubuntu: apt-get install python3 (as root)"
version=$($system_python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $version in
  3.10 | 3.11 | 3.12) numpy=numpy-1.txt ;;
  3.13) numpy=numpy-2.txt ;;
  *) die "$system_python is Python $version. Triton's wheel has stubs for 3.8 to 3.13;" \
    "they are used here with 3.10 to 3.13" ;;
esac

one_at_a_time
dir=$tools/triton
server=pytriton/tritonserver
backend=$server/backends/python
stamp=$(cat "$root/tools/locks/triton.txt" "$root/tools/locks/$numpy" "$0" | sha256sum)" python $version"

if ! have_stamp "$dir" "$stamp"; then
  say "downloading Triton Inference Server (55 MB) and numpy for Python $version"
  new=$scratch/triton
  wheel triton.txt "$new"
  # The models' Python sees the backend's folder and nothing else of ours.
  wheel $numpy "$new/$backend" --python-version "$version" --implementation cp --abi "cp${version/./}" \
    --platform manylinux2014_x86_64
  mv "$new/$server/python_backend_stubs/$version/triton_python_backend_stub" "$new/$backend/"
  rm -r "$new/$server/python_backend_stubs"
  chmod 755 "$new/$server/bin/tritonserver" "$new/$backend/triton_python_backend_stub"
  # The stub looks for its libpython among the wheel's libraries first. For 3.13
  # the wheel brings one, built with other built-in modules than Debian's standard
  # library expects: Debian's takes its place.
  needed=$(ldd "$new/$backend/triton_python_backend_stub" | grep -o '^[[:space:]]*libpython[^ ]*' | tr -d '[:space:]')
  installed=$(compgen -G "/usr/lib/*/libpython$version.so.1.0") || true
  if [ -n "$installed" ]; then
    ln -sfT "$installed" "$new/nvidia_pytriton.libs/$needed"
  else
    need_apt "Triton's Python models need libpython$version.so.1.0." "libpython$version"
    deb "$scratch/libpython" "libpython$version"
    cp -L --remove-destination "$scratch"/libpython/usr/lib/*/libpython"$version".so.1.0 \
      "$new/nvidia_pytriton.libs/$needed"
  fi
  unmet=$(ldd "$new/$server/bin/tritonserver" "$new/$backend/triton_python_backend_stub" |
    grep 'not found' | sort -u) || true
  [ -z "$unmet" ] || die "Triton needs shared libraries that this machine does not have:"$'\n'"$unmet"
  install_dir "$dir" "$stamp" "$new"
  say "Triton is in .tools/bin"
fi
# The Python in the stub finds its standard library by looking for python3 on
# PATH; another one there, of a version manager for instance, would mislead it.
wrapper tritonserver <<WRAPPER
#!/usr/bin/env bash
export PATH=/usr/bin:/bin
exec "$dir/$server/bin/tritonserver" --backend-directory "$dir/$server/backends" "\$@"
WRAPPER
