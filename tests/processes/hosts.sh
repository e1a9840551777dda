#!/bin/sh
# Runs weft launch --elastic as on N hosts, which are network namespaces with processes of their own,
# connected by the bridge `to_others` of the first:
#
#   unshare --net --mount hosts.sh N ARGUMENTS
#
# Standard output is that of host 0, standard error those of all. The status is that of host 0; the
# last lines of standard error have those of the others. `hosts.sh N --check` only makes the hosts.
set -e
hosts=$1
shift
ip link set lo up
ip link add name to_others type bridge
ip addr add 10.9.0.1/24 dev to_others
ip link set to_others up
namespaces=
trap 'kill $namespaces' EXIT
for host in $(seq $((hosts - 1))); do
  unshare --net sleep 1000 >/dev/null 2>&1 &
  namespaces="$namespaces $!"
  while [ "$(readlink /proc/$!/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
  ip link add name to_$host type veth peer name to_others netns $!
  ip link set to_$host master to_others
  ip link set to_$host up
  nsenter --net=/proc/$!/ns/net sh -c "ip link set lo up
    ip addr add 10.9.0.$((host + 1))/24 dev to_others
    ip link set to_others up"
done
alone="unshare --pid --fork --mount-proc --kill-child"
if [ "$1" = --check ]; then
  nsenter --net=/proc/$!/ns/net $alone true
  exit
fi

launch="tools/weft launch --elastic --hosts $hosts --at 10.9.0.1:7000"
# The first process of a namespace cannot be killed from within.
host=1
launchers=
for namespace in $namespaces; do
  nsenter --net=/proc/$namespace/ns/net $alone sh -c '"$@"; exit $?' sh $launch --host $host "$@" >&2 &
  launchers="$launchers $!"
  host=$((host + 1))
done
status=0
$launch --host 0 "$@" || status=$?
host=1
for launcher in $launchers; do
  status_of_host=0
  wait $launcher || status_of_host=$?
  echo "host $host ended with status $status_of_host" >&2
  host=$((host + 1))
done
exit $status
