# Prints how many tests have passed, failed and been skipped, of ctest's JUnit report. An entry "module/Suite.*" stands for the
# tests of which GoogleTest has written a report into the folder `suites` (discover.cmake); if it has not, or has and the
# program failed nevertheless, the entry counts as one failure. A test whose program is missing failed, though ctest calls it
# skipped.
function attribute(line, name) {
  if (!match(line, " " name "=\"[^\"]*")) return ""
  return substr(line, RSTART + length(name) + 3, RLENGTH - length(name) - 3)
}

# Counts the test whose lines have been read.
function close_test() {
  if (state == "run") ++passed
  else if (state == "skip") ++skipped
  else if (state != "") ++failed
  state = ""
}

function count_suite(name,    file, line, bad) {
  file = substr(name, 1, length(name) - 2)
  gsub("/", "-", file)
  file = suites "/" file ".xml"
  while ((getline line < file) > 0)
    if (line ~ /^ *<testsuite /) {
      bad += attribute(line, "failures")
      skipped += attribute(line, "skipped")
      passed += attribute(line, "tests") - attribute(line, "failures") - attribute(line, "skipped") - attribute(line, "disabled")
    }
  close(file)
  failed += bad == 0 && state != "run" ? 1 : bad
  state = ""
}

/^[ \t]*<testcase / {
  close_test()
  state = attribute($0, "status")
  if (state == "disabled") state = "skip"
  name = attribute($0, "name")
  if (name ~ /\.\*$/) count_suite(name)
}
/<skipped message="SKIP_/ { if (state != "") state = "skip" }
END {
  close_test()
  print passed + 0, failed + 0, skipped + 0
}
