#!/usr/bin/env bash
# sequence_soak.sh CASES [LAYERS [PLACEMENT]]: so many layers of each strategy of sequence parallelism, 1700 by default, on
# two machines of two ranks that are threads (2x2), while transfers and messages are late at random. CASES is
# heddle_sequence_cases. There are half as many heads as ranks, so USP, TAS and Torus Attention have rings, with their
# barriers and signals; Ulysses alone has as many as ranks. Each layer must repeat the bits of the first, which is held to float64. Takes some minutes.
set -euo pipefail
layers=${2:-1700} placement=${3:-2x2} begin=$SECONDS
"$1" shm "$placement" --late "$layers" >/dev/null
echo "$placement, ulysses, and with half as many heads as ranks ring, usp, tas, torus and one_sided: $layers late layers each, bits of the first, $((SECONDS - begin)) s"
