#!/bin/sh
# Runs weft launch --elastic as on two hosts, which are network namespaces with processes of their
# own, connected by the interface `to_other` of the first:
#
#   unshare --net --mount two_hosts.sh ARGUMENTS
#
# Standard output is that of host 0, standard error those of both. The status is that of host 0; the
# last line of standard error has that of host 1. `two_hosts.sh --check` only makes the hosts.
set -e
ip link set lo up
unshare --net sleep 1000 >/dev/null 2>&1 &
other=$!
trap 'kill $other' EXIT
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
ip link add name to_other type veth peer name to_first netns $other
ip addr add 10.9.0.1/24 dev to_other
ip link set to_other up
on_other="nsenter --net=/proc/$other/ns/net"
$on_other ip link set lo up
$on_other ip addr add 10.9.0.2/24 dev to_first
$on_other ip link set to_first up
alone="unshare --pid --fork --mount-proc --kill-child"
if [ "$1" = --check ]; then
  $on_other $alone true
  exit
fi

launch="tools/weft launch --elastic --hosts 2 --at 10.9.0.1:7000"
# The first process of a namespace cannot be killed from within.
$on_other $alone sh -c '"$@"; exit $?' sh $launch --host 1 "$@" >&2 &
host1=$!
status=0
$launch --host 0 "$@" || status=$?
status1=0
wait $host1 || status1=$?
echo "host 1 ended with status $status1" >&2
exit $status
