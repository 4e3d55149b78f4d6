#!/usr/bin/env bash
# Provides .tools/bin/redis-server: the one that REDIS_SERVER names, else the one
# on PATH, else Debian's, unpacked into .tools. Installing the package instead
# would need root and start a Redis on the machine.
. "$(dirname "$0")/lib.sh"

one_at_a_time
if given=${REDIS_SERVER:-$(on_path redis-server)}; then
  given=$(command -v "$given") || die "REDIS_SERVER=$REDIS_SERVER: there is no such program"
  link redis-server "$(realpath -s "$given")"
  exit
fi

dir=$tools/redis
if ! have_stamp "$dir" debian; then
  need_apt "A real redis-server is needed: the tests check the in-flight counts on one." redis-tools
  say "unpacking Debian's redis-tools, which holds the server's binary"
  # shellcheck disable=SC2046 # one argument for each package
  deb "$scratch/redis" $(missing_packages redis-tools)
  found=$(LD_LIBRARY_PATH=$(libraries "$scratch/redis") \
    bash -c 'exec -a redis-server "$0" --version' "$scratch/redis/usr/bin/redis-check-rdb" 2>&1) ||
    die "the unpacked redis-server does not run here: $found. As root: apt-get install redis-server"
  install_dir "$dir" debian "$scratch/redis"
  say "${found%% sha=*} is in .tools/bin"
fi
# One binary is server and checker; it goes by the name it is called by.
wrapper redis-server <<WRAPPER
#!/usr/bin/env bash
export LD_LIBRARY_PATH="$(libraries "$dir")\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
exec -a redis-server "$dir/usr/bin/redis-check-rdb" "\$@"
WRAPPER
