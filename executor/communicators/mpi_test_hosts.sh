#!/bin/bash
# Runs a job of two processes on two simulated hosts: network namespaces with names of their own,
# which a cable connects.
#
# usage: mpi_test_hosts.sh DIRECTORY PROGRAM ARGUMENT...
#
# Exits with 77 if the system does not allow namespaces, or has no `ip`.
set -u
export PATH=$PATH:/usr/sbin:/sbin
if [ "${WEFT_INSIDE:-}" != 1 ]; then
  unshare --user --map-root-user --net --mount --uts true 2>/dev/null || exit 77
  command -v ip >/dev/null || exit 77
  WEFT_INSIDE=1 exec unshare --user --map-root-user --net --mount --uts "$0" "$@"
fi

dir=$1
shift
{ mount -t tmpfs none /run && ip netns add other; } 2>/dev/null || exit 77
ip link add near type veth peer name far netns other || exit 77
ip addr add 10.77.0.1/24 dev near
ip -n other addr add 10.77.0.2/24 dev far
ip link set lo up
ip link set near up
ip -n other link set lo up
ip -n other link set far up
hostname weft-a

# What mpirun calls instead of ssh: agent HOST COMMAND...
cat >"$dir/agent" <<END
#!/bin/bash
shift
exec ip netns exec other unshare --uts sh -c "hostname weft-b; cd $PWD; \$*"
END
chmod +x "$dir/agent"
exec mpirun -n 2 --host weft-a:1,weft-b:1 --mca plm_rsh_agent "$dir/agent" \
  --mca orte_tmpdir_base "$dir" --mca btl self,tcp --mca btl_tcp_if_include 10.77.0.0/24 \
  --mca oob_tcp_if_include 10.77.0.0/24 "$@"
