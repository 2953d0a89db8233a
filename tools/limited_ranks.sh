#!/usr/bin/env bash
# limited_ranks.sh HEDDLE MODEL RANKS BYTES: runs MODEL on process ranks, each in a memory cgroup of its own that may hold so
# many bytes, of whatever kind (its own, shared, pages of files; nothing is swapped); then on one rank with the same limit.
# Prints the most that each rank's cgroup held, and the most that was resident of its process. As root, with cgroup v1 or v2.
set -uo pipefail
heddle=$1 model=$2 ranks=$3 bytes=$4
groups=/sys/fs/cgroup/memory limit=memory.limit_in_bytes peak=memory.max_usage_in_bytes
[ -d "$groups" ] || { groups=/sys/fs/cgroup limit=memory.max peak=memory.peak; }
export HEDDLE_LIMITED="$groups/heddle_limited.$$"
results=$(mktemp -d)
trap 'rm -rf "$results"; find "$HEDDLE_LIMITED" -depth -type d -exec rmdir {} + 2>/dev/null' EXIT
mkdir "$HEDDLE_LIMITED" || exit 1

# in_group NAME COMMAND...: the command in a new cgroup with the limit.
cat >"$results/in_group" <<END
#!/usr/bin/env bash
name=rank\${OMPI_COMM_WORLD_RANK:-s_alone}
mkdir "$HEDDLE_LIMITED/\$name" && echo $bytes >"$HEDDLE_LIMITED/\$name/$limit" || exit 1
(echo 0 >"$HEDDLE_LIMITED/\$name/cgroup.procs" && exec python3 -c '
import resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
open(sys.argv[1], "w").write(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f}")
sys.exit(status if status >= 0 else 128 - status)' "$results/\$name" "\$@")
END
chmod +x "$results/in_group"
arguments=(generate --model "$model" --prompt 1 --max-tokens 3 --temperature 0 --kv-memory 64MB --threads 1 --device cpu)

"$heddle" launch -n "$ranks" -- "$results/in_group" "$heddle" "${arguments[@]}"
echo "status $?"
for ((rank = 0; rank < ranks; ++rank)); do
  echo "rank $rank: limit $((bytes >> 20)) MiB, its cgroup held $(($(cat "$HEDDLE_LIMITED/rank$rank/$peak") >> 20)) MiB at most, its process $(cat "$results/rank$rank") MiB"
done
"$results/in_group" "$heddle" "${arguments[@]}"
echo "one rank with the same limit: status $?"
