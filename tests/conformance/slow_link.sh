#!/usr/bin/env bash
# slow_link.sh HEDDLE MPI_PROGRESS: three "machines" of one rank, of which two get 8 MiB from the third over links of 16 Mbit/s
# each way. Each get alone takes more than twice the deadline of 2 s, and none may give up. Then two get from each other. Exit
# status 77, with the reason, where namespaces may not be made.
set -euo pipefail
heddle=$1
# shellcheck source=namespaces.sh
. "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"
make_machines 3 10.97.0
shape_links 16
begin=$SECONDS
launch_on 1 "$2" slow
echo "both have come after $((SECONDS - begin)) s"
[ $((SECONDS - begin)) -ge 4 ] || { echo "slow_link: the link was not slow"; exit 1; }
launch_on 1 "$2" crossed
