# Generates OUTPUT from bench_commit.h.in, a header with the commit of SOURCE_DIR. Does not touch an up-to-date header, so that
# nothing is compiled again. Run at build time: `cmake -DSOURCE_DIR=... -DOUTPUT=... -P commit.cmake`.
set(commit "unknown")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${SOURCE_DIR} describe --always --dirty --abbrev=12
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed AND described MATCHES "^[0-9A-Za-z._/-]+$")
    set(commit "${described}")
  endif()
endif()
configure_file(${SOURCE_DIR}/apps/cli/bench/commit.h.in ${OUTPUT} @ONLY)
