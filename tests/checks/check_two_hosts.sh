#!/usr/bin/env bash
# ./learn train on two hosts, which are network namespaces of this machine, connected by a pair of virtual network
# devices. For maintainers; needs root and Open MPI. Usage: check_two_hosts.sh BUILD
set -euo pipefail
build=$(realpath "${1:?usage: check_two_hosts.sh BUILD}")
work=$(mktemp -d)
namespaces=(llm_host_a llm_host_b)

skip() {
    echo "skipped: $*"
    exit 0
}
remove() {
    for name in "${namespaces[@]}"; do ip netns delete "$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap remove EXIT

[[ $(command -v mpirun.openmpi) ]] || skip "there is no mpirun.openmpi"
for name in "${namespaces[@]}"; do
    ip netns add "$name" 2>/dev/null || skip "no network namespace can be made here"
    ip -n "$name" link set lo up
done
ip link add llm_a netns llm_host_a type veth peer name llm_b netns llm_host_b || skip "no virtual network device can be made here"
ip -n llm_host_a address add 10.77.0.1/24 dev llm_a
ip -n llm_host_b address add 10.77.0.2/24 dev llm_b
ip -n llm_host_a link set llm_a up
ip -n llm_host_b link set llm_b up
printf '10.77.0.1 slots=1\n10.77.0.2 slots=1\n' >"$work/hosts"

# In the place of ssh: mpirun passes the address and the command.
cat >"$work/agent" <<'END'
#!/bin/sh
while [ "${1#10.77.0}" = "$1" ]; do shift; done
case $1 in 10.77.0.1) host=a ;; *) host=b ;; esac
shift
exec ip netns exec llm_host_$host unshare --uts sh -c "hostname host-$host; exec $*"
END
chmod +x "$work/agent"
seq 1 400 | awk '{ printf "%d and %d is %d. ", $1, $1 + 1, 2 * $1 + 1 }' >"$work/text"
run=(--text "$work/text" --seq-len 16 --hidden-size 24 --num-attention-heads 4 --vocab-size 300
    --steps 60 --plots none)

"$build/train" "${run[@]}" --folder "$work/one_process" >/dev/null
received() { ip netns exec llm_host_b cat /sys/class/net/llm_b/statistics/rx_bytes; }
before=$(received)
timeout 120 ip netns exec llm_host_a unshare --uts sh -c "hostname host-a; exec \"\$@\"" sh \
    mpirun.openmpi -q --allow-run-as-root --hostfile "$work/hosts" -n 2 --mca plm_rsh_agent "$work/agent" \
    --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24 \
    "$build/train" "${run[@]}" --folder "$work/two_hosts" --zero 3 </dev/null >"$work/output"
bytes=$(($(received) - before))
grep '^ranks: ' "$work/output"
python3 - "$work" "$bytes" <<'END'
import json, sys
work, sent = sys.argv[1], int(sys.argv[2])
losses = [[json.loads(line).get("loss") for line in open(f"{work}/{run}/log.jsonl")] for run in ("one_process", "two_hosts")]
pairs = [(a, b) for a, b in zip(*losses, strict=True) if a is not None]
difference = max(abs(a - b) for a, b in pairs)
print(f"{len(pairs)} steps, the losses differ by {difference:.1e}, {sent / 1e6:.1f} MB reached the second host")
sys.exit(difference > 1e-4 or sent < 1e6)
END
