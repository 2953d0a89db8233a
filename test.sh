#!/usr/bin/env bash
# Builds everything if need be and runs every test. Usage: ./test.sh [ctest argument...], as in ./test.sh -R tokenizer
# HEDDLE_MODULES="base kernels" builds and runs the test programs of these modules alone.
# Closes with one line, "N passed, N failed" (and ", N skipped" if some were); exits 1 if a test failed or none ran.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$root/build/${HEDDLE_PRESET:-release}
report=$build/tests.xml

read -r -a modules <<<"${HEDDLE_MODULES:-}"
if [ ${#modules[@]} -gt 0 ]; then set -- -R "^($(IFS='|' && echo "${modules[*]}"))/" "$@"; fi

"$root/scripts/setup.sh" "${modules[@]/#/test_}" || {
  echo "0 passed, 1 failed"  # the build
  exit 1
}
rm -rf "$report" "$build/suites"
# Tests of a suite share a process (tests/discover.cmake), unless the arguments pick some by name or number.
unset HEDDLE_TESTS_TOGETHER HEDDLE_TESTS_EXCEPT
together=1
for ((i = 1; i <= $#; ++i)); do
  case ${!i} in
    -E | --exclude-regex) j=$((i + 1)) && export HEDDLE_TESTS_EXCEPT=${!j-} ;;
    -R | --tests-regex) [ "$i" = 1 ] && [ ${#modules[@]} -gt 0 ] || together= ;;
    -I | --tests-information | --rerun-failed) together= ;;
  esac
done
if [ -n "$together" ]; then export HEDDLE_TESTS_TOGETHER=1; fi
status=0
# Three tests more at a time than there are cores, and others that only wait: tests/CMakeLists.txt has what each counts for.
ctest --test-dir "$build" --output-on-failure --parallel "${CTEST_PARALLEL_LEVEL:-$((2 * $(nproc) + 7))}" --output-junit "$report" "$@" ||
  status=$?

read -r passed failed skipped < <(awk -v suites="$build/suites" -f "$root/tests/count.awk" "$report" 2>/dev/null || echo 0 0 0)
if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then failed=1; fi  # ctest itself failed: no test list, a missing program
echo "$passed passed, $failed failed$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
