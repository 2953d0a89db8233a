# Makes OUTPUT, a header that says which commit of SOURCE_DIR this is, of bench_commit.h.in; leaves it alone when it says
# so already, so that nothing is compiled again. Run at build time: `cmake -DSOURCE_DIR=... -DOUTPUT=... -P commit.cmake`.
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
