#!/usr/bin/env bash
# sequence_soak.sh CASES [LAYERS]: so many layers of each strategy of sequence parallelism, 1700 by default, on two
# machines of two ranks that are threads, while transfers and messages are late at random. CASES is heddle_sequence_cases.
# Each layer must repeat the bits of the first, which is held to float64. Takes some minutes.
set -euo pipefail
layers=${2:-1700} begin=$SECONDS
"$1" shm 2 2 "$layers"
echo "ulysses, ring, usp, tas, torus and one_sided: $layers late layers each, $((6 * layers)) together, bits of the first, $((SECONDS - begin)) s"
