# Compiles a copy of src/schedule/HEADER in FOLDER in which TO replaces FROM. The compiler must reject it with the static_assert
# of PROOF.
file(READ ${SOURCES}/schedule/${HEADER} sound)
string(REPLACE "${FROM}" "${TO}" corrupted "${sound}")
if(corrupted STREQUAL sound)
  message(FATAL_ERROR "src/schedule/${HEADER} no longer holds \"${FROM}\": this test corrupts nothing")
endif()
file(WRITE ${FOLDER}/corrupted.cpp "${corrupted}")

function(compile source)
  execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${SOURCES} ${FOLDER}/${source}
                  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(status ${status} PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

compile(corrupted.cpp)
if(status EQUAL 0)
  message(FATAL_ERROR "\"${TO}\" instead of \"${FROM}\" compiles: no proof noticed")
endif()
if(NOT output MATCHES "static[ _]assert[^\n]*proof failed: ${PROOF}")
  message(FATAL_ERROR "refused, but not by the proof ${PROOF}:\n${output}")
endif()
